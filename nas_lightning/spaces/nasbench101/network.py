"""Networks of NAS-Bench-101's modules as the benchmark builds them (arXiv:1902.09635, section 2.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.spaces.cells.channels import concatenate
from nas_lightning.spaces.cells.drop_path import DropPath
from nas_lightning.spaces.cells.graph import Mixtures
from nas_lightning.spaces.nasbench101.modules import Module, vertex_channels
from nas_lightning.spaces.network import Backbone
from nas_lightning.spaces.ops import NeedsReLU, Norm, build_op
from nas_lightning.spaces.ops.vertices import conv_norm_relu

STACKS = 3


def vertex_op(name: str, channels: int, norm: Norm) -> nn.Module:
    """The operation of a vertex, with the ReLU before it where it needs one."""
    op = build_op(name, channels, 1, norm)
    return nn.Sequential(nn.ReLU(), op) if isinstance(op, NeedsReLU) else op


class ModuleCell(nn.Module):
    """x_j = op_j(P_j x_0 + Σ_i x_i[: channels of j]), out = P x_0 + concatenation (section 2.2).

    What comes from the input is projected by a 1×1 convolution, what comes from a wider vertex is cut off.

    Args:
        module: its vertices and edges.
        c_in: channels of the input.
        c_out: channels of the output.
        norm: of the operations.
    """

    def __init__(self, module: Module, c_in: int, c_out: int, norm: Norm) -> None:
        super().__init__()
        self.matrix, self.last = module.matrix, len(module.matrix) - 1
        self.channels = vertex_channels(module.matrix, c_in, c_out)
        self.ops = nn.ModuleList(
            vertex_op(name, channels, norm)
            for name, channels in zip(module.ops, self.channels[1:-1], strict=True)
        )
        self.projections = nn.ModuleDict(
            {
                str(vertex): conv_norm_relu(c_in, channels, 1, norm(channels))
                for vertex, channels in enumerate(self.channels)
                if vertex and module.matrix[0][vertex]
            }
        )
        self.drop_path = DropPath()

    def forward(self, x: Tensor) -> Tensor:
        nodes = [x]
        for vertex in range(1, self.last):
            channels = self.channels[vertex]
            inputs = [nodes[i][:, :channels] for i in range(1, vertex) if self.matrix[i][vertex]]
            nodes.append(self.drop_path(self.ops[vertex - 1](self._with_input(vertex, x, inputs))))
        feeding = [nodes[i] for i in range(1, self.last) if self.matrix[i][self.last]]
        return self._with_input(self.last, x, [concatenate(feeding)] if feeding else [])

    def _with_input(self, vertex: int, x: Tensor, inputs: list[Tensor]) -> Tensor:
        """The sum of what a vertex reads."""
        if self.matrix[0][vertex]:
            inputs = [*inputs, self.projections[str(vertex)](x)]
        return reduce(torch.add, inputs)  # a stack of them would not have the channels last


class ModuleBackbone(Backbone):
    """A 3×3 stem and three stacks of cells, of a stack's channels each.

    Args:
        module: of every cell.
        norm: of the network.
        in_channels: of the images.
        channels: of the first stack; they double from stack to stack.
        cells: of a stack.
    """

    def __init__(self, module: Module, norm: Norm, in_channels: int, channels: int, cells: int) -> None:
        super().__init__()
        widest = sum(row[-1] for row in module.matrix[1:])
        if cells < 1 or channels < max(1, widest):
            expected = f"expected at least 1 cell and {max(1, widest)} channels"
            raise InputError(expected, got=f"cells={cells}, channels={channels}")
        self.stem = conv_norm_relu(in_channels, channels, 3, norm.outside_cells(channels))
        self.widths = [channels * 2**stack for stack in range(STACKS) for _ in range(cells)]
        before = [channels, *self.widths[:-1]]
        self.cells = nn.ModuleList(
            ModuleCell(module, a, b, norm) for a, b in zip(before, self.widths, strict=True)
        )
        self.per_stack = cells
        self.auxiliary_at = 2 * cells - 1  # the end of the second stack

    def cells_outputs(self, x: Tensor, mixtures: Sequence[Mixtures] | None = None) -> Iterator[Tensor]:
        x = self.stem(x)
        for index, cell in enumerate(self.cells):
            if index and index % self.per_stack == 0:
                x = F.max_pool2d(x, 2, ceil_mode=True)
            x = cell(x)
            yield x
