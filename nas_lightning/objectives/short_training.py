"""The accuracy of an architecture from a short training or a table, and its cost."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from nas_lightning.data import SearchData
from nas_lightning.data.batches import Batch
from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.inherited import place_batches
from nas_lightning.objectives.tables import PartialTable, TabularBenchmark, table_accuracy
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.network import DerivedNetwork, NetworkFactory
from nas_lightning.tasks import MultiClass, Task, task_of
from nas_lightning.training.optimizers import build_optimizer, build_scheduler
from nas_lightning.utils.devices import CPU, seeded
from nas_lightning.utils.processes import rank_and_world
from nas_lightning.utils.progress import OutOfTimeError, never
from nas_lightning.utils.randomness import seed_of_name
from nas_lightning.validation import NonNegativeFloat, PositiveFloat, PositiveInt, Seed, Share, checked

# Accuracies from a short training or a table.

Evaluator = Literal["none", "training", "table"]


class AccuracyObjective(Protocol):
    """An accuracy in percent; its name states its source."""

    @property
    def name(self) -> str: ...

    def __call__(self, genotype: Genotype) -> float: ...

    def seconds(self, genotype: Genotype) -> float | None:
        """Return the known cost of an evaluation, None if it is measured."""


@checked
@dataclass(frozen=True)
class ShortTrainingSettings:
    """The settings of a short training besides its epochs and its learning rate.

    The defaults are those of HNAS' public code (shuyao95/HNAS, `darts_space/search.py`), without drop path.

    Args:
        opt: timm's name of the optimizer; `momentum` is SGD with momentum, `sgd` has Nesterov's.
        lr_min: final learning rate of the cosine schedule; None: 5 % of the initial one.
        weight_decay: of all parameters.
        clip: maximum norm of the gradient; None: no clipping.
        drop_path: final rate of drop path, which grows linearly from 0.
        label_smoothing: label smoothing.
        augment: augment the training images as the data set does.

    >>> ShortTrainingSettings(opt="sgd", lr_min=0.0, weight_decay=5e-4, clip=None, augment=True).opt
    'sgd'
    """

    opt: str = "momentum"
    lr_min: NonNegativeFloat | None = None
    weight_decay: NonNegativeFloat = 3e-4
    clip: PositiveFloat | None = 5.0
    drop_path: Share = 0.0
    label_smoothing: Share = 0.0
    augment: bool = False


PLAIN = ShortTrainingSettings()


class ShortTraining:
    """Validation accuracy in percent of the derived network after a few epochs on the search's training part.

    Momentum is 0.9 and the schedule a cosine. All random numbers depend only on the seed and the
    architecture's notation, so the accuracy is the same in every search.

    Args:
        space: the space of the architectures.
        network: maps a genotype to the derived network; an auxiliary head is not trained.
        data: the images; a step has the batch of all processes together.
        epochs: number of epochs.
        lr: initial learning rate.
        settings: the other settings.
        seed: seed of weights and order.
        device: where networks are trained; they are built on the CPU.
        out_of_time: called before each step; the training is abandoned if it returns True.
    """

    @checked
    def __init__(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        data: SearchData,
        *,
        epochs: PositiveInt = 12,
        lr: PositiveFloat = 0.1,
        settings: ShortTrainingSettings = PLAIN,
        seed: Seed = 0,
        device: torch.device = CPU,
        out_of_time: Callable[[], bool] = never,
    ) -> None:
        self.space, self.network, self.data, self.device = space, network, data, device
        self.epochs, self.lr, self.settings, self.seed = epochs, lr, settings, seed
        self.out_of_time = out_of_time
        self.world: int | None = None

    def to_send(self) -> ShortTraining:
        """Return a copy for another process: data without a trainer, the same batch size, no time limit."""
        sent = copy.copy(self)
        sent.data, sent.world = self.data.to_send(), rank_and_world()[1]
        sent.out_of_time = never
        return sent

    @property
    def name(self) -> str:
        """`valid_accuracy`, or the score of a task without classes."""
        return f"valid_{task_of(self.data).score}"

    def __call__(self, genotype: Genotype) -> float:
        task = task_of(self.data)
        with seeded(seed_of_name(self.seed, self.space.notation(genotype)), self.device):
            network = self.network(genotype).to(self.device).train()
            weights, chosen = list(network.parameters()), self.settings
            optimizer = build_optimizer(weights, chosen.opt, lr=self.lr, weight_decay=chosen.weight_decay)
            lr_min = 0.05 * self.lr if chosen.lr_min is None else chosen.lr_min
            schedule = build_scheduler(optimizer, "cosine", epochs=self.epochs, lr_min=lr_min)
            for epoch in range(self.epochs):
                schedule.step(epoch)
                if isinstance(network, DerivedNetwork):
                    network.set_drop_path(chosen.drop_path * epoch / self.epochs)
                batches = self._train(epoch)
                train_pass(network, batches, optimizer, task, chosen.clip, chosen.label_smoothing)
            return score_outputs(task, outputs_of(network, self._valid()))

    def seconds(self, genotype: Genotype) -> None:
        """Return None: the time is measured."""

    def _train(self, epoch: int) -> Iterator[Batch]:
        world = rank_and_world()[1] if self.world is None else self.world
        images, augment = self.data.batch_size * world, self.settings.augment
        for batch in self.data.train.shuffled_pass(epoch, images, self.seed, augment=augment):
            if self.out_of_time():
                raise OutOfTimeError
            yield batch

    def _valid(self) -> Iterator[Batch]:
        return self.data.valid.whole_pass()


def train_pass(
    network: nn.Module,
    batches: Iterable[Batch],
    optimizer: Optimizer,
    task: Task,
    clip: float | None = None,
    smoothing: float = 0.0,
) -> list[Tensor]:
    """Take one step per batch and return the losses; `clip` is the maximum norm of the gradient."""
    losses = []
    for x, y in place_batches(network, batches):
        loss = task.loss(network(x), y, smoothing)
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            clip_grad_norm_(network.parameters(), clip)
        optimizer.step()
        losses.append(loss.detach())
    return losses


@torch.no_grad()
def outputs_of(network: nn.Module, batches: Iterable[Batch]) -> list[Batch]:
    """Return outputs and targets of each batch, in evaluation mode."""
    network.eval()
    return [(network(x), y) for x, y in place_batches(network, batches)]


def score_outputs(task: Task, outputs: Sequence[Batch]) -> float:
    """Return the task's score in percent; outputs that are not finite count as wrong, or give −∞."""
    if not isinstance(task, MultiClass):
        z, y = (torch.cat(parts) for parts in zip(*outputs, strict=True))
        return 100 * task.judge(z, y) if bool(z.isfinite().all()) else -math.inf
    correct = sum(int((z.argmax(dim=1) == y).sum()) for z, y in outputs if bool(z.isfinite().all()))
    return 100 * correct / sum(len(y) for _, y in outputs)


def build_objective(
    evaluation: Evaluator, training: ShortTraining, benchmark: TabularBenchmark | None
) -> AccuracyObjective | None:
    """Return the objective of the option `strategy.evaluation`."""
    if evaluation not in get_args(Evaluator):
        raise InputError(
            f"Unknown evaluation ({near_match(evaluation, get_args(Evaluator))})",
            got=evaluation,
            where="strategy.evaluation",
        )
    if evaluation == "training":
        training.data.check_valid()
        return training
    if evaluation != "table":
        return None
    if benchmark is None:
        raise InputError(
            "This evaluation needs a table: pass benchmark=nasbench201 benchmark.path=…",
            got="none",
            where="strategy.evaluation=table",
        )
    return PartialTable(table_accuracy(benchmark))


# The cost of an evaluation: seconds from a table, or measured.


def evaluate_timed(objective: AccuracyObjective, genotype: Genotype) -> tuple[float, float] | None:
    """Return value and seconds of an evaluation, None if the time limit ended it."""
    start = monotonic()
    try:
        value = objective(genotype)
    except OutOfTimeError:
        return None
    known = objective.seconds(genotype)
    return value, monotonic() - start if known is None else known


def check_timed(objective: AccuracyObjective | None, genotype: Genotype) -> None:
    """Raise unless evaluations have a cost in seconds."""
    where = "strategy.seconds"
    if objective is None:
        raise InputError("A limit of seconds needs an evaluation", got="none", where=where)
    if not isinstance(objective, ShortTraining) and objective.seconds(genotype) is None:
        raise InputError("The table must have a column of seconds", got=objective.name, where=where)
