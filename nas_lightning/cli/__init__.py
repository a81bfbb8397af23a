"""The command line: `search.py`, `train.py`, `analyze.py`, and the console scripts, on stock Hydra."""

from nas_lightning.cli.main import analyze, latency, search, train

__all__ = ["analyze", "latency", "search", "train"]
