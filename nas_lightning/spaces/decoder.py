"""The head of dense tasks: from the maps of cells to an output for each pixel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Decoder(nn.Module):
    """A feature pyramid with bilinear upsampling (Lin et al. 2017, arXiv:1612.03144, section 3).

    The last map of each width passes a 1×1 convolution; the results are added from the coarsest to the finest
    and enlarged to the image. The norms have no running statistics, as supernets require.

    Args:
        widths: output channels of each cell.
        outputs: of a pixel.
        channels: of the pyramid's maps.

    >>> maps = [torch.zeros(2, 8, 16, 16), torch.zeros(2, 16, 8, 8)]
    >>> Decoder([8, 16], outputs=3)(maps, (32, 32)).shape
    torch.Size([2, 3, 32, 32])
    """

    def __init__(self, widths: Sequence[int], outputs: int, channels: int = 32) -> None:
        super().__init__()
        pairs = zip(widths, [*widths[1:], None], strict=True)
        self.ends = [cell for cell, (width, following) in enumerate(pairs) if width != following]
        self.lateral = nn.ModuleList(
            nn.Sequential(nn.Conv2d(widths[cell], channels, 1, bias=False), nn.GroupNorm(1, channels))
            for cell in self.ends
        )
        self.classifier = nn.Conv2d(channels, outputs, 3, padding=1)
        self.out_features = outputs

    def forward(self, maps: Sequence[Tensor], size: Sequence[int]) -> Tensor:
        """Map the outputs of all cells to (b, outputs, *size)."""
        sums: Tensor | None = None
        for cell, layer in reversed(list(zip(self.ends, self.lateral, strict=True))):
            x = layer(maps[cell])
            sums = x if sums is None else x + _enlarge(sums, x.shape[-2:])
        assert sums is not None, "there is a cell"
        return _enlarge(self.classifier(F.relu(sums)), size)


def make_dense(module: Any) -> None:
    """Replace the head of a network or supernet by a decoder with an output for each pixel."""
    if isinstance(module.head, Decoder):
        return
    like = next(module.parameters())
    module.head = Decoder(module.backbone.widths, module.head.out_features).to(like)
    module.auxiliary = None


def _enlarge(x: Tensor, size: Sequence[int] | torch.Size) -> Tensor:
    if tuple(x.shape[-2:]) == tuple(size):
        return x
    return F.interpolate(x, size=tuple(size), mode="bilinear", align_corners=False)
