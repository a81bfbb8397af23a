"""The contract of a search strategy: a LightningModule that derives genotypes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from torch import Tensor

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.fronts import Front
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.training.retrain import widen
from nas_lightning.training.run_length import are_steps_over
from nas_lightning.validation import checked

# Trainer options and callbacks that are incompatible with a search: it uses manual optimization, with two
#     losses and two optimizers, or none.

_AVERAGE = (
    "averaged weights belong to no searched architecture: average the weights of the found network, "
    "Retrain(…, ema_decay=0.999)"
)
INSTEAD = {
    "StochasticWeightAveraging": _AVERAGE,
    "WeightAveraging": _AVERAGE,
    "LearningRateFinder": "weights and architecture have separate rates: set lr and arch_lr of the strategy",
    "GradientAccumulationScheduler": "the strategy accumulates gradients: set its accumulate_grad_batches",
    "ModelPruning": "an architecture keeps few of the weights: prune the found network in its training",
}
"""Incompatible callbacks and alternatives; by name, because not every Lightning has all of them."""


def check_callbacks(trainer: pl.Trainer) -> None:
    """Raise an `InputError` for callbacks that are incompatible with a search."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    for callback in callbacks:
        for kind in type(callback).__mro__:
            if kind.__name__ in INSTEAD:
                expected = f"A search cannot use {kind.__name__}, because {INSTEAD[kind.__name__]}"
                raise InputError(expected, where="callbacks")


def check_trainer(trainer: pl.Trainer) -> None:
    """Raise an `InputError` for trainer options that need automatic optimization."""
    if trainer.gradient_clip_val is not None:
        expected = f"Pass clip={trainer.gradient_clip_val} to the strategy instead"
        raise InputError(expected, where="Trainer.gradient_clip_val")
    if trainer.accumulate_grad_batches != 1:
        count = trainer.accumulate_grad_batches
        expected = f"Pass accumulate_grad_batches={count} to the strategy instead"
        raise InputError(expected, where="Trainer.accumulate_grad_batches")


# The constructor of a strategy names what it needs, and the command line passes it:
#
#     space       the `SearchSpace`
#     supernet    the space's supernet, for the channels and classes of the data set
#     network     a function genotype → network, for the channels and classes of the data set
#     data        the images, as `SearchData`
#     benchmark   the tabular benchmark, or None
#     objectives  the `Objectives` of a search for a Pareto front; None: the strategy's own objective
#     seed        the run's seed
#
# A new strategy is one file with one subclass, and one yaml.

PRECISIONS = ("bf16-mixed", "32-true", "64-true")
_STAMP = "nas_lightning"  # our entry in a checkpoint


class Strategy(pl.LightningModule, ABC):
    """Base class of search strategies; `tests/strategies/test_contract.py` tests all of them.

    All random numbers of a strategy come from `generator`: it is on the CPU, has the same state on every
        process, and is part of the checkpoint, so that sampled paths agree between processes and continue
        after a restart.

    Args:
        space: the search space.
        seed: seed of `generator`.

    >>> from nas_lightning.spaces import NasBench201
    >>> class Guess(Strategy):
    ...     def derive(self):
    ...         return [self.space.sample(torch.Generator().manual_seed(0))]
    >>> guess = Guess(NasBench201())
    >>> guess.label, [genotype.space for genotype in guess.derive()], guess.scores()
    ('Guess', ['nasbench201'], {})
    """

    needs_steps = False
    """Whether the strategy needs at least one step: a search of zero epochs is an error."""

    note: str | None = None
    """A remark about its results in one line, for the run's summary and page."""

    @checked
    def __init__(self, space: SearchSpace, seed: int = 0) -> None:
        super().__init__()
        self.space = space
        self.generator = torch.Generator().manual_seed(seed)

    @abstractmethod
    def derive(self) -> list[Genotype]:
        """Return the architectures that the search finds in its current state, the best first."""

    @property
    def label(self) -> str:
        """The name of the strategy in a run's facts and checkpoints."""
        return type(self).__name__

    def out_of_time(self) -> bool:
        """Return whether the time limit leaves no time for further steps."""
        return are_steps_over(self.trainer)

    def check_data(self, data: SearchData) -> None:
        """Raise an `InputError` if the data lack a part that the strategy reads."""

    def check_length(self, epochs: int | None) -> None:
        """Raise an `InputError` if this many epochs find nothing; None or negative: unlimited."""
        if self.needs_steps and epochs == 0:
            raise InputError("A search needs at least one epoch or round", got=0, where="trainer.max_epochs")

    def front(self) -> Front | None:
        """Return the Pareto front if there are several objectives; `derive` returns its architectures."""
        return None

    def scores(self) -> Mapping[str, Tensor]:
        """Return the scores that `derive` uses, (edges, ops) per group; empty if edges are not scored."""
        return {}

    def resize_to_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Resize the parameters to those of a checkpoint, if their shapes change during a search."""

    def configure_callbacks(self) -> list[pl.Callback]:
        """Check the trainer's callbacks; the strategy adds none."""
        check_callbacks(self.trainer)
        return []

    def on_fit_start(self) -> None:
        precision = self.trainer.precision
        if precision not in PRECISIONS:  # float16 needs a loss scaling that wraps one backward pass
            expected = f"`precision` must be one of {', '.join(PRECISIONS)}"
            raise InputError(expected, got=precision, where="trainer.precision")

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint[_STAMP] = {**self._identity(), "generator": self.generator.get_state()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        widen(self)
        stamp = checkpoint.get(_STAMP)
        if stamp is None:
            raise InputError("The checkpoint is not that of a search")
        for key, expected in self._identity().items():
            if stamp.get(key) != expected:
                raise InputError(f"The {key} of the checkpoint must be {expected}", got=stamp.get(key))
        self.generator.set_state(stamp["generator"])

    def _identity(self) -> dict[str, Any]:
        groups = self.space.groups.items()
        return {
            "strategy": self.label,
            "space": self.space.name,
            "operations": {
                name: [list(ops) for ops in group.own] or list(group.ops) for name, group in groups
            },
            "edges": {name: [list(row) for row in group.rows] for name, group in groups},
        }
