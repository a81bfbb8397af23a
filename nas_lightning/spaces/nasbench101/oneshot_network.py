"""The supernet of NAS-Bench-1Shot1 (Zela et al. 2020, arXiv:2001.10422, section 3.2 and figure 1).

Every block has the channels of its cell, and the cell returns its projected input and all blocks side by
side: one that is not chosen leaves zeros. A derived network divides its channels among the chosen blocks
instead, as NAS-Bench-101 does, so that it is none of the supernet's paths and inherits no weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.spaces.cells.channels import concatenate
from nas_lightning.spaces.cells.choices import weigh_candidates, weighted_sum
from nas_lightning.spaces.cells.graph import Candidates, Mixture, Mixtures
from nas_lightning.spaces.nasbench101.network import STACKS, vertex_op
from nas_lightning.spaces.network import Backbone
from nas_lightning.spaces.ops import Norm, conv_norm
from nas_lightning.spaces.ops.vertices import conv_norm_relu

OPERATIONS, OUTPUT = "op", "output"


class ChoiceCell(Candidates):
    """x_j = Σ_o w_jo · o(v_j0 P_j x_0 + Σ_i v_ji x_i), and v_0 P x_0, v_1 x_1, … side by side for the output.

    Args:
        parents: the group that weighs the parents of each block; None where all earlier ones are taken.
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
        """What can be read after `blocks`: the input, projected for the reader, or one of them."""
        return blocks[column - 1] if column else self.projections[len(blocks)](x)

    def _read(self, x: Tensor, blocks: Sequence[Tensor], mixture: Mixture | None) -> Tensor:
        if mixture is None:
            return reduce(torch.add, (self._node(x, blocks, column) for column in range(len(blocks) + 1)))
        return weighted_sum(mixture, 0, lambda column: self._node(x, blocks, column), blocks[0])

    def _compute(self, index: int, read: Tensor, mixture: Mixture) -> Tensor:
        ops = self.ops[index]
        return weighted_sum(mixture, index, lambda column: ops[column](read), read)  # type: ignore[index]


class ChoiceBackbone(Backbone):
    """A 3×3 stem, three stacks of cells with max pooling between, and a 1×1 convolution at the end.

    Args:
        parents: of each block the group that chooses what it reads; None: there is no choice.
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
                "expected at least 1 cell and 1 channel", got=f"cells={cells}, channels={channels}"
            )
        self.stem = conv_norm_relu(in_channels, channels, 3, norm.outside_cells(channels))
        self.per_stack, self.cells = cells, nn.ModuleList()
        side_by_side, width = len(parents) + 1, channels
        self.widths = []
        for index in range(STACKS * cells):
            channels *= 2 if index and index % cells == 0 else 1
            self.cells.append(ChoiceCell(parents, ops, width, channels, norm))
            width = side_by_side * channels
            self.widths.append(width)
        self.last = conv_norm(width, channels, 1, 1, norm)
        self.widths[-1] = channels
        self.auxiliary_at = 2 * cells - 1

    def cells_outputs(self, x: Tensor, mixtures: Sequence[Mixtures] | None = None) -> Iterator[Tensor]:
        assert mixtures is not None, "a supernet weighs what it computes"
        x = self.stem(x)
        for index, cell in enumerate(self.cells):
            if index and index % self.per_stack == 0:
                x = F.max_pool2d(x, 2, ceil_mode=True)
            x = self.run(cell, x, mixtures[index])
            yield x if index < len(self.cells) - 1 else self.last(F.relu(x))
