"""The supernet: all candidates of a space at once, weighted by an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nas_lightning.spaces.decoder import Decoder
from nas_lightning.spaces.graph import Mixture, Mixtures
from nas_lightning.spaces.network import Backbone, channels_last, check_outputs, decode, list_last

Weights = Mapping[str, Tensor]
"""One matrix of (edges, ops) per group."""
Active = Mapping[str, Tensor]
"""One boolean matrix of (edges, ops) per group."""


class Supernet(nn.Module):
    """logits = f(x; weights): stores the operations' parameters and no architecture parameters.

    An operation whose weight is zero and needs no gradient is not computed, so a sampled path has the cost of
    a single network. A strategy whose sampled weights need gradients passes as `active` which operations to
    compute; the others receive no gradient.

    Args:
        backbone: from images and weights to features: (b, c, h, w) → (b, widths[-1]).
        num_classes: of the data set.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=3, num_classes=10, channels=8, cells=1)
    >>> weights = {"cell": torch.full(space.groups["cell"].shape, 0.2)}
    >>> supernet(torch.zeros(2, 3, 16, 16), weights).shape
    torch.Size([2, 10])
    """

    def __init__(self, backbone: Backbone, num_classes: int) -> None:
        super().__init__()
        check_outputs(num_classes)
        self.backbone = backbone
        self.head: Any = nn.Linear(backbone.widths[-1], num_classes, bias=backbone.head_bias)
        self.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor, weights: Weights, active: Active | None = None) -> Tensor:
        """(b, c, h, w) → (b, classes)."""
        return self._classify(x, [mix_groups(weights, active)] * len(self.backbone.widths))

    def by_cell(self, x: Tensor, cells: Sequence[Weights], active: Active | None = None) -> Tensor:
        """Return the logits for different weights in each cell."""
        return self._classify(x, [mix_groups(weights, active) for weights in cells])

    def _classify(self, x: Tensor, mixtures: Sequence[Mixtures]) -> Tensor:
        maps = self.backbone.cells_outputs(channels_last(x), mixtures)
        if isinstance(self.head, Decoder):
            return decode(self.head, self.backbone, maps, x)
        features = list_last(maps)
        return self.head(self.backbone.final(features).mean(dim=(2, 3)))


def mix_groups(weights: Weights, active: Active | None = None) -> Mixtures:
    """Return the mixture of each group."""
    return {
        name: mixture(matrix, None if active is None else active[name]) for name, matrix in weights.items()
    }


def mixture(weights: Tensor, active: Tensor | None = None) -> Mixture:
    """Return which operations of a group to compute, with which weights: (edges, ops) → lists."""
    if active is None:
        active = torch.ones_like(weights, dtype=torch.bool) if weights.requires_grad else weights != 0
    if not weights.requires_grad and bool((weights[active] == 1).all()):
        return Mixture(None, active.tolist())
    rows = [list(row.unbind()) for row in weights.unbind()]
    return Mixture(rows, active.tolist())
