"""Adam for architecture parameters, as DARTS has it (Liu et al. 2019, arXiv:1806.09055, appendix A.1.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn
from torch.optim import Optimizer

from nas_lightning.checks import NonNegativeFloat, Share, checked
from nas_lightning.strategies.oneshot.parts import ArchOptimizer
from nas_lightning.training.optim import build_optimizer


@checked
@dataclass(frozen=True)
class Adam(ArchOptimizer):
    """Adam.

    Args:
        betas: of its moments.
        weight_decay: of the architecture parameters.

    >>> import torch
    >>> optimizer = Adam(weight_decay=0.1).build([nn.Parameter(torch.zeros(2))], [], lr=0.01)
    >>> optimizer.param_groups[0]["weight_decay"]
    0.1
    """

    betas: tuple[Share, Share] = (0.5, 0.999)
    weight_decay: NonNegativeFloat = 1e-3

    default_lr: ClassVar[float] = 3e-4

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", (self.betas[0], self.betas[1]))  # a configuration has a list

    def build(self, decaying: list[nn.Parameter], others: list[nn.Parameter], lr: float) -> Optimizer:
        optimizer = build_optimizer(decaying, "adam", lr=lr, betas=self.betas, weight_decay=self.weight_decay)
        if others:
            optimizer.add_param_group({"params": others, "weight_decay": 0.0})
        return optimizer
