"""Ensembles of architectures: how NESBS finds them, how they predict together, what attacks do to them."""

from typing import TYPE_CHECKING

from nas_lightning.ensembles.ensemble import Ensemble, McDropPath
from nas_lightning.ensembles.evaluation import evaluate
from nas_lightning.rooms import names_of

__all__ = ["Ensemble", "McDropPath", "evaluate"]

if not TYPE_CHECKING:  # which is to know a misspelt name
    __getattr__ = names_of(__name__)
