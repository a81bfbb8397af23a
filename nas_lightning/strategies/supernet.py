"""Strategies that train a supernet: its weights and their steps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.core.optimizer import LightningOptimizer
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer
from typing_extensions import Self

from nas_lightning.data.search import SearchData, read_sides
from nas_lightning.errors import InputError
from nas_lightning.objectives.inherited import Batch
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.base import Strategy, check_trainer
from nas_lightning.strategies.one_shot.parts import RelaxedWeights, SearchBatch
from nas_lightning.strategies.one_shot.relaxations import entropy
from nas_lightning.tasks import task_of
from nas_lightning.training.epoch_means import EpochMeans
from nas_lightning.training.gradients import Gradients, accumulate, gradients
from nas_lightning.training.optimizers import build_optimizer, build_scheduler
from nas_lightning.training.run_length import epochs_of
from nas_lightning.validation import (
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Seed,
    Share,
    arguments,
    check_names,
    checked,
)

# Limits in gradient-based searches: the multiplier of an expected cost rises until the limit is met.
#
#     max_{λ ≥ 0} min_β  L(β) + Σ_k λ_k (E_β c_k / limit_k − 1)
#     λ_k ← max(0, λ_k + ρ (c_k(A_β) / limit_k − 1))
#
# as LightNAS ascends on the multiplier of a latency (Luo et al. 2022, arXiv:2208.14446). The multiplier
# depends on A_β, the architecture that would be derived, because that is what must meet the limit, not the
# expectation.

RATE = 0.02
"""ρ: a limit that is exceeded by half has a multiplier of 1 after a hundred steps."""


class LimitPressure(nn.Module):
    """The multipliers λ of a space's limits, which are part of a checkpoint.

    Args:
        space: the search space; without limits all terms are zero.

    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.spaces.constrained import Bounds
    >>> from nas_lightning.spaces.constrained import limit_space
    >>> space = NasBench201()
    >>> bounds = Bounds(space, {"convs": 2.0}, lambda g: {"convs": sum("conv" in op for op in g.ops)})
    >>> pressure = LimitPressure(limit_space(space, bounds))
    >>> pressure.ascend({"cell": torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.0]]).repeat(6, 1)})  # 6 of 2
    >>> pressure.multipliers
    tensor([0.0400])
    """

    multipliers: Tensor

    def __init__(self, space: SearchSpace) -> None:
        super().__init__()
        self.space = space
        self.register_buffer("multipliers", torch.zeros(len(space.limited)), persistent=bool(space.limited))

    def term(self, probabilities: Mapping[str, Tensor]) -> Tensor:
        """Return Σ λ_k (E c_k / limit_k − 1)."""
        if not self.space.limited:
            return torch.zeros((), device=self.multipliers.device)
        excess = torch.stack([*self.space.expected_excess(probabilities).values()])
        return (self.multipliers * excess).sum()

    @torch.no_grad()
    def ascend(self, scores: Mapping[str, Tensor]) -> None:
        """Take a step of λ for the architecture that the scores stand for."""
        if self.space.limited:
            excess = [*self.space.derived_excess(scores).values()]
            self.multipliers += RATE * torch.tensor(excess).to(self.multipliers)
            self.multipliers.clamp_min_(0.0)

    def metrics(self, scores: Mapping[str, Tensor]) -> dict[str, float | Tensor]:
        """Return metrics to log: the excess over each limit, and λ."""
        if not self.space.limited:
            return {}
        excess = self.space.derived_excess(scores)
        weights = zip(excess, self.multipliers, strict=True)
        return {f"limits/{name}_excess": value for name, value in excess.items()} | {
            f"limits/{name}_multiplier": weight for name, weight in weights
        }


# Training of shared weights.


class SupernetStrategy(Strategy):
    """Base class of strategies with a supernet: SGD on its weights, at the architecture weights of `relax`.

    A batch is {"train": (x, y), "valid": (x, y)}, as `nas_lightning.data.SearchData` or Lightning's
    `CombinedLoader` yields it; this class uses only the first. Lightning's global step counts weight steps.

    Args:
        space: the search space.
        supernet: its supernet.
        lr: learning rate in the first epoch; it follows a cosine schedule.
        lr_min: learning rate at the end of the schedule.
        momentum: momentum of SGD.
        nesterov: use Nesterov momentum.
        weight_decay: weight decay of SGD.
        clip: largest norm of the gradient.
        accumulate_grad_batches: number of batches per step.
        compile: compile the supernet's cells with `torch.compile`. It takes minutes at the start, and on a
            CPU it gains between nothing and a seventh of a step.
        checkpoint_cells: store only the outputs of cells, and recompute the rest for the backward pass.
        seed: seed of all random numbers.
    """

    compilable: bool = True
    """False if every step computes other operations, so that each would be compiled again."""

    needs_steps = True

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        lr: PositiveFloat = 0.025,
        lr_min: NonNegativeFloat = 0.001,
        momentum: Share = 0.9,
        nesterov: bool = False,
        weight_decay: NonNegativeFloat = 3e-4,
        clip: PositiveFloat = 5.0,
        accumulate_grad_batches: PositiveInt = 1,
        compile: bool = False,
        checkpoint_cells: bool = False,
        seed: Seed = 0,
    ) -> None:
        super().__init__(space, seed)
        if compile and not self.compilable:
            reason = f"{type(self).__name__} computes other operations in every step"
            raise InputError(f"`compile` must be false, because {reason}", got=True, where="strategy.compile")
        self.automatic_optimization = False
        self.supernet = supernet
        classes = supernet.head.out_features
        self.train_scores, self.valid_scores = (EpochMeans(classes, task=task_of(supernet)) for _ in range(2))
        self.epoch_scores = {"train": self.train_scores, "valid": self.valid_scores}
        self.weight_list = list(supernet.parameters())
        self.lr, self.lr_min, self.momentum, self.nesterov = lr, lr_min, momentum, nesterov
        self.weight_decay, self.clip = weight_decay, clip
        self.accumulate_grad_batches = accumulate_grad_batches
        self.waiting: list[SearchBatch] = []
        self.last_loss: Tensor | None = None  # of a batch that the weights were trained on
        self._epochs: int | None = None  # as the current epoch knows it
        supernet.backbone.checkpointed = checkpoint_cells
        if compile:
            supernet.backbone.compile_cells()

    @classmethod
    def from_space(cls, space: SearchSpace, *, in_channels: int, num_classes: int, **settings: Any) -> Self:
        """Build a search in this space together with its supernet.

        Args:
            space: the search space.
            in_channels: number of image channels.
            num_classes: number of classes.
            **settings: sizes of the supernet, such as `channels` and `cells`, and arguments of the strategy.

        >>> from nas_lightning.spaces import NasBench201
        >>> from nas_lightning.strategies import Darts
        >>> Darts.from_space(NasBench201(), in_channels=1, num_classes=10, channels=4, cells=1, lr=0.1).lr
        0.1
        """
        known = {*signature(space.supernet).parameters}
        sizes = {name: value for name, value in settings.items() if name in known}
        options = {name: value for name, value in settings.items() if name not in known}
        check_names(options, {*(arguments(cls) or options), *known}, cls.__name__)
        supernet = space.supernet(in_channels=in_channels, num_classes=num_classes, **sizes)
        return cls(space, supernet, **options)

    @abstractmethod
    def relax(self) -> RelaxedWeights:
        """Return the architecture weights of one step."""

    def epoch_metrics(self) -> Mapping[str, float | Tensor]:
        """Return metrics to log at the end of an epoch."""
        return {}

    def training_step(self, batch: SearchBatch, batch_idx: int) -> Tensor | None:
        """Train on a batch, and return the loss of the last batch that the weights were trained on."""
        self.waiting.append(read_sides(batch, self.weight_list[0].dtype, task_of(self.supernet).targets))
        if len(self.waiting) == self.accumulate_grad_batches or self.trainer.is_last_batch:
            batches, self.waiting = self.waiting, []
            self.step(batches)
        return self.last_loss

    def step(self, batches: Sequence[SearchBatch]) -> None:
        """Take one step on accumulated batches."""
        self.weight_step(batches)

    def weight_step(self, batches: Sequence[SearchBatch]) -> None:
        """Clip and descend the gradient of L_train(w, β) for w."""
        for batch in batches:
            with torch.no_grad():
                paths = [self.perturb(relaxed, batch) for relaxed in self.paths()]
            for relaxed in paths:
                accumulate(self.weight_list, self.weight_gradients(batch, relaxed), 1 / len(batches))
        self.descend()

    def weight_gradients(self, batch: SearchBatch, relaxed: RelaxedWeights) -> Gradients:
        """Return ∇_w of the loss of a weight step, for one path and batch."""
        return gradients(self.loss("train", batch["train"], relaxed), self.weight_list)

    def paths(self) -> list[RelaxedWeights]:
        """Return the paths that one weight step trains; their gradients are added."""
        return [self.relax()]

    def perturb(self, relaxed: RelaxedWeights, batch: SearchBatch) -> RelaxedWeights:
        """Return the architecture weights at which the supernet is trained on a batch."""
        return relaxed

    def descend(self) -> None:
        """Take one step of the weights' optimizer on the accumulated gradients."""
        clip_grad_norm_(self.weight_list, self.clip)
        optimizer = self.stepper(0)
        optimizer.step()
        optimizer.zero_grad()

    def stepper(self, index: int) -> LightningOptimizer:
        """Return the optimizer of the weights (0) or of the architecture (1)."""
        found = self.optimizers()
        return found[index] if isinstance(found, list) else found

    def loss_and_logits(self, batch: Batch, relaxed: RelaxedWeights) -> tuple[Tensor, Tensor]:
        """Return the task's loss and the logits of a batch."""
        logits = self.supernet(batch[0], relaxed.weights, relaxed.active)
        return task_of(self.supernet).loss(logits, batch[1]), logits

    def loss(self, side: str, batch: Batch, relaxed: RelaxedWeights) -> Tensor:
        """Return the loss of a batch, and add it and the accuracy to the epoch's metrics of its side."""
        loss, logits = self.loss_and_logits(batch, relaxed)
        if side == "train":
            self.last_loss = loss.detach()
        self.epoch_scores[side].update(loss.detach() * len(logits), logits.detach(), batch[1], len(logits))
        return loss

    def check_data(self, data: SearchData) -> None:
        data.check_valid()

    def configure_callbacks(self) -> list[pl.Callback]:
        check_trainer(self.trainer)
        return super().configure_callbacks()

    def configure_optimizers(self) -> list[Optimizer]:
        self._epochs = None
        sgd, decay = "sgd" if self.nesterov else "momentum", self.weight_decay
        weights = build_optimizer(
            self.weight_list, sgd, lr=self.lr, momentum=self.momentum, weight_decay=decay
        )
        self.schedule = build_scheduler(weights, "cosine", epochs=self.epochs, lr_min=self.lr_min)
        return [weights]

    @property
    def epochs(self) -> int:
        """The number of epochs that schedules follow."""
        return self._epochs or epochs_of(self.trainer, self.accumulate_grad_batches)

    # Not `on_train_epoch_start`: a restart after some batches of an epoch, or after all, does not call it.

    def on_train_start(self) -> None:
        self.waiting = []
        self.enter_epoch()

    def on_train_batch_start(self, batch: SearchBatch, batch_idx: int) -> None:
        if batch_idx == 0:
            for scores in self.epoch_scores.values():
                scores.reset()
            self.enter_epoch()

    def enter_epoch(self) -> None:
        """Update the schedules for the current epoch."""
        self._epochs = epochs_of(self.trainer, self.accumulate_grad_batches)
        self.schedule.follow(self.epochs)
        self.schedule.step(self.current_epoch)

    def on_train_epoch_end(self) -> None:
        for side, scores in self.epoch_scores.items():
            scores.log(self, side)
        loss = self.train_scores.loss.compute()
        if not torch.isfinite(loss):
            expected = f"The loss is not finite in epoch {self.current_epoch}: lower the learning rate"
            raise InputError(expected, got=float(loss), where="strategy.lr")
        self.log_dict(dict(self.epoch_metrics()))
        for name, weights in self.scores().items():
            self.log(f"entropy/{name}", entropy(weights).mean())
