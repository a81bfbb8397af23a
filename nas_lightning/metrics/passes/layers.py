"""Per-sample gradients of a layer's parameters, from the layer's input and the gradient of its output.

For one call of a layer z = layer(x; θ) and the cotangents B = ∂f/∂z, sample i's share of the gradient is
G_i = B_iᵀ · ∂z_i/∂θ: what reaches the parameters through sample i. The shares of a batch add up to ∂f/∂θ.
A new type of layer is one function here and one line in `RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_weight

Rule = Callable[[nn.Module, Tensor, Tensor], Iterator[Tensor]]
"""(layer, input, gradient of the output) → one row per sample, in blocks of columns: each (m, columns)."""

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)

_BLOCK = 2**23  # entries of a block: what bounds the memory for the widest layers


def positions(x: Tensor) -> Tensor:
    """(m, …, features) → (m, positions, features)."""
    return x.reshape(len(x), -1, x.shape[-1])


def _linear_weight(layer: nn.Module, x: Tensor, dz: Tensor) -> Iterator[Tensor]:
    # G_i = Σ_t B_it A_itᵀ
    yield torch.bmm(positions(dz).transpose(1, 2), positions(x)).flatten(1)


def _linear_bias(layer: nn.Module, x: Tensor, dz: Tensor) -> Iterator[Tensor]:
    yield positions(dz).sum(dim=1)


def _conv2d_weight(layer: nn.Module, x: Tensor, dz: Tensor) -> Iterator[Tensor]:
    # A batch of m convolutions is one convolution whose groups are the samples: the gradient of its weight
    # holds every sample's, for the price of the batch's.
    assert isinstance(layer, nn.Conv2d)
    m, groups, padding = len(x), len(x) * layer.groups, layer.padding
    if isinstance(padding, str) or layer.padding_mode != "zeros":
        x, padding = _pad(layer, x), (0, 0)
    x = x.reshape(1, -1, *x.shape[2:])  # (1, m·c, h, w)
    channels = layer.out_channels
    if layer.groups == 1:  # a group's channels stay together
        channels = max(1, _BLOCK // (m * layer.weight[0].numel()))
    for block in dz.split(channels, dim=1):
        shape = torch.Size((m * block.shape[1], *layer.weight.shape[1:]))
        block = block.reshape(1, -1, *block.shape[2:])
        gradient = conv2d_weight(x, shape, block, layer.stride, padding, layer.dilation, groups)
        yield gradient.reshape(m, -1)


def _pad(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """The input with the border that the layer's padding mode puts round it."""
    border: list[int] = []
    for axis in (1, 0):  # F.pad starts with the last dimension
        if layer.padding == "same":
            total = layer.dilation[axis] * (layer.kernel_size[axis] - 1)
            border += [total // 2, total - total // 2]
        else:
            side = 0 if isinstance(layer.padding, str) else layer.padding[axis]
            border += [side, side]
    return F.pad(x, border, mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode)


def _conv2d_bias(layer: nn.Module, x: Tensor, dz: Tensor) -> Iterator[Tensor]:
    yield dz.sum(dim=(2, 3))


def _norm_weight(layer: nn.Module, x: Tensor, dz: Tensor) -> Iterator[Tensor]:
    # G_i = Σ_t B_it ⊙ x̂_it, x̂ the normalised input
    assert isinstance(layer, BATCH_NORMS)
    batch = layer.training or layer.running_mean is None
    statistics = (None, None) if batch else (layer.running_mean, layer.running_var)
    normalised = F.batch_norm(x, *statistics, training=batch, eps=layer.eps)
    yield (dz * normalised).flatten(2).sum(dim=2) if dz.dim() > 2 else dz * normalised


def _norm_bias(layer: nn.Module, x: Tensor, dz: Tensor) -> Iterator[Tensor]:
    yield dz.flatten(2).sum(dim=2) if dz.dim() > 2 else dz


_NORM: Mapping[str, Rule] = {"weight": _norm_weight, "bias": _norm_bias}
RULES: Mapping[type[nn.Module], Mapping[str, Rule]] = {
    nn.Linear: {"weight": _linear_weight, "bias": _linear_bias},
    nn.Conv2d: {"weight": _conv2d_weight, "bias": _conv2d_bias},
    nn.BatchNorm1d: _NORM,
    nn.BatchNorm2d: _NORM,
}
