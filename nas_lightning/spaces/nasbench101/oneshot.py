"""The spaces of NAS-Bench-1Shot1 (Zela et al. 2020, arXiv:2001.10422, section 3), within NAS-Bench-101.

A block chooses its operation, and a fixed number of parents among the input and the blocks before it. Every
choice is a module of NAS-Bench-101, so that genotypes name that space, train there and are looked up in its
table. A block that nobody reads stays in the genotype, and leaves its network and its hash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from nas_lightning.checks import Cells, Channels, PositiveInt, checked
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.randomness import choose
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.nasbench101.base import ModuleSpace, read_module
from nas_lightning.spaces.nasbench101.modules import OPS, Module, from_cell
from nas_lightning.spaces.nasbench101.oneshot_network import OPERATIONS, OUTPUT, ChoiceBackbone
from nas_lightning.spaces.ops import SEARCH_NORM
from nas_lightning.spaces.supernet import Supernet

PARENTS = {1: (1, 2, 2, 2, 2), 2: (1, 1, 2, 2, 3), 3: (1, 1, 1, 2, 2, 2)}  # of the blocks, then of the output


class NasBench1Shot1(ModuleSpace):
    """One of the three spaces: a group of operations, and one of parents for whoever has a choice of them.

    Args:
        variant: 1, 2 or 3.
        ops: the candidates of every block, by default the benchmark's: names, dotted names of a user's own.

    >>> space = NasBench1Shot1(1)
    >>> [(name, group.shape, group.draw) for name, group in space.groups.items()]
    [('op', (4, 3), 1), ('parents_3', (1, 3), 2), ('parents_4', (1, 4), 2), ('output', (1, 5), 2)]
    """

    name: ClassVar[str] = "nasbench1shot1"

    @checked
    def __init__(self, variant: Literal[1, 2, 3], ops: Sequence[str] = OPS) -> None:
        super().__init__(ops)
        self.variant, self.parents = variant, PARENTS[variant]
        self.blocks = range(1, len(self.parents))

    @property
    def groups(self) -> Mapping[str, Group]:
        found = {OPERATIONS: Group(tuple((block,) for block in self.blocks), self.ops)}
        for vertex, name in self._parent_groups().items():
            candidates = tuple(map(str, range(vertex)))
            found[name] = Group(((vertex,),), candidates, draw=self.parents[vertex - 1])
        return found

    def _parent_groups(self) -> dict[int, str]:
        """The group of each vertex that has a choice of parents."""
        free = [vertex for vertex, parents in enumerate(self.parents, 1) if parents < vertex]
        return {v: OUTPUT if v == self.blocks.stop else f"parents_{v}" for v in free}

    @checked
    def supernet(  # type: ignore[override]
        self,
        *,
        in_channels: Channels,
        num_classes: PositiveInt,
        channels: Channels = 8,
        cells: Cells = 1,
    ) -> Supernet:
        """`channels` are those of a block in the first stack, `cells` are counted per stack."""
        groups = self._parent_groups()
        parents = [groups.get(block) for block in self.blocks]
        return Supernet(
            ChoiceBackbone(parents, self.ops, SEARCH_NORM, in_channels, channels, cells), num_classes
        )

    def check(self, genotype: Genotype) -> None:
        super().check(genotype)
        matrix = from_cell(genotype["cell"], self.ops).matrix
        parents = tuple(sum(row[vertex] for row in matrix) for vertex in range(1, len(matrix)))
        if parents != self.parents:
            expected = f"expected blocks and output with {', '.join(map(str, self.parents))} parents"
            raise InputError(expected, got=", ".join(map(str, parents)))

    def one_hot(self, genotype: Genotype) -> dict[str, Tensor]:
        """1 for the operation of each block and for all its parents."""
        self.check(genotype)
        module = from_cell(genotype["cell"], self.ops)
        weights = {name: torch.zeros(group.shape) for name, group in self.groups.items()}
        for row, op in enumerate(module.ops):
            weights[OPERATIONS][row, self.ops.index(op)] = 1.0
        for vertex, name in self._parent_groups().items():
            weights[name][0] = torch.tensor([float(row[vertex]) for row in module.matrix[:vertex]])
        return weights

    def discretise(self, scores: Mapping[str, Tensor]) -> Genotype:
        """The operation with the largest score, and as many parents with the largest as the vertex has."""
        self.check_scores(scores)
        ops = [self.ops[row.index(max(row))] for row in scores[OPERATIONS].tolist()]
        parents: list[Sequence[int]] = [range(count) for count in self.parents]  # where there is no choice
        for vertex, name in self._parent_groups().items():
            row = scores[name][0].tolist()
            order = sorted(range(vertex), key=lambda column: -row[column])
            parents[vertex - 1] = order[: self.parents[vertex - 1]]
        return self._join(ops, parents)

    def sample(self, generator: torch.Generator) -> Genotype:
        ops = [choose(self.ops, generator) for _ in self.blocks]
        return self._join(
            ops, [choose(combinations(range(v), n), generator) for v, n in enumerate(self.parents, 1)]
        )

    def neighbours(self, genotype: Genotype) -> list[Genotype]:
        """One block with another operation, or one parent instead of another."""
        self.check(genotype)
        module = from_cell(genotype["cell"], self.ops)
        parents = [[i for i in range(v) if module.matrix[i][v]] for v in range(1, len(module.matrix))]
        neighbours = []
        for block, old in enumerate(module.ops):
            others = [[*module.ops[:block], op, *module.ops[block + 1 :]] for op in self.ops if op != old]
            neighbours += [self._join(ops, parents) for ops in others]
        for place, kept in enumerate(parents):
            for other in combinations(range(place + 1), len(kept)):
                if len({*other, *kept}) == len(kept) + 1:
                    neighbours.append(
                        self._join(module.ops, [*parents[:place], other, *parents[place + 1 :]])
                    )
        return neighbours

    def parse(self, text: str | Mapping[str, Any]) -> Genotype:
        """The notations of NAS-Bench-101, with every block of the space."""
        genotype = self.genotype(read_module(text, self.ops))
        self.check(genotype)
        return genotype

    def _join(self, ops: Sequence[str], parents: Sequence[Sequence[int]]) -> Genotype:
        """The genotype in which vertex v ≥ 1 reads `parents[v − 1]`."""
        size = len(parents) + 1
        rows = [[int(v > 0 and source in parents[v - 1]) for v in range(size)] for source in range(size)]
        return self.genotype(Module(tuple(map(tuple, rows)), tuple(ops)))
