"""The second derivative that GraSP asks for: θᵀHg, H the Hessian of a loss and g its gradient in θ.

The closed form of batch norms is there for speed: without it, six metrics of a cell of NAS-Bench-201 together
take 1.3 to 1.4 times as long (`python -m benchmarks.zero_cost`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from nas_lightning.errors import InputError
from nas_lightning.metrics.recording import TWICE, nodes_of
from nas_lightning.utils.devices import double

# Batch norms whose backward pass is differentiated at the price of another one.
#
# PyTorch differentiates it as a formula of some thirty operations on whole maps. With x̂ = (x − μ)/σ of a
# channel, d the gradient of x̂, ⟨·⟩ the mean over the channel's n entries, and p(d) = (d − ⟨d⟩ − x̂⟨d x̂⟩)/σ,
# which is linear and symmetric,
#
#     g_x = p(d)        ∂⟨v, g_x⟩/∂d = p(v)
#     ∂⟨v, g_x⟩/∂x = −((c − 2⟨v x̂⟩⟨d x̂⟩) x̂ + ⟨d x̂⟩(v − ⟨v⟩) + ⟨v x̂⟩(d − ⟨d⟩))/σ²
#     c = ⟨v d⟩ − ⟨v⟩⟨d⟩ − ⟨v x̂⟩⟨d x̂⟩


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """`F.batch_norm`; by the batch's statistics with the second derivative above."""
    plain = (
        input.dim() > 1 and input.numel() > input.shape[1] and input.dtype in (torch.float32, torch.float64)
    )
    if not training or not plain:
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    normalized = _Normalize.apply(input, running_mean, running_var, momentum, eps)[0]
    scaled = normalized if weight is None else normalized * _per_channel(weight, input)
    return scaled if bias is None else scaled + _per_channel(bias, input)


class _Normalize(torch.autograd.Function):
    """x → x̂, μ, 1/σ; only the first is differentiated."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float, eps: float
    ) -> tuple[Tensor, ...]:
        return torch.native_batch_norm(x, None, None, running_mean, running_var, True, momentum, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(inputs[0], *output[1:])
        ctx.eps = inputs[-1]

    @staticmethod
    def backward(ctx: Any, d: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return _Project.apply(d, *ctx.saved_tensors, ctx.eps)[0], None, None, None, None


class _Project(torch.autograd.Function):
    """d, x → p(d), n⟨d x̂⟩, n⟨d⟩; only the first is differentiated."""

    generate_vmap_rule = True

    @staticmethod
    def forward(d: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, eps: float) -> tuple[Tensor, ...]:
        wanted = [True, True, True]
        return torch.ops.aten.native_batch_norm_backward(
            d, x, None, None, None, mean, inverse, True, eps, wanted
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs[:-1], *output[1:])
        ctx.eps = inputs[-1]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, v: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        d, x, mean, inverse, *sums = ctx.saved_tensors
        n = x.numel() // x.shape[1]
        of_d, *sums_of_v = _Project.forward(v, x, mean, inverse, ctx.eps)
        (d_x, d_1), (v_x, v_1) = ([total / n for total in each] for each in (sums, sums_of_v))
        c = (v * d).sum((0, *range(2, x.dim()))) / n - v_1 * d_1 - v_x * d_x
        slope = -(inverse**3) * (c - 2 * v_x * d_x)  # of x
        constant = inverse**2 * (d_x * v_1 + v_x * d_1) - slope * mean
        of_x = torch.addcmul(_per_channel(constant, x), x, _per_channel(slope, x))
        of_x.addcmul_(v, _per_channel(-(inverse**2) * d_x, x))
        return of_d, of_x.addcmul_(d, _per_channel(-(inverse**2) * v_x, x)), None, None, None


def _per_channel(values: Tensor, x: Tensor) -> Tensor:
    """(c,) → (1, c, 1, …), as many dimensions as x."""
    return values.view(1, -1, *(1 for _ in x.shape[2:]))


# GraSP's θᵀHg, where Hg = ½ ∇‖g‖².


class TwiceDifferentiable(TorchFunctionMode):
    """Within it, forward passes can be differentiated twice, those of batch norms quickly.

    Args:
        plain: leave batch norms to PyTorch.

    >>> x, weight = torch.eye(2), torch.tensor([[1.0, 2.0]], requires_grad=True)
    >>> with TwiceDifferentiable():
    ...     loss = (F.linear(x, weight) ** 2).sum() / 2
    >>> along_weights([weight], torch.autograd.grad(loss, weight, create_graph=True))  # H = I, g = θ
    tensor(5., dtype=torch.float64)
    """

    def __init__(self, *, plain: bool = False) -> None:
        super().__init__()
        self._replaced: dict[Any, Callable[..., Tensor]] = {F.hardsigmoid: hard_sigmoid}
        if not plain:
            self._replaced[F.batch_norm] = batch_norm

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._replaced.get(func, func)(*args, **(kwargs or {}))


def along_weights(parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    """Return θᵀHg, () in float64, over the weights: parameters of two dimensions and more.

    Args:
        parameters: that are trained.
        gradients: of the loss in each parameter, with their graph.
    """
    pairs = [(p, g) for p, g in zip(parameters, gradients, strict=True) if p.dim() > 1]
    if not pairs:
        raise InputError("The network must have weights to train", got="biases and scales only")
    weights = [p for p, _ in pairs]
    half = torch.stack([(g**2).sum() for _, g in pairs]).sum() / 2
    check_twice(half)
    products = torch.autograd.grad(half, weights, retain_graph=True, materialize_grads=True)
    terms = [(double(p.detach()) * double(hg)).sum() for p, hg in zip(weights, products, strict=True)]
    return torch.stack(terms).sum()


def check_twice(value: Tensor) -> None:
    """Raise where the graph of a function of gradients ends in one that is marked once_differentiable.

    Autograd would leave out what lies behind it, and say nothing.
    """
    if any(node.name() == "torch::autograd::Error" for node in nodes_of(value)):
        raise InputError(TWICE, got="a function that is marked once_differentiable")


def hard_sigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """`F.hardsigmoid`, min(max(x + 3, 0), 6) / 6, whose backward pass can be differentiated."""
    output = F.relu6(input + 3) / 6
    return input.copy_(output) if inplace else output
