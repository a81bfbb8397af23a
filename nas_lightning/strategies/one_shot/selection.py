"""Selections: how a trained supernet is searched for its best path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import monotonic

import pytorch_lightning as pl
import torch

from nas_lightning.data import SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.inherited import Batch, Judgment, judge_genotype, judge_in_time, place_batches
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.one_shot.parts import Selection
from nas_lightning.training.run_length import deadline_of, is_last_epoch, is_out_of_time
from nas_lightning.utils.progress import never
from nas_lightning.utils.randomness import choose
from nas_lightning.validation import PositiveInt, checked

# The selection of a search: once per step, and within the time limit of the search.

TIMED = 5
"""Number of judgments that are timed: on a busy machine the times of single ones vary by a factor of two."""


class SelectionStage:
    """Run a selection at the ends of epochs, and reserve time for the last one.

    Args:
        selection: the selection.
        space: the search space.
        supernet: the trained supernet.
        data: the validation images.
        seed: seed of the selection's random numbers.
    """

    def __init__(
        self, selection: Selection, space: SearchSpace, supernet: Supernet, data: SearchData, seed: int
    ) -> None:
        self.selection, self.space, self.supernet = selection, space, supernet
        self.data, self.seed = data, seed
        self._found: tuple[int, Genotype, Judgment] | None = None  # at which step

    def begin(self, trainer: pl.Trainer) -> None:
        """Reserve time for all judgments, estimated from a few after the first."""
        deadline = deadline_of(trainer)
        if deadline is None:
            return
        genotype, batches = (
            self.space.sample(torch.Generator().manual_seed(self.seed)),
            self._batches(trainer),
        )
        judgments = self.selection.judgments
        timed = min(TIMED, max(1, judgments // 20))
        judge_genotype(self.space, self.supernet, genotype, batches)
        start = monotonic()
        for _ in range(timed):
            judge_genotype(self.space, self.supernet, genotype, batches)
        deadline.expect(judgments * (monotonic() - start) / timed)

    def best(self, trainer: pl.Trainer) -> tuple[Genotype, Judgment]:
        """Return the best architecture with the weights of this step; a step's result is cached.

        If the deadline leaves no time, the result is that of an earlier step, or, in the first epoch, the
        first architecture that is judged.
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

    def _select(self, trainer: pl.Trainer, out_of_time: Callable[[], bool]) -> tuple[Genotype, Judgment]:
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + trainer.global_step)
        return self.selection.best(self.space, self.supernet, self._batches(trainer), generator, out_of_time)

    def _batches(self, trainer: pl.Trainer) -> list[Batch]:
        count = self.selection.valid_batches * trainer.world_size  # as one process would have
        return list(place_batches(self.supernet, self.data.valid_batches(count)))


def _at_once() -> bool:
    return True


# The best of random architectures (Li & Talwalkar 2019, arXiv:1902.07638, section 3.2).


@checked
@dataclass(frozen=True)
class RandomCandidates(Selection):
    """arg min of the validation loss with the shared weights, over random architectures.

    Args:
        candidates: number of architectures.
        valid_batches: number of batches per architecture, over all processes.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    >>> batch = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 0, 1])
    >>> genotype, judgment = RandomCandidates(3).best(space, supernet, [batch], torch.Generator())
    >>> genotype.space, 0 <= judgment.accuracy <= 1
    ('nasbench201', True)
    """

    candidates: PositiveInt = 100
    valid_batches: PositiveInt = 4

    @property
    def judgments(self) -> int:
        return self.candidates

    def best(
        self,
        space: SearchSpace,
        supernet: Supernet,
        batches: Sequence[Batch],
        generator: torch.Generator,
        out_of_time: Callable[[], bool] = never,
    ) -> tuple[Genotype, Judgment]:
        drawn = dict.fromkeys(space.sample(generator) for _ in range(self.candidates))
        judged = judge_in_time(space, supernet, drawn, batches, out_of_time)
        return min(judged.items(), key=lambda item: item[1].loss)


# Evolution over inherited weights (Single Path One-Shot, Guo et al. 2020, arXiv:1904.00420, algorithm 1).


@checked
@dataclass(frozen=True)
class InheritedEvolution(Selection):
    """Evolution by crossover and mutation, half each, of architectures judged with the shared weights.

    The paper has a population of 50 and 20 generations. The search ends early when the space is exhausted.

    Args:
        population: number of architectures in each generation.
        generations: number of generations, including the random first one.
        parents: number of the best architectures so far from which the next generation is bred.
        valid_batches: number of batches per architecture, over all processes.

    >>> from nas_lightning.spaces import NasBench201
    >>> space, settings = NasBench201(), {"population": 3, "generations": 1, "parents": 2}
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    >>> batch = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 0, 1])
    >>> genotype, judgment = InheritedEvolution(**settings).best(space, supernet, [batch], torch.Generator())
    >>> genotype.space, 0 <= judgment.accuracy <= 1
    ('nasbench201', True)
    """

    population: PositiveInt = 20
    generations: PositiveInt = 5
    parents: PositiveInt = 5
    valid_batches: PositiveInt = 4

    @property
    def judgments(self) -> int:
        return self.population * self.generations

    def best(
        self,
        space: SearchSpace,
        supernet: Supernet,
        batches: Sequence[Batch],
        generator: torch.Generator,
        out_of_time: Callable[[], bool] = never,
    ) -> tuple[Genotype, Judgment]:
        judged: dict[Genotype, Judgment] = {}
        for generation in range(self.generations):
            parents = sorted(judged, key=lambda genotype: judged[genotype].loss)[: self.parents]
            proposals = children(space, parents, generator) if generation else samples(space, generator)
            tried = islice(proposals, 20 * self.population)
            new = islice(dict.fromkeys(g for g in tried if g not in judged), self.population)
            judged |= judge_in_time(space, supernet, list(new), batches, out_of_time)
            if out_of_time():
                break
        return min(judged.items(), key=lambda item: item[1].loss)


def samples(space: SearchSpace, generator: torch.Generator) -> Iterator[Genotype]:
    """Yield random architectures, without end."""
    while True:
        yield space.sample(generator)


def children(
    space: SearchSpace, parents: Sequence[Genotype], generator: torch.Generator
) -> Iterator[Genotype]:
    """Yield alternately a crossover of two parents and a mutation of one, without end."""
    while True:
        yield cross_over(space, choose(parents, generator), choose(parents, generator), generator)
        yield space.mutate(choose(parents, generator), generator)


def cross_over(space: SearchSpace, one: Genotype, two: Genotype, generator: torch.Generator) -> Genotype:
    """Take each decision from a random one of two parents.

    Where a node has edges of both parents and keeps fewer, those of the drawn parent come first, in random
    order.
    """
    first, second = space.one_hot(one), space.one_hot(two)
    scores = {}
    for name, matrix in first.items():
        drawn = torch.rand(len(matrix), 2, generator=generator)
        drawn[torch.arange(len(matrix)), torch.randint(2, (len(matrix),), generator=generator)] += 1
        scores[name] = drawn[:, :1] * matrix + drawn[:, 1:] * second[name]
    return space.discretize(scores)
