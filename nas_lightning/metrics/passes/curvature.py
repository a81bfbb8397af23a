"""GraSP's θᵀHg: a backward pass through the backward pass, in less than PyTorch's own takes for Hg."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from nas_lightning.errors import InputError
from nas_lightning.metrics.passes.calls import nodes_of
from nas_lightning.metrics.passes.convolutions import Asked, Convolutions
from nas_lightning.metrics.passes.norms import is_recorded_plainly, normalise
from nas_lightning.metrics.passes.notices import TWICE


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
            F.batch_norm: normalise,
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
