"""DARTS' supernet as it is usually written: every operation of every edge, each with its own ReLU, in NCHW.

It exists to be compared with: `from_supernet` copies the parameters of ours, so that both must give the same.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nas_lightning.spaces.darts import DartsBackbone, DartsCell
from nas_lightning.spaces.depthwise import DepthwiseConv2d
from nas_lightning.spaces.operations import NONE, SEARCH_NORM, NeedsReLU, build_op
from nas_lightning.spaces.supernet import Supernet


class MixedOp(nn.Module):
    """Σ_o w_o · o(x), every operation computed."""

    def __init__(self, ops: list[str], channels: int, stride: int) -> None:
        super().__init__()
        self.ops = nn.ModuleList(_op(name, channels, stride) for name in ops)

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        return sum(w * op(x) for w, op in zip(weights, self.ops, strict=True))


class Zero(nn.Module):
    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, :: self.stride, :: self.stride].mul(0.0)


def _op(name: str, channels: int, stride: int) -> nn.Module:
    if name == NONE:
        return Zero(stride)
    op = with_plain_convolutions(build_op(name, channels, stride, SEARCH_NORM))
    return nn.Sequential(nn.ReLU(), op) if isinstance(op, NeedsReLU) else op


def with_plain_convolutions(network: nn.Module) -> nn.Module:
    """The network, whose depthwise convolutions have torch's own gradients from now on."""
    for parent in list(network.modules()):
        for key, layer in parent.named_children():
            if isinstance(layer, DepthwiseConv2d):
                setattr(parent, key, _plain(layer))
    return network


def _plain(layer: DepthwiseConv2d) -> nn.Conv2d:
    size, dilation, channels = layer.kernel_size[0], layer.dilation[0], layer.in_channels
    padding = dilation * (size // 2)
    plain = nn.Conv2d(channels, channels, size, 1, padding, dilation, groups=channels, bias=False)
    plain.weight = layer.weight
    return plain


class PlainCell(nn.Module):
    """One cell, edge by edge."""

    def __init__(self, cell: DartsCell, edges, ops: tuple[str, ...]) -> None:
        super().__init__()
        self.pre = nn.ModuleList([nn.Sequential(nn.ReLU(), cell.pre0), nn.Sequential(nn.ReLU(), cell.pre1)])
        graph = cell.graph
        channels = cell.pre1[0].out_channels
        self.edges, self.output = list(edges), cell.output
        self.mixed = nn.ModuleList(MixedOp(list(ops), channels, graph.strides[source]) for source, _ in edges)
        for mixed, (source, target) in zip(self.mixed, edges, strict=True):
            for name, op in zip(ops, mixed.ops, strict=True):
                key = f"{source}_{target}_{name}"
                inner = op[-1] if isinstance(op, nn.Sequential) and isinstance(op[0], nn.ReLU) else op
                if key in graph.ops:
                    inner.load_state_dict(graph.ops[key].state_dict())

    def forward(self, s0: Tensor, s1: Tensor, weights: Tensor) -> Tensor:
        states = [self.pre[0](s0), self.pre[1](s1)]
        for target in range(2, 1 + max(t for _, t in self.edges)):
            rows = [row for row, (_, t) in enumerate(self.edges) if t == target]
            states.append(sum(self.mixed[row](states[self.edges[row][0]], weights[row]) for row in rows))
        rows = [row for row, (_, t) in enumerate(self.edges) if t == len(states)]
        states.append(sum(self.mixed[row](states[self.edges[row][0]], weights[row]) for row in rows))
        return torch.cat([states[node] for node in self.output], dim=1)


class PlainSupernet(nn.Module):
    """The same function as `Supernet` on a `DartsBackbone`."""

    def __init__(self, supernet: Supernet, edges, ops: tuple[str, ...]) -> None:
        super().__init__()
        backbone = supernet.backbone
        assert isinstance(backbone, DartsBackbone)
        self.stem, self.head, self.kinds = backbone.stem, supernet.head, backbone.kinds
        self.cells = nn.ModuleList(PlainCell(cell, edges, ops) for cell in backbone.cells)
        self.to(memory_format=torch.contiguous_format)

    def forward(self, x: Tensor, weights) -> Tensor:
        s0 = s1 = self.stem[0](x.contiguous())
        for kind, cell in zip(self.kinds, self.cells, strict=True):
            s0, s1 = s1, cell(s0, s1, weights[kind])
        return self.head(s1.mean(dim=(2, 3)))
