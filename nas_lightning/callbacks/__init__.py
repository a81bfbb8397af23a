"""What accompanies searches and training runs, each a small Lightning callback of its own."""

from typing import TYPE_CHECKING

from nas_lightning.callbacks.best_checkpoint import BestCheckpoint
from nas_lightning.callbacks.collapse import CollapseWarning
from nas_lightning.callbacks.divergence_guard import DivergenceGuard
from nas_lightning.callbacks.expected_time import ExpectedTime
from nas_lightning.callbacks.frozen_backbone import FrozenBackbone
from nas_lightning.callbacks.history import GenotypeHistory
from nas_lightning.callbacks.kernel_monitor import NTKMonitor
from nas_lightning.callbacks.loader_place import LoaderPlace
from nas_lightning.callbacks.memory_guard import MemoryGuard
from nas_lightning.callbacks.output_recorder import OutputRecorder
from nas_lightning.callbacks.progress import SearchProgressBar
from nas_lightning.callbacks.rewind import RewindMetrics
from nas_lightning.callbacks.rng import RNGState
from nas_lightning.rooms import names_of

__all__ = [
    "BestCheckpoint",
    "CollapseWarning",
    "DivergenceGuard",
    "ExpectedTime",
    "FrozenBackbone",
    "GenotypeHistory",
    "LoaderPlace",
    "MemoryGuard",
    "NTKMonitor",
    "OutputRecorder",
    "RNGState",
    "RewindMetrics",
    "SearchProgressBar",
]

if not TYPE_CHECKING:  # which is to know a misspelt name
    __getattr__ = names_of(__name__)
