"""Training-free metrics: a network and a batch in, a number out, the network as it was."""

from nas_lightning.metrics.base import Metric, score
from nas_lightning.metrics.counts import Flops, Params
from nas_lightning.metrics.fisher import Fisher
from nas_lightning.metrics.gradients import GradNorm, Grasp, Snip
from nas_lightning.metrics.jacov import Jacov
from nas_lightning.metrics.naswot import Naswot
from nas_lightning.metrics.ntk import (
    NTKCondition,
    NTKFrobenius,
    NTKLambdaMin,
    NTKMeanDiagonal,
    NTKTrace,
    ntk,
)
from nas_lightning.metrics.passes.initialise import initialise
from nas_lightning.metrics.passes.kernel import Kernel
from nas_lightning.metrics.synflow import Synflow

__all__ = [
    "Fisher",
    "Flops",
    "GradNorm",
    "Grasp",
    "Jacov",
    "Kernel",
    "Metric",
    "NTKCondition",
    "NTKFrobenius",
    "NTKLambdaMin",
    "NTKMeanDiagonal",
    "NTKTrace",
    "Naswot",
    "Params",
    "Snip",
    "Synflow",
    "initialise",
    "ntk",
    "score",
]
