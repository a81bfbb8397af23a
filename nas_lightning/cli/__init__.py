"""The command line: `search.py`, `train.py`, `analyze.py`, and the console scripts, on stock Hydra."""

from nas_lightning.cli.main import analyze, latency, search, train
from nas_lightning.cli.sweep import SweepFolder

__all__ = ["SweepFolder", "analyze", "latency", "search", "train"]
