"""Bilevel search with a supernet: the loop that the differentiable strategies share.

    min_β L_val(w*(β), β)   subject to   w*(β) = arg min_w L_train(w, β)

is followed by alternating a step of β on validation images with a step of w on training images (DARTS, Liu et
al. 2019, arXiv:1806.09055, algorithm 1). A subclass says how parameters become weights (`relax`), what its
genotype is derived from (`scores`) and, where it differs, what its architecture step is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import torch
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer
from torchmetrics.functional.classification import multiclass_accuracy

from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.relaxations import entropy
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Active, Supernet, Weights
from nas_lightning.strategies.base import Strategy
from nas_lightning.strategies.gradients import Gradients, accumulate, gradients

Batch = tuple[Tensor, Tensor]  # images (b, c, h, w), labels (b,)


class Relaxed(NamedTuple):
    """What a step's supernet is called with."""

    weights: Weights
    active: Active | None = None


class Bilevel(Strategy):
    """Base of the strategies that train architecture parameters beside a supernet.

    A batch is {"train": (x, y), "valid": (x, y)}, as `nas_lightning.data.SearchData` or Lightning's
    `CombinedLoader` gives it. The step count of the trainer is the number of weight steps.

    Args:
        space: the search space.
        supernet: its supernet.
        lr: learning rate of the weights' SGD, falling along a cosine to `lr_min` over the run.
        lr_min: see `lr`.
        momentum: of the weights' SGD.
        weight_decay: of the weights.
        clip: largest norm of the weights' gradient.
        arch_lr: learning rate of the architecture parameters' Adam.
        arch_betas: Adam's.
        arch_weight_decay: of the architecture parameters.
        warmup_epochs: epochs that train the weights alone.
        accumulate_grad_batches: batches per step.
        compile: let `torch.compile` translate the supernet.
        seed: of the architecture parameters' start and of everything that the strategy samples.
    """

    compilable: bool = True
    """False where every step computes other operations, which would be translated anew each time."""

    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        lr: float = 0.025,
        lr_min: float = 0.001,
        momentum: float = 0.9,
        weight_decay: float = 3e-4,
        clip: float = 5.0,
        arch_lr: float = 3e-4,
        arch_betas: tuple[float, float] = (0.5, 0.999),
        arch_weight_decay: float = 1e-3,
        warmup_epochs: int = 0,
        accumulate_grad_batches: int = 1,
        compile: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(space, seed)
        self.automatic_optimization = False
        self.supernet = supernet
        self.arch = nn.ParameterDict(self.initial_parameters())
        self.lr, self.lr_min, self.momentum, self.weight_decay, self.clip = lr, lr_min, momentum, weight_decay, clip
        self.arch_lr, self.arch_betas, self.arch_weight_decay = arch_lr, tuple(arch_betas), arch_weight_decay
        self.warmup_epochs, self.accumulate_grad_batches = warmup_epochs, accumulate_grad_batches
        self.weight_list, self.arch_list = list(supernet.parameters()), list(self.arch.parameters())
        if compile:
            self._compile()

    # What subclasses say

    def initial_parameters(self) -> dict[str, Tensor]:
        """The start of the architecture parameters, by default 10⁻³ N(0, 1): (edges, ops) per group."""
        shapes = {name: group.shape for name, group in self.space.groups.items()}
        return {name: 1e-3 * torch.randn(shape, generator=self.generator) for name, shape in shapes.items()}

    @abstractmethod
    def relax(self) -> Relaxed:
        """The weights of one step."""

    def regulariser(self) -> Tensor | None:
        """What is added to the validation loss in an architecture step."""
        return None

    def derive(self) -> list[Genotype]:
        return [self.space.discretise(self.scores())]

    def arch_gradients(self, batch: Mapping[str, Batch]) -> Gradients:
        """∇_β of what an architecture step descends: here L_val(w, β) + regulariser, the first-order gradient."""
        relaxed = self.relax()
        loss = self.loss("valid", batch["valid"], relaxed)
        extra = self.regulariser()
        return gradients(loss if extra is None else loss + extra, self.arch_list)

    # The loop

    def training_step(self, batch: Mapping[str, Batch], batch_idx: int) -> None:
        due = self.trainer.is_last_batch or (batch_idx + 1) % self.accumulate_grad_batches == 0
        if self.current_epoch >= self.warmup_epochs:
            self.arch_step(batch, due)
        self.weight_step(batch, due)

    def arch_step(self, batch: Mapping[str, Batch], due: bool) -> None:
        """Add the step's gradient; where `due`, descend it."""
        accumulate(self.arch_list, self.arch_gradients(batch), 1 / self.accumulate_grad_batches)
        if due:
            optimizer = self.optimizers()[1].optimizer  # unwrapped: the trainer counts the weights' steps
            optimizer.step()
            optimizer.zero_grad()

    def weight_step(self, batch: Mapping[str, Batch], due: bool) -> None:
        """The same for the weights, clipped."""
        with torch.no_grad():
            relaxed = self.relax()
        loss = self.loss("train", batch["train"], relaxed)
        accumulate(self.weight_list, gradients(loss, self.weight_list), 1 / self.accumulate_grad_batches)
        if due:
            clip_grad_norm_(self.weight_list, self.clip)
            optimizer = self.optimizers()[0]
            optimizer.step()
            optimizer.zero_grad()

    def cross_entropy(self, batch: Batch, relaxed: Relaxed) -> tuple[Tensor, Tensor]:
        """Loss and logits of a batch."""
        logits = self.supernet(batch[0], relaxed.weights, relaxed.active)
        return F.cross_entropy(logits, batch[1]), logits

    def loss(self, side: str, batch: Batch, relaxed: Relaxed) -> Tensor:
        """The loss of a batch, logged with its accuracy under the name of its side."""
        loss, logits = self.cross_entropy(batch, relaxed)
        y = batch[1]
        accuracy = multiclass_accuracy(logits.detach(), y, logits.shape[1], average="micro")
        values = {f"{side}_loss": loss.detach(), f"{side}_accuracy": accuracy}
        self.log_dict(values, on_step=False, on_epoch=True, batch_size=len(y), sync_dist=True)
        return loss

    # Around the loop

    def configure_optimizers(self) -> list[Optimizer]:
        weights = create_optimizer_v2(
            self.weight_list, "momentum", self.lr, self.weight_decay, momentum=self.momentum
        )
        arch = create_optimizer_v2(
            self.arch_list, "adam", self.arch_lr, self.arch_weight_decay, betas=self.arch_betas
        )
        self.schedule = CosineLRScheduler(weights, self.trainer.max_epochs, lr_min=self.lr_min)
        return [weights, arch]

    def on_fit_start(self) -> None:
        if self.trainer.precision == "16-mixed":
            raise InputError("expected precision 32-true, 64-true or bf16-mixed", got=self.trainer.precision)
        if self.trainer.max_epochs is None or self.trainer.max_epochs < 1:
            raise InputError("expected max_epochs, which the schedules follow", got=self.trainer.max_epochs)

    def on_train_epoch_start(self) -> None:
        self.schedule.step(self.current_epoch)

    def on_train_epoch_end(self) -> None:
        for name, weights in self.scores().items():
            self.log(f"entropy/{name}", entropy(weights).mean())
            group = self.space.groups[name]
            for (source, target), row in zip(group.edges, weights, strict=True):
                edge = dict(zip(group.ops, row, strict=True))
                self.log_dict({f"weights/{name}/{source}_{target}/{op}": value for op, value in edge.items()})
        if not torch.isfinite(self.trainer.callback_metrics["train_loss"]):
            raise InputError(f"the training loss of epoch {self.current_epoch} is not finite: lower strategy.lr")

    def _compile(self) -> None:
        if not self.compilable:
            raise InputError(
                f"expected compile=false: {type(self).__name__} computes other operations in every step", got=True
            )
        self.supernet.compile()
