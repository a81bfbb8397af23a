"""Training-free metrics: a network and a batch in, a number out; the network is left unchanged."""

from nas_lightning.metrics.activations import (
    Expressivity,
    Jacov,
    Meco,
    Naswot,
    Progressivity,
    Swap,
    Trainability,
    Zen,
)
from nas_lightning.metrics.base import Metric, score
from nas_lightning.metrics.counts import Flops, Layers, Params
from nas_lightning.metrics.gradients import (
    Fisher,
    GradNorm,
    Grasp,
    SampleGradNorm,
    SampleGrasp,
    Snip,
    Synflow,
    Zico,
)
from nas_lightning.metrics.infinite import InfiniteNTKLambdaMin
from nas_lightning.metrics.kernel import Kernel
from nas_lightning.metrics.ntk import (
    NTKCondition,
    NTKFrobenius,
    NTKLambdaMin,
    NTKMean,
    NTKMeanDiagonal,
    NTKSqrtMeanDiagonal,
    Vkdnw,
    ntk,
)
from nas_lightning.metrics.recording import initialize

__all__ = [
    "Expressivity",
    "Fisher",
    "Flops",
    "GradNorm",
    "Grasp",
    "InfiniteNTKLambdaMin",
    "Jacov",
    "Kernel",
    "Layers",
    "Meco",
    "Metric",
    "NTKCondition",
    "NTKFrobenius",
    "NTKLambdaMin",
    "NTKMean",
    "NTKMeanDiagonal",
    "NTKSqrtMeanDiagonal",
    "Naswot",
    "Params",
    "Progressivity",
    "SampleGradNorm",
    "SampleGrasp",
    "Snip",
    "Swap",
    "Synflow",
    "Trainability",
    "Vkdnw",
    "Zen",
    "Zico",
    "initialize",
    "ntk",
    "score",
]
