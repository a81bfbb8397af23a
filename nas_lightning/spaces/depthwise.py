"""Depthwise convolutions of stride 1 with fast gradients on CPUs.

oneDNN's gradients of depthwise convolutions that are wider than 3 or dilated take about ten times as long as
the convolution itself. Here the gradient of the input is again a convolution, and that of the weight is
computed with narrow kernels without dilation: on the pixels of every second row and column, as channels.
This speeds up a supernet's weight step by 1.17 at a batch size of 16 and by 1.33 at 64 (space=darts,
`benchmarks/supernet_step.py`). Other devices, mixed precision, exports, `torch.func`, and passes without
gradients use torch's own implementation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_weight


class DepthwiseConv2d(nn.Conv2d):
    """Depthwise convolution of stride 1 that keeps the size of the images.

    Args:
        channels: of the input and the output.
        kernel: 3 or 5.
        dilation: 1 or 2.

    >>> DepthwiseConv2d(channels=4, kernel=5, dilation=2)(torch.zeros(2, 4, 7, 8)).shape
    torch.Size([2, 4, 7, 8])
    """

    def __init__(self, channels: int, kernel: int, dilation: int = 1) -> None:
        padding = dilation * (kernel // 2)
        super().__init__(
            channels, channels, kernel, padding=padding, dilation=dilation, groups=channels, bias=False
        )

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type == "cpu" and torch.is_grad_enabled() and not is_transformed():
            return DepthwiseConvolution.apply(x, self.weight, self.dilation[0])
        return super().forward(x)


def is_transformed() -> bool:
    """Return whether a pass runs in mixed precision, or `is_traced`."""
    return torch.is_autocast_enabled("cpu") or is_traced()


def is_traced() -> bool:
    """Return whether a pass must consist of torch's own operations: an export, a trace, or `torch.func`."""
    # torch has no public function that tells whether a transform of torch.func is active
    return (
        torch.compiler.is_exporting() or torch.jit.is_tracing() or torch._C._are_functorch_transforms_active()
    )


class DepthwiseConvolution(torch.autograd.Function):
    """z[y, u] = Σ_ij w[i, j] x[y + δ(i − r), u + δ(j − r)] in each channel; δ: dilation, r = ⌊k/2⌋."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, dilation: int) -> Tensor:
        # (n, c, h, w), (c, 1, k, k) → (n, c, h, w)
        ctx.save_for_backward(x, weight)
        ctx.dilation = dilation
        return _convolution(x, weight, dilation)

    @staticmethod
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        dx = dw = None
        if ctx.needs_input_grad[0]:
            # dx[y, u] = Σ_ij w[k−1−i, k−1−j] dz[y + δ(i − r), u + δ(j − r)]
            convolution = DepthwiseConvolution.apply if torch.is_grad_enabled() else _convolution
            dx = convolution(dz, weight.flip(2, 3), ctx.dilation)
        if ctx.needs_input_grad[1]:
            dw = weight_gradient(x, dz, weight.shape[-1], ctx.dilation)
        return dx, dw, None


def _convolution(x: Tensor, weight: Tensor, dilation: int) -> Tensor:
    padding = dilation * (weight.shape[-1] // 2)
    return F.conv2d(x, weight, padding=padding, dilation=dilation, groups=len(weight))


def weight_gradient(x: Tensor, dz: Tensor, kernel: int, dilation: int) -> Tensor:
    """dw[i, j] = Σ_nyu dz[y, u] x[y + δ(i − r), u + δ(j − r)]: (n, c, h, w) twice → (c, 1, k, k)."""
    channels, (height, width) = x.shape[1], x.shape[2:]
    columns = dilation if kernel == 3 else 2 * dilation
    right, below = -width % columns, -height % dilation
    if right or below:  # padding with zeros does not change the sums
        x, dz = F.pad(x, (0, right, 0, below)), F.pad(dz, (0, right, 0, below))
    dz = _phases(dz, dilation, columns)
    even = dw = _narrow(_phases(x, dilation, columns), dz, kernel, padding=1)
    if kernel == 5:
        # With the columns 2v + p of phase p ∈ {0, 1} as channels, an even j − r = 2a stays in its phase:
        # Σ_v dz_p[v] x_p[v + a], a ∈ {−1, 0, 1}. So does an odd one if x starts a column earlier.
        odd = _narrow(_phases(F.pad(x, (dilation, 3 * dilation)), dilation, columns), dz, kernel, padding=0)
        dw = torch.stack([even, odd], dim=-1).flatten(-2)[..., :kernel]
    return dw.unflatten(0, (columns, channels)).sum(dim=0)


def _phases(x: Tensor, rows: int, columns: int) -> Tensor:
    """Each phase of the rows as an image, each phase of the columns as a channel.

    (n, c, h, w) → (rows·n, columns·c, h / rows, w / columns)
    """
    n, c, h, w = x.shape
    x = x.permute(0, 2, 3, 1)  # the order in memory for channels-last: copied only for rows > 1
    if rows > 1:
        x = x.reshape(n, h // rows, rows, w // columns, columns * c).permute(2, 0, 1, 3, 4)
    return x.reshape(rows * n, h // rows, w // columns, columns * c).permute(0, 3, 1, 2)


def _narrow(x: Tensor, dz: Tensor, rows: int, padding: int) -> Tensor:
    """The gradient of a kernel of `rows` rows and three columns."""
    above, channels = rows // 2, x.shape[1]
    if x.shape[2] < rows:  # kernels that are higher than the images are slow as well
        x, above = F.pad(x, (0, 0, above, above)), 0
    return conv2d_weight(x, (channels, 1, rows, 3), dz, padding=(above, padding), groups=channels)
