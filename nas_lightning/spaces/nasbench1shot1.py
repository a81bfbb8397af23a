"""NAS-Bench-1Shot1 (Zela et al. 2020, arXiv:2001.10422): sub-spaces of NAS-Bench-101 with a supernet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import combinations
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.graph import (
    Candidates,
    Mixture,
    Mixtures,
    concatenate,
    weigh_candidates,
    weighted_sum,
)
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.nasbench101 import (
    OPS,
    STACKS,
    Module,
    ModuleSpace,
    from_cell,
    read_module,
    vertex_op,
)
from nas_lightning.spaces.network import Backbone
from nas_lightning.spaces.operations import SEARCH_NORM, Norm, conv_norm, conv_norm_relu
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.utils.randomness import choose
from nas_lightning.validation import Cells, Channels, PositiveInt, checked

OPERATIONS, OUTPUT = "op", "output"  # names of groups
PARENTS = {1: (1, 2, 2, 2, 2), 2: (1, 1, 2, 2, 3), 3: (1, 1, 1, 2, 2, 2)}
"""Numbers of parents of each block and of the output, by variant."""

# The supernet (section 3.2 and figure 1)
#
# Every block has the channels of its cell, and the cell returns the concatenation of its projected input and
# all blocks; blocks that are not chosen are zero. A derived network divides its channels among the chosen
# blocks, as NAS-Bench-101 does, so it is not a path of the supernet and inherits no weights.


class ChoiceCell(Candidates):
    """x_j = Σ_o w_jo · o(v_j0 P_j x_0 + Σ_i v_ji x_i); the output is the concatenation v_0 P x_0, v_1 x_1, ….

    Args:
        parents: the group that weighs the parents of each block; None: the block reads all earlier ones.
        ops: the candidates of each block.
        c_in: channels of the input.
        channels: of every block.
        norm: the batch norms.
    """

    def __init__(
        self, parents: Sequence[str | None], ops: Sequence[str], c_in: int, channels: int, norm: Norm
    ) -> None:
        super().__init__()
        self.parents = list(parents)
        self.projections = nn.ModuleList(
            conv_norm_relu(c_in, channels, 1, norm(channels)) for _ in (*parents, OUTPUT)
        )
        self.ops = nn.ModuleList(
            nn.ModuleList(vertex_op(name, channels, norm) for name in ops) for _ in parents
        )

    def forward(self, x: Tensor, mixtures: Mixtures) -> Tensor:
        blocks: list[Tensor] = []
        for index, group in enumerate(self.parents):
            read = self._read(x, blocks, None if group is None else mixtures[group])
            blocks.append(self._compute(index, read, mixtures[OPERATIONS]))
        returned = weigh_candidates(mixtures[OUTPUT], 0, lambda column: self._node(x, blocks, column))
        zeros = torch.zeros_like(blocks[0])
        return concatenate([returned.get(column, zeros) for column in range(len(blocks) + 1)])

    def operations(self) -> list[nn.Module]:
        return [op for ops in self.ops for op in ops]  # type: ignore[attr-defined]

    def _node(self, x: Tensor, blocks: Sequence[Tensor], column: int) -> Tensor:
        """Return what the next block can read: the input, projected for it, or an earlier block."""
        return blocks[column - 1] if column else self.projections[len(blocks)](x)

    def _read(self, x: Tensor, blocks: Sequence[Tensor], mixture: Mixture | None) -> Tensor:
        if mixture is None:
            return reduce(torch.add, (self._node(x, blocks, column) for column in range(len(blocks) + 1)))
        return weighted_sum(mixture, 0, lambda column: self._node(x, blocks, column), blocks[0])

    def _compute(self, index: int, read: Tensor, mixture: Mixture) -> Tensor:
        ops = self.ops[index]
        return weighted_sum(mixture, index, lambda column: ops[column](read), read)  # type: ignore[index]


class ChoiceBackbone(Backbone):
    """A 3×3 stem, three stacks of cells with max pooling in between, and a final 1×1 convolution.

    Args:
        parents: the group that chooses the parents of each block; None: there is no choice.
        ops: the candidates of a block.
        norm: of the network.
        in_channels: of the images.
        channels: of the first stack; they double from stack to stack.
        cells: of a stack.
    """

    def __init__(
        self,
        parents: Sequence[str | None],
        ops: Sequence[str],
        norm: Norm,
        in_channels: int,
        channels: int,
        cells: int,
    ) -> None:
        super().__init__()
        if cells < 1 or channels < 1:
            raise InputError(
                "There must be at least 1 cell and 1 channel", got=f"cells={cells}, channels={channels}"
            )
        self.stem = conv_norm_relu(in_channels, channels, 3, norm.outside_cells(channels))
        self.per_stack, self.cells = cells, nn.ModuleList()
        parts, width = len(parents) + 1, channels
        self.widths = []
        for index in range(STACKS * cells):
            channels *= 2 if index and index % cells == 0 else 1
            self.cells.append(ChoiceCell(parents, ops, width, channels, norm))
            width = parts * channels
            self.widths.append(width)
        self.last = conv_norm(width, channels, 1, 1, norm)
        self.widths[-1] = channels
        self.auxiliary_at = 2 * cells - 1

    def cells_outputs(self, x: Tensor, mixtures: Sequence[Mixtures] | None = None) -> Iterator[Tensor]:
        assert mixtures is not None, "a supernet has architecture weights"
        x = self.stem(x)
        for index, cell in enumerate(self.cells):
            if index and index % self.per_stack == 0:
                x = F.max_pool2d(x, 2, ceil_mode=True)
            x = self.run(cell, x, mixtures[index])
            yield x if index < len(self.cells) - 1 else self.last(F.relu(x))


class NasBench1Shot1(ModuleSpace):
    """The three sub-spaces of NAS-Bench-101 with a supernet (section 3).

    A block chooses its operation, and a fixed number of parents among the input and the earlier blocks. Every
    choice is a module of NAS-Bench-101: genotypes carry the name of that space, and its table has their
    results. A block without readers is part of the genotype, but not of the network and of the hash.

    Args:
        variant: 1, 2 or 3.
        ops: the candidates of every block: names of operations, or dotted names of the user's own.

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
        """Return the group of each vertex that has a choice of parents."""
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
        """Build the supernet; `channels` of a block in the first stack, `cells` per stack."""
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
            expected = f"Blocks and output must have {', '.join(map(str, self.parents))} parents"
            raise InputError(expected, got=", ".join(map(str, parents)))

    def one_hot(self, genotype: Genotype) -> dict[str, Tensor]:
        """Return weights of 1 for the operation of each block and for all its parents."""
        self.check(genotype)
        module = from_cell(genotype["cell"], self.ops)
        weights = {name: torch.zeros(group.shape) for name, group in self.groups.items()}
        for row, op in enumerate(module.ops):
            weights[OPERATIONS][row, self.ops.index(op)] = 1.0
        for vertex, name in self._parent_groups().items():
            weights[name][0] = torch.tensor([float(row[vertex]) for row in module.matrix[:vertex]])
        return weights

    def discretize(self, scores: Mapping[str, Tensor]) -> Genotype:
        """Choose the operation with the largest score, and the number of parents that the vertex has."""
        self.check_scores(scores)
        ops = [self.ops[row.index(max(row))] for row in scores[OPERATIONS].tolist()]
        parents: list[Sequence[int]] = [range(count) for count in self.parents]  # if there is no choice
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

    def neighbors(self, genotype: Genotype) -> list[Genotype]:
        """Return the genotypes with another operation of one block, or with one other parent."""
        self.check(genotype)
        module = from_cell(genotype["cell"], self.ops)
        parents = [[i for i in range(v) if module.matrix[i][v]] for v in range(1, len(module.matrix))]
        neighbors = []
        for block, old in enumerate(module.ops):
            others = [[*module.ops[:block], op, *module.ops[block + 1 :]] for op in self.ops if op != old]
            neighbors += [self._join(ops, parents) for ops in others]
        for place, kept in enumerate(parents):
            for other in combinations(range(place + 1), len(kept)):
                if len({*other, *kept}) == len(kept) + 1:
                    neighbors.append(self._join(module.ops, [*parents[:place], other, *parents[place + 1 :]]))
        return neighbors

    def parse(self, text: str | Mapping[str, Any]) -> Genotype:
        """Read the notations of NAS-Bench-101; all blocks of the space must be present."""
        genotype = self.genotype(read_module(text, self.ops))
        self.check(genotype)
        return genotype

    def _join(self, ops: Sequence[str], parents: Sequence[Sequence[int]]) -> Genotype:
        """Return the genotype in which vertex v ≥ 1 reads `parents[v − 1]`."""
        size = len(parents) + 1
        rows = [[int(v > 0 and source in parents[v - 1]) for v in range(size)] for source in range(size)]
        return self.genotype(Module(tuple(map(tuple, rows)), tuple(ops)))
