"""The selection of a search: once for the weights of a step, and within the time that the search has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic

import pytorch_lightning as pl
import torch

from nas_lightning.data import SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.inherited import Batch, Judgement, judge_genotype, place_batches
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.parts import Selection
from nas_lightning.training.horizon import deadline_of, is_last_epoch, is_out_of_time

TIMED = 5
"""Judgements that say how long one takes: on a busy machine one alone may take half or twice as long."""


class SelectionStage:
    """Asks a selection at the ends of epochs; the last end has its time kept for it.

    Args:
        selection: how the supernet is searched.
        space: the search space.
        supernet: the trained one.
        data: where the validation images come from.
        seed: of what the selection draws.
    """

    def __init__(
        self, selection: Selection, space: SearchSpace, supernet: Supernet, data: SearchData, seed: int
    ) -> None:
        self.selection, self.space, self.supernet = selection, space, supernet
        self.data, self.seed = data, seed
        self._found: tuple[int, Genotype, Judgement] | None = None  # at which step

    def begin(self, trainer: pl.Trainer) -> None:
        """Keep the time of as many judgements as there may be, by the mean of some after the first."""
        deadline = deadline_of(trainer)
        if deadline is None:
            return
        genotype, batches = (
            self.space.sample(torch.Generator().manual_seed(self.seed)),
            self._batches(trainer),
        )
        judgements = self.selection.judgements
        timed = min(TIMED, max(1, judgements // 20))
        judge_genotype(self.space, self.supernet, genotype, batches)
        start = monotonic()
        for _ in range(timed):
            judge_genotype(self.space, self.supernet, genotype, batches)
        deadline.expect(judgements * (monotonic() - start) / timed)

    def best(self, trainer: pl.Trainer) -> tuple[Genotype, Judgement]:
        """What is found with the weights of this step, the same whenever the step is the same.

        Where its time would be missed at the end of the search, it is what an earlier step came to, or where
        none has been, the first that is judged.
        """
        step = trainer.global_step
        if self._found is not None and self._found[0] == step:
            return self._found[1:]
        is_due = self._is_due(trainer)
        if self._found is None or is_due:
            start = monotonic()
            out_of_time = partial(is_out_of_time, trainer) if is_due else _at_once
            self._found = step, *self._select(trainer, out_of_time)
            deadline = deadline_of(trainer)
            if deadline is not None and is_due:
                deadline.record(monotonic() - start)
        return self._found[1:]

    def _is_due(self, trainer: pl.Trainer) -> bool:
        deadline = deadline_of(trainer)
        if deadline is None or is_last_epoch(trainer):
            return True
        return trainer.strategy.broadcast(deadline.affords_stage())

    def _select(self, trainer: pl.Trainer, out_of_time: Callable[[], bool]) -> tuple[Genotype, Judgement]:
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + trainer.global_step)
        return self.selection.best(self.space, self.supernet, self._batches(trainer), generator, out_of_time)

    def _batches(self, trainer: pl.Trainer) -> list[Batch]:
        count = self.selection.valid_batches * trainer.world_size  # what one process would judge on
        return list(place_batches(self.supernet, self.data.valid_batches(count)))


def _at_once() -> bool:
    return True
