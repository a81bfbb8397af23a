"""Convolutions that know θᵀ ∂S/∂θ of a function S of gradients, which is what GraSP asks of Hessians.

A convolution z = θ ∗ x is linear in both, and its backward pass from d = ∂L/∂z is g_x = θᵀd, g_θ = x ⋆ d.
With v = ∂S/∂g_x, u = ∂S/∂g_θ and b = ∂S/∂z, the pass through that pass is

    ∂S/∂d = θ ∗ v + u ∗ x        ∂S/∂x = uᵀd + θᵀb        ∂S/∂θ = v ⋆ d + x ⋆ b
    θᵀ ∂S/∂θ = ⟨v, θᵀd⟩ + ⟨θ ∗ x, b⟩ = ⟨v, g_x⟩ + ⟨z, b⟩

The last line needs neither of the two convolutions of ∂S/∂θ, of which PyTorch computes the first with
kernels as large as the maps. It is the gradient of a factor of θ, which is 1 and is not multiplied with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.modules.utils import _pair

from nas_lightning.metrics.passes.norms import is_recorded_plainly


class Asked(Enum):
    """What a backward pass is for; autograd does not tell its functions."""

    GRADIENTS = auto()  # of inputs and weights
    INPUTS = auto()  # of inputs alone
    PRODUCTS = auto()  # of inputs, and θᵀ ∂S/∂θ in place of the weights'


class Convolutions:
    """Stands in for `F.conv2d` in a forward pass, where it reads one of the weights.

    Args:
        weights: whose products are going to be asked for.

    >>> x, weight = torch.ones(1, 1, 3, 3), torch.full((1, 1, 2, 2), 2.0, requires_grad=True)
    >>> convolutions = Convolutions([weight])
    >>> loss = (convolutions(x, weight) ** 2).sum() / 2
    >>> (g,) = torch.autograd.grad(loss, weight, create_graph=True)
    >>> with convolutions.asking(Asked.PRODUCTS):  # g = 32, H = 4 of any two entries
    ...     torch.autograd.grad((g**2).sum() / 2, convolutions.factors)
    (tensor(4096.),)
    """

    def __init__(self, weights: Collection[Tensor]) -> None:
        self._weights = {id(weight) for weight in weights}
        self.factors: list[Tensor] = []
        self.asked = Asked.GRADIENTS

    @contextmanager
    def asking(self, asked: Asked) -> Iterator[None]:
        """Backward passes within are for this."""
        self.asked, before = asked, self.asked
        try:
            yield
        finally:
            self.asked = before

    def __call__(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> Tensor:
        plain = input.dim() == 4 and not isinstance(padding, str) and is_recorded_plainly(input)
        if id(weight) not in self._weights or not plain:
            return F.conv2d(input, weight, bias, stride, padding, dilation, groups)
        factor = weight.new_ones((), requires_grad=True)
        self.factors.append(factor)
        geometry = _pair(stride), _pair(padding), _pair(dilation), False, (0, 0), groups
        z = _Convolution.apply(input, weight, factor, geometry, self)
        return z if bias is None else z + bias.view(1, -1, 1, 1)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, factor: Tensor, geometry: Any, mine: Convolutions
    ) -> Tensor:
        z = torch.ops.aten.convolution(x, weight, None, *geometry)
        ctx.save_for_backward(x, weight)
        ctx.geometry, ctx.mine, ctx.factor = geometry, mine, factor
        ctx.z, ctx.version = z.detach(), z._version
        return z

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        if torch.is_grad_enabled():  # which is differentiated again
            wanted = ctx.needs_input_grad[:2]
            g_x, g_weight = _Gradients.apply(d, x, weight, ctx.factor, ctx.geometry, ctx.mine, wanted)
            return g_x, g_weight, None, None, None
        asked = ctx.mine.asked
        wanted = ctx.needs_input_grad[0], ctx.needs_input_grad[1] and asked is Asked.GRADIENTS
        product = (_output(ctx, x, weight) * d).sum() if asked is Asked.PRODUCTS else None
        return *_gradients(d, x, weight, ctx.geometry, wanted), product, None, None


def _output(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
    """θ ∗ x, computed again where somebody changed it in place."""
    if ctx.z._version == ctx.version:
        return ctx.z
    return torch.ops.aten.convolution(x, weight, None, *ctx.geometry)


class _Gradients(torch.autograd.Function):
    """g_x and g_θ of the output's gradient d."""

    @staticmethod
    def forward(
        ctx: Any,
        d: Tensor,
        x: Tensor,
        weight: Tensor,
        factor: Tensor,
        geometry: Any,
        mine: Convolutions,
        wanted: Any,
    ) -> tuple[Tensor | None, Tensor | None]:
        ctx.set_materialize_grads(False)
        g_x, g_weight = _gradients(d, x, weight, geometry, wanted)
        ctx.save_for_backward(d, x, weight, g_x)
        ctx.geometry, ctx.mine = geometry, mine
        return g_x, g_weight

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, v: Tensor | None, u: Tensor | None) -> tuple[Tensor | None, ...]:
        d, x, weight, g_x = ctx.saved_tensors
        of_d = of_x = of_weight = product = None
        if v is not None:
            of_d = torch.ops.aten.convolution(v, weight, None, *ctx.geometry)
            if ctx.mine.asked is Asked.PRODUCTS:
                product = (v * g_x).sum()
            elif ctx.mine.asked is Asked.GRADIENTS:
                _, of_weight = _gradients(d, v, weight, ctx.geometry, (False, True))
        if u is not None:
            along = torch.ops.aten.convolution(x, u, None, *ctx.geometry)
            of_d = along if of_d is None else of_d.add_(along)
            of_x, _ = _gradients(d, x, u, ctx.geometry, (ctx.needs_input_grad[1], False))
        return of_d, of_x, of_weight, product, None, None, None


def _gradients(
    d: Tensor, x: Tensor, weight: Tensor, geometry: Any, wanted: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """θᵀd and x ⋆ d, where they are wanted."""
    if not any(wanted):
        return None, None
    g_x, g_weight, _ = torch.ops.aten.convolution_backward(d, x, weight, None, *geometry, (*wanted, False))
    return g_x, g_weight
