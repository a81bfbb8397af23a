"""What a trainer and its callbacks would do to a search by gradients, and who does it instead.

Lightning leaves the steps of such a search to the search, which has two losses and two optimisers.
"""

from __future__ import annotations

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, LearningRateFinder, StochasticWeightAveraging

from nas_lightning.errors import InputError

INSTEAD: dict[type[Callback], str] = {
    StochasticWeightAveraging: "averaged weights would be of no architecture that was searched: average "
    "those of the network that is found, Retrain(…, ema_decay=0.999)",
    LearningRateFinder: "weights and architecture have a rate each: lr=… and arch_lr=… of the strategy",
}
"""Callbacks that a search has no place for, and why."""


def check_trainer(trainer: pl.Trainer) -> None:
    """Raise for what only automatic optimisation has."""
    if trainer.gradient_clip_val is not None:
        expected = f"expected clip={trainer.gradient_clip_val} of the strategy instead"
        raise InputError(expected, where="Trainer.gradient_clip_val")
    if trainer.accumulate_grad_batches != 1:
        count = trainer.accumulate_grad_batches
        expected = f"expected accumulate_grad_batches={count} of the strategy instead"
        raise InputError(expected, where="Trainer.accumulate_grad_batches")
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    for callback in callbacks:
        for kind, reason in INSTEAD.items():
            if isinstance(callback, kind):
                raise InputError(
                    f"expected no {kind.__name__} in a search, because {reason}", where="callbacks"
                )
