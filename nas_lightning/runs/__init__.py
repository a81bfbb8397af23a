"""The folder of a run: files, facts, and trackers."""

from nas_lightning.runs.facts import MetricsCSV, RunFacts, read_history
from nas_lightning.runs.folder import RunFolder
from nas_lightning.runs.trackers import mlflow_logger, wandb_logger

__all__ = ["MetricsCSV", "RunFacts", "RunFolder", "mlflow_logger", "read_history", "wandb_logger"]
