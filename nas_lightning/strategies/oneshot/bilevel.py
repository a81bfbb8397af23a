"""Bilevel search: the loop that the differentiable strategies share.

    min_β L_val(w*(β), β)   subject to   w*(β) = arg min_w L_train(w, β)

is followed by alternating a step of β on validation images with a step of w on training images (DARTS, Liu et
al. 2019, arXiv:1806.09055, algorithm 1). A subclass says how parameters become weights (`relax`), what its
genotype is derived from (`scores`) and, where it differs, what its architecture step is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.weight_sharing import SearchBatch, WeightSharing
from nas_lightning.training.gradients import Gradients, accumulate, constant, gradients
from nas_lightning.training.optim import build_optimizer


class Bilevel(WeightSharing):
    """Base of the strategies that train architecture parameters beside a supernet's weights.

    Args:
        space: the search space.
        supernet: its supernet.
        arch_lr: learning rate of the architecture parameters' Adam.
        arch_betas: Adam's.
        arch_weight_decay: of the architecture parameters.
        warmup_epochs: epochs that train the weights alone.
        **weight_sharing: the settings of the weights, see `WeightSharing`.
    """

    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        arch_lr: float = 3e-4,
        arch_betas: tuple[float, float] = (0.5, 0.999),
        arch_weight_decay: float = 1e-3,
        warmup_epochs: int = 0,
        **weight_sharing: Any,
    ) -> None:
        super().__init__(space, supernet, **weight_sharing)
        self.arch = nn.ParameterDict(self.initial_parameters())
        self.arch_list = list(self.arch.parameters())
        self.arch_lr, self.arch_weight_decay = arch_lr, arch_weight_decay
        self.arch_betas, self.warmup_epochs = (arch_betas[0], arch_betas[1]), warmup_epochs

    def initial_parameters(self) -> dict[str, Tensor]:
        """The start of the architecture parameters: (edges, ops) per group.

        By default 10⁻³ N(0, 1), as in the public code of DARTS, whose paper has zeros.
        """
        shapes = {name: group.shape for name, group in self.space.groups.items()}
        return {name: 1e-3 * torch.randn(shape, generator=self.generator) for name, shape in shapes.items()}

    @abstractmethod
    def scores(self) -> Mapping[str, Tensor]:
        """What the genotype is derived from: (edges, ops) per group."""

    def derive(self) -> list[Genotype]:
        return [self.space.discretise(self.scores())]

    def regulariser(self) -> Tensor | None:
        """What is added to the validation loss in an architecture step."""
        return None

    def arch_gradients(self, batch: SearchBatch) -> Gradients:
        """∇_β of what an architecture step descends: here, to first order, L_val(w, β) + regulariser."""
        with constant(self.weight_list):
            loss = self.loss("valid", batch["valid"], self.relax())
            extra = self.regulariser()
            return gradients(loss if extra is None else loss + extra, self.arch_list)

    def step(self, batches: Sequence[SearchBatch]) -> None:
        if self.current_epoch >= self.warmup_epochs:
            for batch in batches:
                accumulate(self.arch_list, self.arch_gradients(batch), 1 / len(batches))
            self.arch_descend()
        self.weight_step(batches)

    def arch_descend(self) -> None:
        """One step of the architecture's optimiser on the gradients that came together."""
        optimizer = self.stepper(1).optimizer  # unwrapped, so that Lightning counts the weights' steps only
        optimizer.step()
        optimizer.zero_grad()

    def configure_optimizers(self) -> list[Optimizer]:
        return [*super().configure_optimizers(), self.arch_optimizer()]

    def arch_optimizer(self) -> Optimizer:
        """Adam, unless a strategy's parameters live elsewhere than in ℝ."""
        return build_optimizer(
            self.arch_list,
            "adam",
            lr=self.arch_lr,
            betas=self.arch_betas,
            weight_decay=self.arch_weight_decay,
        )
