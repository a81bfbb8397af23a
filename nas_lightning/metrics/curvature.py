"""The Hessian products of GraSP, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn import functional as F
from torch.nn.modules.utils import _pair
from torch.overrides import TorchFunctionMode

from nas_lightning.errors import InputError
from nas_lightning.metrics.recording import TWICE, nodes_of

# Batch norms whose gradients are differentiated again at the price of another backward pass.
#
# PyTorch differentiates a batch norm's backward pass as a formula of some thirty operations on whole maps,
# which takes ten to twenty times as long as the norm. In closed form, with y = γx̂ + β, x̂ = (x − μ)/σ of a
# channel, d the gradient of y, ⟨·⟩ the mean over the channel's n entries, and p(d) = (d − ⟨d⟩ − x̂⟨d x̂⟩)/σ,
# which is symmetric,
#
#     g_x = γ p(d),   g_γ = n⟨d x̂⟩,   g_β = n⟨d⟩
#
#     ∂⟨v, g_x⟩/∂d = γ p(v)          ∂⟨v, g_x⟩/∂γ = (n/σ) c,   c = ⟨v d⟩ − ⟨v⟩⟨d⟩ − ⟨v x̂⟩⟨d x̂⟩
#     ∂⟨v, g_x⟩/∂x = −(γ/σ²) ((c − 2⟨v x̂⟩⟨d x̂⟩) x̂ + ⟨d x̂⟩(v − ⟨v⟩) + ⟨v x̂⟩(d − ⟨d⟩))
#     ∂g_γ/∂d = x̂,   ∂g_γ/∂x = p(d),   ∂g_β/∂d = 1


def normalize(
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
            normalized = (x - _of_channels(mean, x)) * _of_channels(inverse, x)
            along_d = normalized * _of_channels(of_scale, x)
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


# Convolutions that know θᵀ ∂S/∂θ of a function S of gradients, which is what GraSP asks of Hessians.
#
# A convolution z = θ ∗ x is linear in both, and its backward pass from d = ∂L/∂z is g_x = θᵀd, g_θ = x ⋆ d.
# With v = ∂S/∂g_x, u = ∂S/∂g_θ and b = ∂S/∂z, the pass through that pass is
#
#     ∂S/∂d = θ ∗ v + u ∗ x        ∂S/∂x = uᵀd + θᵀb        ∂S/∂θ = v ⋆ d + x ⋆ b
#     θᵀ ∂S/∂θ = ⟨v, θᵀd⟩ + ⟨θ ∗ x, b⟩ = ⟨v, g_x⟩ + ⟨z, b⟩
#
# The last line needs neither of the two convolutions of ∂S/∂θ, of which PyTorch computes the first with
# kernels as large as the maps. It is the gradient of a factor of θ, which is 1 and is not multiplied with.


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


# GraSP's θᵀHg: a backward pass through the backward pass, in less than PyTorch's own takes for Hg.


class TwiceDifferentiable(TorchFunctionMode):
    """The forward passes within have a curvature along the weights, of all modules and functions.

    Weights are parameters of two dimensions and more.

    Args:
        parameters: that are trained.

    >>> x, weight = torch.eye(2), torch.tensor([[1.0, 2.0]], requires_grad=True)
    >>> with TwiceDifferentiable([weight]) as twice:
    ...     loss = (F.linear(x, weight) ** 2).sum() / 2
    >>> twice.along_weights(torch.autograd.grad(loss, weight, create_graph=True))  # H = I, g = θ
    tensor(5., dtype=torch.float64)
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        super().__init__()
        self._weighty = [parameter.dim() > 1 for parameter in parameters]
        self._weights = [parameter for parameter in parameters if parameter.dim() > 1]
        self._convolutions = Convolutions(self._weights)
        self.asking = self._convolutions.asking

        self._ours: dict[Any, Callable[..., Tensor]] = {
            F.batch_norm: normalize,
            F.conv2d: self._convolutions,
            F.hardsigmoid: hard_sigmoid,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._ours.get(func, func)(*args, **(kwargs or {}))

    def along_weights(self, gradients: Sequence[Tensor]) -> Tensor:
        """θᵀHg, () in float64, for the gradients of the parameters, with their graph; H: of the weights."""
        if not self._weights:
            raise InputError("expected a network with weights to train", got="biases and scales only")
        squares = [(g**2).sum() for g, weighty in zip(gradients, self._weighty, strict=True) if weighty]
        factors, half = tuple(self._convolutions.factors), torch.stack(squares).sum() / 2
        check_twice(half)
        with self.asking(Asked.PRODUCTS):  # H g = ½ ∇‖g‖²
            found = torch.autograd.grad(
                half, [*factors, *self._weights], retain_graph=True, materialize_grads=True
            )
        products = [product.double() for product in found[: len(factors)]]
        # what is used otherwise than in such convolutions
        rest = zip(self._weights, found[len(factors) :], strict=True)
        products += [(weight.detach().double() * hg.double()).sum() for weight, hg in rest]
        return torch.stack(products).sum()


def check_twice(value: Tensor) -> None:
    """Raise where the graph of a function of gradients ends in one that is marked once_differentiable.

    Autograd would leave out what lies behind it, and say nothing.
    """
    if any(node.name() == "torch::autograd::Error" for node in nodes_of(value)):
        raise InputError(TWICE, got="a function that is marked once_differentiable")


def hard_sigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x + 3, 0), 6) / 6, whose backward pass can be differentiated.

    >>> x = torch.tensor([-4.0, 0.0, 1.5], requires_grad=True)
    >>> (g,) = torch.autograd.grad((hard_sigmoid(x) ** 2).sum(), x, create_graph=True)
    >>> torch.autograd.grad((g**2).sum(), x)[0]  # g = (x + 3)/18 in between
    tensor([0.0000, 0.0185, 0.0278])
    """
    if not is_recorded_plainly(input):
        return F.hardsigmoid(input, inplace)
    output = _HardSigmoid.apply(input)
    return input.copy_(output) if inplace else output


class _HardSigmoid(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward((x > -3) & (x < 3))
        return torch.ops.aten.hardsigmoid(x)

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> Tensor:
        return d * ctx.saved_tensors[0] / 6
