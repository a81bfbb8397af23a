"""Training-free metrics: a network and a batch in, a number out, the network as it was."""

from typing import TYPE_CHECKING

from nas_lightning.metrics.base import Metric, score
from nas_lightning.metrics.counts import Flops, Layers, Params
from nas_lightning.metrics.expressivity import Expressivity
from nas_lightning.metrics.fisher import Fisher
from nas_lightning.metrics.gradients import GradNorm, Grasp, Snip
from nas_lightning.metrics.jacov import Jacov
from nas_lightning.metrics.meco import Meco
from nas_lightning.metrics.naswot import Naswot
from nas_lightning.metrics.ntk import (
    NTKCondition,
    NTKFrobenius,
    NTKLambdaMin,
    NTKMean,
    NTKMeanDiagonal,
    NTKTrace,
    ntk,
)
from nas_lightning.metrics.passes.initialise import initialise
from nas_lightning.metrics.passes.kernel_matrix import Kernel
from nas_lightning.metrics.progressivity import Progressivity
from nas_lightning.metrics.swap import Swap
from nas_lightning.metrics.synflow import Synflow
from nas_lightning.metrics.trainability import Trainability
from nas_lightning.metrics.vkdnw import Vkdnw
from nas_lightning.metrics.zen import Zen
from nas_lightning.metrics.zico import Zico
from nas_lightning.rooms import names_of

__all__ = [
    "Expressivity",
    "Fisher",
    "Flops",
    "GradNorm",
    "Grasp",
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
    "NTKTrace",
    "Naswot",
    "Params",
    "Progressivity",
    "Snip",
    "Swap",
    "Synflow",
    "Trainability",
    "Vkdnw",
    "Zen",
    "Zico",
    "initialise",
    "ntk",
    "score",
]

if not TYPE_CHECKING:  # which is to know a misspelt name
    __getattr__ = names_of(__name__)
