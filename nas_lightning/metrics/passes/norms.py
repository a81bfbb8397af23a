"""Batch norms whose gradients are differentiated again at the price of another backward pass.

PyTorch differentiates a batch norm's backward pass as a formula of some thirty operations on whole maps,
which takes ten to twenty times as long as the norm. In closed form, with y = γx̂ + β, x̂ = (x − μ)/σ of a
channel, d the gradient of y, ⟨·⟩ the mean over the channel's n entries, and p(d) = (d − ⟨d⟩ − x̂⟨d x̂⟩)/σ,
which is symmetric,

    g_x = γ p(d),   g_γ = n⟨d x̂⟩,   g_β = n⟨d⟩

    ∂⟨v, g_x⟩/∂d = γ p(v)          ∂⟨v, g_x⟩/∂γ = (n/σ) c,   c = ⟨v d⟩ − ⟨v⟩⟨d⟩ − ⟨v x̂⟩⟨d x̂⟩
    ∂⟨v, g_x⟩/∂x = −(γ/σ²) ((c − 2⟨v x̂⟩⟨d x̂⟩) x̂ + ⟨d x̂⟩(v − ⟨v⟩) + ⟨v x̂⟩(d − ⟨d⟩))
    ∂g_γ/∂d = x̂,   ∂g_γ/∂x = p(d),   ∂g_β/∂d = 1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn import functional as F


def normalise(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not training or not _is_plain(input):
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    return _BatchNorm.apply(input, weight, bias, running_mean, running_var, momentum, eps)


def _is_plain(x: Tensor) -> bool:
    """Whether it has a variance in each channel, in a precision that the closed form is for."""
    if x.dim() < 2 or x.numel() <= x.shape[1] or x.dtype not in {torch.float32, torch.float64}:
        return False
    return is_recorded_plainly(x)


def is_recorded_plainly(x: Tensor) -> bool:
    """Whether autograd alone sees a pass: no transform, no mixed precision, no hooks on what is saved.

    Such hooks are a checkpoint's, which computes the pass anew where nobody stands in for its functions.
    """
    hooked = torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
    return not (hooked or is_functorch_wrapped_tensor(x) or torch.is_autocast_enabled(x.device.type))


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor | None,
        variance: Tensor | None,
        momentum: float,
        eps: float,
    ) -> Tensor:
        y, *statistics = torch.native_batch_norm(x, weight, bias, mean, variance, True, momentum, eps)
        ctx.save_for_backward(x, weight, *statistics)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, ...]:
        gradients = _Gradient.apply(d, *ctx.saved_tensors, ctx.eps)
        asked = zip(gradients, ctx.needs_input_grad[:3], strict=True)
        return *(gradient if is_asked else None for gradient, is_asked in asked), None, None, None, None


class _Gradient(torch.autograd.Function):
    """g_x, g_γ and g_β of the output's gradient d."""

    @staticmethod
    def forward(
        ctx: Any, d: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, inverse: Tensor, eps: float
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        g_x, *sums = _projection(d, x, weight, mean, inverse, eps)
        ctx.save_for_backward(d, x, weight, mean, inverse, *sums)
        ctx.eps = eps
        return g_x, *sums

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, v: Tensor | None, of_scale: Tensor | None, of_shift: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        d, x, weight, mean, inverse, *sums = ctx.saved_tensors
        of_d = of_x = of_weight = None
        if v is not None:
            of_d, *sums_of_v = _projection(v, x, weight, mean, inverse, ctx.eps)
            of_x, of_weight = _of_inputs(v, d, x, weight, mean, inverse, sums_of_v, sums)
        if of_scale is not None:
            normalised = (x - _of_channels(mean, x)) * _of_channels(inverse, x)
            along_d = normalised * _of_channels(of_scale, x)
            along_x = _projection(d, x, of_scale, mean, inverse, ctx.eps)[0]
            of_d, of_x = _sum(of_d, along_d), _sum(of_x, along_x)
        if of_shift is not None:
            of_d = _sum(of_d, _of_channels(of_shift, x).expand_as(x))
        return of_d, of_x, None if weight is None else of_weight, None, None, None


def _of_inputs(
    v: Tensor,
    d: Tensor,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    inverse: Tensor,
    sums_of_v: Sequence[Tensor],
    sums_of_d: Sequence[Tensor],
) -> tuple[Tensor, Tensor]:
    """∂⟨v, g_x⟩/∂x and ∂⟨v, g_x⟩/∂γ."""
    n = x.numel() // x.shape[1]
    v_d = (v * d).sum((0, *range(2, x.dim()))) / n
    (v_x, v_1), (d_x, d_1) = ([total / n for total in sums] for sums in (sums_of_v, sums_of_d))
    c = v_d - v_1 * d_1 - v_x * d_x
    scale = -(inverse**2) if weight is None else -(inverse**2) * weight
    slope = scale * inverse * (c - 2 * v_x * d_x)
    constant = -scale * (d_x * v_1 + v_x * d_1) - slope * mean
    of_x = torch.addcmul(_of_channels(constant, x), x, _of_channels(slope, x))
    of_x.addcmul_(v, _of_channels(scale * d_x, x)).addcmul_(d, _of_channels(scale * v_x, x))
    return of_x, n * inverse * c


def _projection(
    d: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, inverse: Tensor, eps: float
) -> tuple[Tensor, ...]:
    """γ p(d), n⟨d x̂⟩ and n⟨d⟩."""
    wanted = [True, True, True]
    return torch.ops.aten.native_batch_norm_backward(
        d, x, weight, None, None, mean, inverse, True, eps, wanted
    )


def _sum(total: Tensor | None, term: Tensor) -> Tensor:
    return term if total is None else total + term


def _of_channels(values: Tensor, x: Tensor) -> Tensor:
    """(c,) → (1, c, 1, …), as many dimensions as x."""
    return values.view(1, -1, *(1 for _ in x.shape[2:]))
