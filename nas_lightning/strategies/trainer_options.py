"""What a trainer and its callbacks would do to a search, and who does it instead.

Lightning leaves the steps of a search to the search, which has two losses and two optimisers, or none.
"""

from __future__ import annotations

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from nas_lightning.errors import InputError

_AVERAGE = (
    "averaged weights would be of no architecture that was searched: average those of the network that is "
    "found, Retrain(…, ema_decay=0.999)"
)
INSTEAD = {
    "StochasticWeightAveraging": _AVERAGE,
    "WeightAveraging": _AVERAGE,
    "LearningRateFinder": "weights and architecture have a rate each: lr=… and arch_lr=… of the strategy",
    "GradientAccumulationScheduler": "gradients are the strategy's: accumulate_grad_batches=2 of it",
    "ModelPruning": "an architecture keeps few of the weights: prune those of the network that is found, "
    "while Retrain trains it",
}
"""Callbacks that a search has no place for, and why; by name, since not every Lightning has all of them."""


def check_callbacks(trainer: pl.Trainer) -> None:
    """Raise for what would change parameters that the search has for its own use."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    for callback in callbacks:
        for kind in type(callback).__mro__:
            if kind.__name__ in INSTEAD:
                expected = f"expected no {kind.__name__} in a search, because {INSTEAD[kind.__name__]}"
                raise InputError(expected, where="callbacks")


def check_trainer(trainer: pl.Trainer) -> None:
    """Raise for what only automatic optimisation has."""
    if trainer.gradient_clip_val is not None:
        expected = f"expected clip={trainer.gradient_clip_val} of the strategy instead"
        raise InputError(expected, where="Trainer.gradient_clip_val")
    if trainer.accumulate_grad_batches != 1:
        count = trainer.accumulate_grad_batches
        expected = f"expected accumulate_grad_batches={count} of the strategy instead"
        raise InputError(expected, where="Trainer.accumulate_grad_batches")
