"""Networks of DARTS' cells (Liu et al. 2019, arXiv:1806.09055, section 3.1), searched or derived."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import getitem
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.spaces.cells.channels import concatenate
from nas_lightning.spaces.cells.graph import Mixtures
from nas_lightning.spaces.network import Backbone
from nas_lightning.spaces.ops import FactorizedReduce, Norm, conv_norm

INPUTS = 2
Stem = Literal["cifar", "imagenet"]


class DartsCell(nn.Module):
    """Brings two rectified inputs to one width and resolution, then runs the graph (DARTS, section 3.1).

    Args:
        graph: from two inputs to all nodes.
        output: the nodes that are concatenated.
        norm: of the two projections.
        c_in: channels of the two inputs.
        c: channels of every node.
        after_reduction: whether the first input has twice the resolution of the second.
    """

    def __init__(
        self,
        graph: nn.Module,
        output: Sequence[int],
        norm: Norm,
        c_in: tuple[int, int],
        c: int,
        after_reduction: bool,
    ) -> None:
        super().__init__()
        self.output = list(output)
        self.pre0 = (
            FactorizedReduce(c_in[0], c, norm) if after_reduction else conv_norm(c_in[0], c, 1, 1, norm)
        )
        self.pre1 = conv_norm(c_in[1], c, 1, 1, norm)
        self.graph = graph

    def forward(self, r0: Tensor, r1: Tensor, mixture: Any) -> Tensor:
        nodes = self.graph([self.pre0(r0), self.pre1(r1)], mixture)
        return concatenate([nodes[node] for node in self.output])


class DartsBackbone(Backbone):
    """A stem and `cells` cells; those at one and two thirds halve the resolution and double the channels.

    Args:
        graph: the nodes of a cell of that kind and width: (inputs, mixture) → all nodes.
        outputs: the nodes that each kind of cell returns.
        norm: the batch norms.
        in_channels: of the images.
        channels: of the first cells.
        cells: their number.
        stem: `cifar` keeps the resolution, `imagenet` divides it by 8.
        stem_multiplier: channels of the cifar stem, in multiples of `channels`.
        stem_stride: of the cifar stem.
        pooled: both inputs of a reduction cell are max-pooled, instead of a stride in its edges.
        mixture_of: what a kind of cell computes, of all groups' mixtures: its own group's.

    """

    def __init__(
        self,
        graph: Callable[[str, int], nn.Module],
        outputs: Mapping[str, Sequence[int]],
        norm: Norm,
        in_channels: int,
        channels: int,
        cells: int,
        stem: Stem,
        stem_multiplier: int,
        stem_stride: int = 1,
        *,
        pooled: bool = False,
        mixture_of: Callable[[Mixtures, str], Any] = getitem,
    ) -> None:
        super().__init__()
        if cells < 1 or channels < 2:
            raise InputError(
                "expected at least 1 cell and 2 channels", got=f"cells={cells}, channels={channels}"
            )
        if stem == "imagenet":
            self.stem: nn.ModuleList = imagenet_stem(in_channels, channels, norm)
            width_before = width = channels
        elif stem == "cifar":
            width_before = width = channels * stem_multiplier
            conv = nn.Conv2d(in_channels, width, 3, stem_stride, padding=1, bias=False)
            self.stem = nn.ModuleList([nn.Sequential(conv, norm.outside_cells(width))])
        else:
            raise InputError("expected the stem 'cifar' or 'imagenet'", got=stem)
        self.auxiliary_second_norm = stem != "imagenet"
        self.auxiliary_at = 2 * cells // 3
        self.pooled, self.mixture_of = pooled, mixture_of
        self.widths, self.kinds = [], []
        self.cells = nn.ModuleList()
        after_reduction = stem == "imagenet"
        for index in range(cells):
            kind = "reduce" if index in (cells // 3, 2 * cells // 3) else "normal"
            if kind == "reduce":
                channels *= 2
            cell = DartsCell(
                graph(kind, channels), outputs[kind], norm, (width_before, width), channels, after_reduction
            )
            self.cells.append(cell)
            after_reduction = kind == "reduce" and not pooled
            width_before, width = width, len(outputs[kind]) * channels
            self.widths.append(width)
            self.kinds.append(kind)

    def cells_outputs(self, x: Tensor, mixtures: Sequence[Mixtures] | None = None) -> Iterator[Tensor]:
        state = self.stem[0](x)
        r0 = r1 = F.relu(state)  # once for the two cells that read it
        if len(self.stem) == 2:
            r1 = F.relu(self.stem[1](state))
        for index, (kind, cell) in enumerate(zip(self.kinds, self.cells, strict=True)):
            if index:
                r0, r1 = r1, F.relu(state)
            if self.pooled and kind == "reduce":
                r0, r1 = (F.max_pool2d(x, 2, ceil_mode=True) for x in (r0, r1))
            state = self.run(
                cell, r0, r1, None if mixtures is None else self.mixture_of(mixtures[index], kind)
            )
            yield state


def imagenet_stem(in_channels: int, channels: int, norm: Norm) -> nn.ModuleList:
    """Two steps that bring 224×224 to 56×56 and 28×28; the first two cell inputs (DARTS' public code)."""
    half = channels // 2
    first = nn.Sequential(
        nn.Conv2d(in_channels, half, 3, stride=2, padding=1, bias=False),
        norm.outside_cells(half),
        nn.ReLU(),
        nn.Conv2d(half, channels, 3, stride=2, padding=1, bias=False),
        norm.outside_cells(channels),
    )
    second = nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, stride=2, padding=1, bias=False),
        norm.outside_cells(channels),
    )
    return nn.ModuleList([first, second])
