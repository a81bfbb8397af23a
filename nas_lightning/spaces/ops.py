"""The operations of the papers' cells: name → factory(channels, stride, norm).

An operation that starts with a ReLU says so (`NeedsReLU`) and expects its input already rectified: the cell
rectifies a node once for all the edges that leave it. Names and layouts are those of DARTS (arXiv:1806.09055,
section 3.1.1), NASNet's wider kernels, and NAS-Bench-201 (arXiv:2001.00326, section 2.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.errors import InputError, near_match


@dataclass(frozen=True)
class Norm:
    """How the batch norms of a network behave.

    `affine` and `tracked` are torch's; `after_pool` adds one behind each pooling operation, which supernets
    need to keep the candidates of an edge on one scale and which derived networks leave out.
    """

    affine: bool = True
    tracked: bool = True
    after_pool: bool = False

    def __call__(self, channels: int) -> nn.BatchNorm2d:
        return nn.BatchNorm2d(channels, affine=self.affine, track_running_stats=self.tracked)

    def outside_cells(self, channels: int) -> nn.BatchNorm2d:
        """The norms of stems and heads, which every path has in common, keep their parameters."""
        return nn.BatchNorm2d(channels, track_running_stats=self.tracked)


TRAIN_NORM = Norm()
# Paths share a supernet's norms: without parameters or running statistics none can spoil another's.
SEARCH_NORM = Norm(affine=False, tracked=False, after_pool=True)


class NeedsReLU:
    """Marks a module that stands behind a ReLU and leaves it to its caller."""


class PreActivated(NeedsReLU, nn.Sequential):
    """Layers in a row, behind a ReLU."""


class Pick(nn.Module):
    """The pixels of every `stride`-th row and column, from the one numbered `first` on.

    A slice's gradient is laid out in the order of the dimensions, hence the channels are last when it is cut.

    >>> Pick(2, first=1)(torch.arange(16.0).view(1, 1, 4, 4)).flatten().tolist()
    [5.0, 7.0, 13.0, 15.0]
    """

    def __init__(self, stride: int, first: int = 0) -> None:
        super().__init__()
        self.pixels = slice(first, None, stride)

    def forward(self, x: Tensor) -> Tensor:
        return x.movedim(1, -1)[:, self.pixels, self.pixels].movedim(-1, 1)


class FactorizedReduce(NeedsReLU, nn.Module):
    """Halve the resolution with two 1×1 convolutions, one of them shifted by a pixel, to lose none.

    The pixels are picked before the convolutions, which then need no stride: with one, oneDNN's weight
    gradient of a channels-last 1×1 convolution of few channels writes out of bounds (oneDNN issue 6035).
    """

    def __init__(self, c_in: int, c_out: int, norm: Norm) -> None:
        super().__init__()
        self.even_pixels, self.odd_pixels = Pick(2), Pick(2, first=1)
        self.even = nn.Conv2d(c_in, c_out // 2, 1, bias=False)
        self.odd = nn.Conv2d(c_in, c_out - c_out // 2, 1, bias=False)
        self.norm = norm(c_out)

    def forward(self, x: Tensor) -> Tensor:  # (b, c_in, h, w) → (b, c_out, ⌈h/2⌉, ⌈w/2⌉)
        even, odd = self.even_pixels(x), self.odd_pixels(x)
        height, width = x.shape[-2:]
        if height % 2 or width % 2:  # an odd side has one even pixel more than odd ones
            odd = F.pad(odd, (0, width % 2, 0, height % 2))
        return self.norm(torch.cat([self.even(even), self.odd(odd)], dim=1))


class ReduceByPool(nn.Sequential):
    """Average pooling with a 1×1 convolution: the shortcut of NAS-Bench-201's residual block."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__(nn.AvgPool2d(2, ceil_mode=True), nn.Conv2d(c_in, c_out, 1, bias=False))


def conv_norm(c_in: int, c_out: int, kernel: int, stride: int, norm: Norm) -> PreActivated:
    """(ReLU,) convolution, batch norm."""
    if kernel == 1 and stride > 1:  # picks the pixels first, as `FactorizedReduce` does and for its reason
        return PreActivated(Pick(stride), nn.Conv2d(c_in, c_out, 1, bias=False), norm(c_out))
    conv = nn.Conv2d(c_in, c_out, kernel, stride=stride, padding=kernel // 2, bias=False)
    return PreActivated(conv, norm(c_out))


def _separable(channels: int, kernel: int, stride: int, dilation: int = 1) -> list[nn.Module]:
    if dilation == stride > 1:
        # Nothing is read of the pixels between. Without them there is no dilation, whose gradients together
        # with a stride take oneDNN ten to twenty times as long.
        return [Pick(stride), *_separable(channels, kernel, stride=1)]
    padding = dilation * (kernel // 2)
    depthwise = nn.Conv2d(
        channels, channels, kernel, stride, padding, dilation=dilation, groups=channels, bias=False
    )
    return [depthwise, nn.Conv2d(channels, channels, 1, bias=False)]


def _sep_conv(kernel: int) -> OpFactory:
    def build(c: int, stride: int, norm: Norm) -> nn.Module:
        first = [*_separable(c, kernel, stride), norm(c)]
        second = [*_separable(c, kernel, 1), norm(c)]
        return PreActivated(*first, nn.ReLU(), *second)

    return build


def _dil_conv(kernel: int) -> OpFactory:
    return lambda c, stride, norm: PreActivated(*_separable(c, kernel, stride, dilation=2), norm(c))


def _nor_conv(kernel: int) -> OpFactory:
    return lambda c, stride, norm: conv_norm(c, c, kernel, stride, norm)


def _pool(make: Callable[[int], nn.Module]) -> OpFactory:
    def build(c: int, stride: int, norm: Norm) -> nn.Module:
        return nn.Sequential(make(stride), norm(c)) if norm.after_pool else make(stride)

    return build


def _skip(c: int, stride: int, norm: Norm) -> nn.Module:
    return nn.Identity() if stride == 1 else FactorizedReduce(c, c, norm)


def _conv_7x1_1x7(c: int, stride: int, norm: Norm) -> nn.Module:
    return PreActivated(
        nn.Conv2d(c, c, (1, 7), stride=(1, stride), padding=(0, 3), bias=False),
        nn.Conv2d(c, c, (7, 1), stride=(stride, 1), padding=(3, 0), bias=False),
        norm(c),
    )


def weighted(op: nn.Module, x: Tensor, weight: Tensor) -> Tensor:
    """weight · op(x), for a scalar weight.

    A batch norm without a scale of its own, at the end of the operation, takes the weight as its scale. That
    saves a pass over the images, and the gradient of the weight needs no op(x) kept for it.

    >>> op = build_op("nor_conv_1x1", 2, 1, SEARCH_NORM)
    >>> x, weight = torch.randn(4, 2, 3, 3), torch.tensor(0.3)
    >>> torch.allclose(weighted(op, x, weight), 0.3 * op(x))
    True
    """
    if not isinstance(op, nn.Sequential):
        return op(x) * weight
    *layers, last = op
    if not isinstance(last, nn.BatchNorm2d) or last.affine or last.track_running_stats:
        return op(x) * weight
    for layer in layers:
        x = layer(x)
    # repeated, not expanded: torch's kernel reads the scale as if it were contiguous
    scale = weight.to(torch.promote_types(x.dtype, torch.float32)).repeat(last.num_features)
    return F.batch_norm(x, None, None, scale, training=True, eps=last.eps)


OpFactory = Callable[[int, int, Norm], nn.Module]

NONE = "none"  # contributes nothing, so it is never built
SKIP = "skip_connect"

OPS: dict[str, OpFactory] = {
    SKIP: _skip,
    "max_pool_3x3": _pool(lambda stride: nn.MaxPool2d(3, stride, padding=1)),
    "avg_pool_3x3": _pool(lambda stride: nn.AvgPool2d(3, stride, padding=1, count_include_pad=False)),
    "sep_conv_3x3": _sep_conv(3),
    "sep_conv_5x5": _sep_conv(5),
    "sep_conv_7x7": _sep_conv(7),
    "dil_conv_3x3": _dil_conv(3),
    "dil_conv_5x5": _dil_conv(5),
    "conv_7x1_1x7": _conv_7x1_1x7,
    "nor_conv_1x1": _nor_conv(1),
    "nor_conv_3x3": _nor_conv(3),
}


def build_op(name: str, channels: int, stride: int, norm: Norm) -> nn.Module:
    """The operation `name`; it keeps the number of channels and divides the resolution by `stride`."""
    if name not in OPS:
        raise InputError(f"expected an operation ({near_match(name, OPS)})", got=name)
    return OPS[name](channels, stride, norm)


@cache
def has_parameters(name: str) -> bool:
    """Whether an operation learns anything where it keeps the resolution.

    >>> [has_parameters(name) for name in ("sep_conv_3x3", "skip_connect", "max_pool_3x3", "none")]
    [True, False, False, False]
    """
    if name == NONE:
        return False
    with torch.device("meta"):  # draws no random numbers, which would depend on what was asked before
        return any(True for _ in build_op(name, 2, 1, Norm(affine=False)).parameters())
