"""A derived network as it is usually written: each operation with a ReLU of its own, in NCHW."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.reference.darts_supernet import with_plain_convolutions
from nas_lightning.spaces import Network
from nas_lightning.spaces.darts import DartsCell
from nas_lightning.spaces.graph import CellGraph
from nas_lightning.spaces.network import list_last
from nas_lightning.spaces.operations import NeedsReLU


class PlainGraph(nn.Module):
    """x_j = Σ o(x_i), every operation by itself.

    Args:
        graph: a cell's, whose operations it takes.
    """

    def __init__(self, graph: CellGraph) -> None:
        super().__init__()
        self.ops, self.edge_ops = graph.ops, graph.edge_ops

    def forward(self, inputs: Sequence[Tensor], mixture: None) -> list[Tensor]:
        nodes = list(inputs)
        for items in self.edge_ops[len(inputs) :]:
            outputs = [self._output(item.key, nodes[item.source]) for item in items]
            nodes.append(sum(outputs) if outputs else torch.zeros_like(nodes[0]))
        return nodes

    def _output(self, key: str, x: Tensor) -> Tensor:
        op = self.ops[key]
        return op(F.relu(x)) if isinstance(op, NeedsReLU) else op(x)


class PlainCell(nn.Module):
    """Two projections, the nodes, and those that are put together.

    Args:
        cell: whose parts it takes.
    """

    def __init__(self, cell: DartsCell) -> None:
        super().__init__()
        self.pre0, self.pre1, self.output, self.graph = cell.pre0, cell.pre1, cell.output, cell.graph

    def forward(self, r0: Tensor, r1: Tensor, mixture: None) -> Tensor:
        nodes = self.graph([self.pre0(r0), self.pre1(r1)], mixture)
        return torch.cat([nodes[node] for node in self.output], dim=1)


class PlainNetwork(nn.Module):
    """A copy of a derived network of cells that computes the same in the way of published code.

    Args:
        network: whose cells are graphs.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = with_plain_convolutions(copy.deepcopy(network))
        for kind, plain in ((CellGraph, PlainGraph), (DartsCell, PlainCell)):
            for parent in list(self.network.modules()):
                for key, part in parent.named_children():
                    if isinstance(part, kind):
                        setattr(parent, key, plain(part))
        self.network.to(memory_format=torch.contiguous_format)

    def forward(self, x: Tensor) -> Tensor:
        """Logits; nothing makes the channels last."""
        return self._classify(list_last(self.network.backbone.cells_outputs(x.contiguous())))

    def forward_auxiliary(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the network and of its auxiliary head."""
        network = self.network
        maps = list(network.backbone.cells_outputs(x.contiguous()))
        return self._classify(maps[-1]), network.auxiliary(maps[network.backbone.auxiliary_at])

    def _classify(self, features: Tensor) -> Tensor:
        return self.network.head(self.network.backbone.final(features).mean(dim=(2, 3)))
