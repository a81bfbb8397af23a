"""Layers in a row, of which large maps between a pointwise convolution and its norm are not kept.

The norm's backward pass needs z = W d, whose d the convolution keeps anyway. Where maps are larger than a
cache, z is a third of what a step of a supernet holds, and the product that computes it anew, to the bit, a
small part of its time. Only on a CPU, and for the norms of supernets, which have all candidates in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from nas_lightning.spaces.depthwise import is_transformed

LARGE = 2**19
"""Numbers in a map, from which on it is not kept."""
_keeping: ContextVar[bool] = ContextVar("keeping", default=False)


@contextmanager
def keep_all() -> Iterator[None]:
    """Where somebody else computes anew what a pass leaves."""
    token = _keeping.set(True)
    try:
        yield
    finally:
        _keeping.reset(token)


def run_layers(layers: Sequence[nn.Module], x: Tensor, scale: Tensor | None = None) -> Tensor:
    """The output of the last of them, a norm of which takes the scale.

    >>> run_layers([nn.Conv2d(2, 4, 1), nn.ReLU()], torch.zeros(1, 2, 3, 3)).shape
    torch.Size([1, 4, 3, 3])
    """
    before: nn.Module | None = None
    source = x
    for layer in layers:
        if is_bare(layer):
            with _recomputation(before, source, x):
                output = normalize(layer, x, scale if layer is layers[-1] else None)
        else:
            output = layer(x)
        before, source, x = layer, x, output
    return x


def is_bare(layer: nn.Module) -> TypeGuard[nn.BatchNorm2d]:
    """Whether it is a norm of a supernet: without scale and shift, and without running statistics."""
    return isinstance(layer, nn.BatchNorm2d) and not (layer.affine or layer.track_running_stats)


def normalize(norm: nn.BatchNorm2d, x: Tensor, scale: Tensor | None) -> Tensor:
    """A bare norm's output, times the scale."""
    if scale is None:
        return norm(x)
    return F.batch_norm(x, None, None, scale, training=True, eps=norm.eps)


class _Product(NamedTuple):
    """What z is computed from."""

    d: Tensor
    weight: Tensor


def _recomputation(layer: nn.Module | None, d: Tensor, z: Tensor) -> AbstractContextManager[object]:
    """While this lasts, `_Product` is kept in the place of z = layer(d)."""
    if z.numel() < LARGE or not _is_pointwise(layer) or _has_its_reasons(z):
        return nullcontext()
    assert isinstance(layer, nn.Conv2d)
    product = _Product(d.detach(), layer.weight.detach())
    place, shape = z.data_ptr(), z.shape  # z itself would be kept, as long as this function is

    def pack(saved: Tensor) -> Tensor | _Product:
        return product if (saved.data_ptr(), saved.shape) == (place, shape) else saved

    return saved_tensors_hooks(pack, _unpack)


def _unpack(packed: Tensor | _Product) -> Tensor:
    return F.conv2d(packed.d, packed.weight) if isinstance(packed, _Product) else packed


def _is_pointwise(layer: nn.Module | None) -> bool:
    """Whether nothing but W d comes out, whatever a user has hung on it."""
    return (
        type(layer) is nn.Conv2d
        and (layer.kernel_size, layer.stride, layer.padding) == ((1, 1), (1, 1), (0, 0))
        and (layer.groups, layer.bias) == (1, None)
        and not (layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer))
    )


def _has_its_reasons(z: Tensor) -> bool:
    """Whether z is left as it is."""
    return (
        z.device.type != "cpu"
        or not torch.is_grad_enabled()
        or _keeping.get()
        or torch.compiler.is_compiling()
        or is_transformed()
    )
