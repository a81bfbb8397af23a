"""Ensembles of architectures: how NESBS finds them, how they predict together, what attacks do to them."""

from nas_lightning.ensembles.ensemble import Ensemble, McDropPath
from nas_lightning.ensembles.evaluation import evaluate

__all__ = ["Ensemble", "McDropPath", "evaluate"]
