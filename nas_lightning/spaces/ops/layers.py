"""What operations are made of."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.spaces.ops.depthwise import DepthwiseConv2d
from nas_lightning.spaces.ops.norm import Norm
from nas_lightning.spaces.ops.recomputation import is_bare, run_layers


class NeedsReLU:
    """Marks a module that stands behind a ReLU and leaves it to its caller.

    >>> layers = PreActivated(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
    >>> isinstance(layers, NeedsReLU), isinstance(nn.Identity(), NeedsReLU)
    (True, False)
    """


class PreActivated(NeedsReLU, nn.Sequential):
    """Layers in a row, behind a ReLU.

    >>> conv = PreActivated(nn.Conv2d(4, 8, 1), nn.BatchNorm2d(8))
    >>> conv(torch.rand(2, 4, 6, 6).relu()).shape
    torch.Size([2, 8, 6, 6])
    """

    def forward(self, x: Tensor) -> Tensor:
        return run_layers([*self], x)


class Pick(nn.Module):
    """The pixels of every `stride`-th row and column, from the one numbered `first` on.

    A slice's gradient is laid out in the order of the dimensions, hence the channels are last when it is cut.

    Args:
        stride: of rows and columns.
        first: the number of the first.

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

    Args:
        c_in: channels of the input.
        c_out: channels of the output.
        norm: behind the convolutions.

    >>> FactorizedReduce(4, 8, nn.BatchNorm2d)(torch.rand(2, 4, 6, 6)).shape
    torch.Size([2, 8, 3, 3])
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
    """Average pooling with a 1×1 convolution: the shortcut of NAS-Bench-201's residual block.

    Args:
        c_in: channels of the input.
        c_out: channels of the output.

    >>> ReduceByPool(4, 8)(torch.rand(2, 4, 6, 6)).shape
    torch.Size([2, 8, 3, 3])
    """

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__(nn.AvgPool2d(2, ceil_mode=True), nn.Conv2d(c_in, c_out, 1, bias=False))


def conv_norm(c_in: int, c_out: int, kernel: int, stride: int, norm: Norm) -> PreActivated:
    """(ReLU,) convolution, batch norm."""
    if kernel == 1 and stride > 1:  # picks the pixels first, as `FactorizedReduce` does and for its reason
        return PreActivated(Pick(stride), nn.Conv2d(c_in, c_out, 1, bias=False), norm(c_out))
    conv = nn.Conv2d(c_in, c_out, kernel, stride=stride, padding=kernel // 2, bias=False)
    return PreActivated(conv, norm(c_out))


def separable(channels: int, kernel: int, stride: int, dilation: int = 1) -> list[nn.Module]:
    """A depthwise convolution and a 1×1 one."""
    if dilation == stride > 1:
        # Nothing is read of the pixels between. Without them there is no dilation, whose gradients together
        # with a stride take oneDNN ten to twenty times as long.
        return [Pick(stride), *separable(channels, kernel, stride=1)]
    return [depthwise(channels, kernel, stride, dilation), nn.Conv2d(channels, channels, 1, bias=False)]


def depthwise(channels: int, kernel: int, stride: int, dilation: int) -> nn.Conv2d:
    """A convolution of each channel by itself."""
    if stride == 1 and (kernel == 5 or (kernel, dilation) == (3, 2)):
        return DepthwiseConv2d(channels, kernel, dilation)
    padding = dilation * (kernel // 2)
    return nn.Conv2d(
        channels, channels, kernel, stride, padding, dilation=dilation, groups=channels, bias=False
    )


def weighted(op: nn.Module, x: Tensor, weight: Tensor) -> Tensor:
    """weight · op(x), for a scalar weight.

    A batch norm without a scale of its own, at the end of the operation, takes the weight as its scale. That
    saves a pass over the images, and the gradient of the weight needs no op(x) kept for it.

    >>> op = conv_norm(2, 2, 1, 1, Norm(affine=False, tracked=False))
    >>> x, weight = torch.randn(4, 2, 3, 3), torch.tensor(0.3)
    >>> torch.allclose(weighted(op, x, weight), 0.3 * op(x))
    True
    """
    if not isinstance(op, nn.Sequential):
        return op(x) * weight
    last = op[-1]
    if not is_bare(last):
        return op(x) * weight
    # repeated, not expanded: torch's kernel reads the scale as if it were contiguous
    scale = weight.to(torch.promote_types(x.dtype, torch.float32)).repeat(last.num_features)
    return run_layers([*op], x, scale)
