"""The command line: `search.py`, `train.py`, `analyze.py`, and the console scripts, on stock Hydra."""

from nas_lightning.cli.main import analyze, latency, search, train
from nas_lightning.cli.sweep import SweepFolder, SweepTable

__all__ = ["SweepFolder", "SweepTable", "analyze", "latency", "search", "train"]
