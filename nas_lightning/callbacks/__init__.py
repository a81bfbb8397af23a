"""Lightning callbacks for searches and trainings."""

from nas_lightning.callbacks.checkpoints import (
    AtomicCheckpoints,
    BestCheckpoint,
    DataLoaderState,
    RewindMetrics,
    RNGState,
    SignalCheckpoint,
    StepCheckpoint,
    resume_callbacks,
)
from nas_lightning.callbacks.guards import CollapseWarning, DivergenceGuard, ExpectedTime, MemoryGuard
from nas_lightning.callbacks.monitors import (
    ConvergenceRate,
    GenotypeHistory,
    NTKMonitor,
    OutputRecorder,
    SaveRounds,
    SharedWeightRanking,
)
from nas_lightning.callbacks.progress import SearchProgressBar
from nas_lightning.callbacks.training import FrozenBackbone, TrialPruning

__all__ = [
    "AtomicCheckpoints",
    "BestCheckpoint",
    "CollapseWarning",
    "ConvergenceRate",
    "DataLoaderState",
    "DivergenceGuard",
    "ExpectedTime",
    "FrozenBackbone",
    "GenotypeHistory",
    "MemoryGuard",
    "NTKMonitor",
    "OutputRecorder",
    "RNGState",
    "RewindMetrics",
    "SaveRounds",
    "SearchProgressBar",
    "SharedWeightRanking",
    "SignalCheckpoint",
    "StepCheckpoint",
    "TrialPruning",
    "resume_callbacks",
]
