"""Batch norms whose gradients are differentiated again at the price of another backward pass.

PyTorch differentiates a batch norm's backward pass as a formula of some thirty operations on whole maps,
which takes ten to twenty times as long as the norm. In closed form, with x̂ = (x − μ)/σ of a channel, d the
gradient of the output, and ⟨·⟩ the mean over the channel's n entries:

    g   = (d − ⟨d⟩ − x̂⟨d x̂⟩)/σ                                      the backward pass
    ∂⟨v, g⟩/∂d = (v − ⟨v⟩ − x̂⟨v x̂⟩)/σ                               the same of v, for it is symmetric
    ∂⟨v, g⟩/∂x = −(a x̂ + ⟨d x̂⟩(v − ⟨v⟩) + ⟨v x̂⟩(d − ⟨d⟩))/σ²,        a = ⟨v d⟩ − ⟨v⟩⟨d⟩ − 3⟨v x̂⟩⟨d x̂⟩
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class TwiceDifferentiable(TorchFunctionMode):
    """Batch norms of the forward passes within, modules or functions, have the closed form.

    >>> x = torch.tensor([[0.0], [1.0], [4.0]], dtype=torch.float64, requires_grad=True)
    >>> with TwiceDifferentiable():
    ...     y = torch.nn.BatchNorm1d(1).double()(x)
    >>> (g,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
    >>> torch.autograd.grad((g**2).sum(), x)[0].shape
    torch.Size([3, 1])
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return _normalise(*args, **kwargs) if func is F.batch_norm else func(*args, **kwargs)


def _normalise(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not training or not _is_plain(x):
        return F.batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps)
    normalised = _BatchNorm.apply(x, running_mean, running_var, momentum, eps)
    if weight is not None:
        normalised = normalised * _of_channels(weight, x)
    return normalised if bias is None else normalised + _of_channels(bias, x)


def _is_plain(x: Tensor) -> bool:
    """Whether it has a variance in each channel, and no mixed precision or transform that asks for more."""
    if x.dim() < 2 or x.numel() <= x.shape[1] or x.dtype not in {torch.float32, torch.float64}:
        return False
    return not (is_functorch_wrapped_tensor(x) or torch.is_autocast_enabled(x.device.type))


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mean: Tensor | None, variance: Tensor | None, momentum: float, eps: float
    ) -> Tensor:
        y, *statistics = torch.native_batch_norm(x, None, None, mean, variance, True, momentum, eps)
        ctx.save_for_backward(x, *statistics)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, ...]:
        return _Gradient.apply(d, *ctx.saved_tensors, ctx.eps), None, None, None, None


class _Gradient(torch.autograd.Function):
    """g of the output's gradient d."""

    @staticmethod
    def forward(ctx: Any, d: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, eps: float) -> Tensor:
        g, *sums = _projection(d, x, mean, inverse, eps)
        ctx.save_for_backward(d, x, mean, inverse, *sums)
        ctx.eps = eps
        return g

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, ...]:
        d, x, mean, inverse, d_x, d_1 = ctx.saved_tensors
        of_d, v_x, v_1 = _projection(v, x, mean, inverse, ctx.eps)
        n = x.numel() // x.shape[1]
        v_d = (v * d).sum((0, *range(2, x.dim())))
        d_x, d_1, v_x, v_1, v_d = (total / n for total in (d_x, d_1, v_x, v_1, v_d))
        a = v_d - v_1 * d_1 - 3 * v_x * d_x
        scale = -(inverse**2)
        of_x = (x - _of_channels(mean, x)).mul_(_of_channels(scale * a * inverse, x))
        of_x.addcmul_(v, _of_channels(scale * d_x, x)).addcmul_(d, _of_channels(scale * v_x, x))
        of_x.sub_(_of_channels(scale * (d_x * v_1 + v_x * d_1), x))
        return of_d, of_x, None, None, None


def _projection(d: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, eps: float) -> tuple[Tensor, ...]:
    """(d − ⟨d⟩ − x̂⟨d x̂⟩)/σ, n⟨d x̂⟩ and n⟨d⟩."""
    wanted = [True, True, True]
    return torch.ops.aten.native_batch_norm_backward(d, x, None, None, None, mean, inverse, True, eps, wanted)


def _of_channels(values: Tensor, x: Tensor) -> Tensor:
    """(c,) → (1, c, 1, …), as many dimensions as x."""
    return values.view(1, -1, *(1 for _ in x.shape[2:]))
