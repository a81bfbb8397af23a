"""Evolution over inherited weights (Single Path One-Shot, Guo et al. 2020, arXiv:1904.00420, algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from nas_lightning.checks import PositiveInt, checked
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.inherited import Batch, Judgement, judge_in_time
from nas_lightning.progress import never
from nas_lightning.randomness import choose
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.parts import Selection


@checked
@dataclass(frozen=True)
class InheritedEvolution(Selection):
    """Children of the best by crossover and mutation, half of each, judged with the shared weights.

    The paper's population is 50, of 20 generations. Where the space has fewer architectures, the search ends
    with them.

    Args:
        population: architectures that are judged in each generation.
        generations: how many, the random first one included.
        parents: the best so far, from which the next generation comes.
        valid_batches: batches that each is judged on, of all processes together.

    >>> from nas_lightning.spaces import NasBench201
    >>> space, settings = NasBench201(), {"population": 3, "generations": 1, "parents": 2}
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    >>> batch = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 0, 1])
    >>> genotype, judgement = InheritedEvolution(**settings).best(space, supernet, [batch], torch.Generator())
    >>> genotype.space, 0 <= judgement.accuracy <= 1
    ('nasbench201', True)
    """

    population: PositiveInt = 20
    generations: PositiveInt = 5
    parents: PositiveInt = 5
    valid_batches: PositiveInt = 4

    @property
    def judgements(self) -> int:
        return self.population * self.generations

    def best(
        self,
        space: SearchSpace,
        supernet: Supernet,
        batches: Sequence[Batch],
        generator: torch.Generator,
        out_of_time: Callable[[], bool] = never,
    ) -> tuple[Genotype, Judgement]:
        judged: dict[Genotype, Judgement] = {}
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
    """Uniform architectures, without end."""
    while True:
        yield space.sample(generator)


def children(
    space: SearchSpace, parents: Sequence[Genotype], generator: torch.Generator
) -> Iterator[Genotype]:
    """By turns a child of two parents, and one of a parent with another decision; without end."""
    while True:
        yield cross_over(space, choose(parents, generator), choose(parents, generator), generator)
        yield space.mutate(choose(parents, generator), generator)


def cross_over(space: SearchSpace, one: Genotype, two: Genotype, generator: torch.Generator) -> Genotype:
    """Each decision from either parent, at random.

    Where a node has edges of both and keeps fewer, chance decides which, those first whose parent was drawn.
    """
    first, second = space.one_hot(one), space.one_hot(two)
    scores = {}
    for name, matrix in first.items():
        drawn = torch.rand(len(matrix), 2, generator=generator)
        drawn[torch.arange(len(matrix)), torch.randint(2, (len(matrix),), generator=generator)] += 1
        scores[name] = drawn[:, :1] * matrix + drawn[:, 1:] * second[name]
    return space.discretise(scores)
