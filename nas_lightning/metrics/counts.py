"""Counts of parameters, layers, and multiply-adds: baselines for every metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.utils.flop_counter import FlopCounterMode

from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.engine import Passes
from nas_lightning.metrics.recording import LAYERS


@dataclass(frozen=True)
class Params(Metric):
    """Number of trainable parameters.

    >>> Params()(torch.nn.Linear(3, 2), (torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))).item()
    8.0
    """

    counts_only: ClassVar[bool] = True
    shapes_only: ClassVar[bool] = True

    def compute(self, passes: Passes) -> float:
        return sum(parameter.numel() for parameter in passes.parameters)


@dataclass(frozen=True)
class Layers(Metric):
    """Number of convolutions and linear layers with trainable weights.

    >>> network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    >>> Layers()(network, (torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))).item()
    2.0
    """

    counts_only: ClassVar[bool] = True
    shapes_only: ClassVar[bool] = True

    def compute(self, passes: Passes) -> float:
        layers = (module for module in passes.network.modules() if isinstance(module, LAYERS))
        return sum(layer.weight.requires_grad for layer in layers)


@dataclass(frozen=True)
class Flops(Metric):
    """Multiply-adds of the forward pass on one sample.

    >>> Flops()(torch.nn.Linear(3, 2), (torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))).item()  # 3 · 2
    6.0
    """

    counts_only: ClassVar[bool] = True
    shapes_only: ClassVar[bool] = True

    def compute(self, passes: Passes) -> float:
        samples = 2  # batch statistics need more than one
        x = passes.x.detach()[:samples]
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            passes.network(x)
        return counter.get_total_flops() / 2 / samples
