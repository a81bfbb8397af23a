"""GraSP's θᵀHg: a backward pass through the backward pass, in less than PyTorch's own takes for Hg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from nas_lightning.errors import InputError
from nas_lightning.metrics.passes.convolutions import Asked, Convolutions
from nas_lightning.metrics.passes.norms import normalise


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

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.batch_norm:
            return normalise(*args, **kwargs)
        return self._convolutions(*args, **kwargs) if func is F.conv2d else func(*args, **kwargs)

    def along_weights(self, gradients: Sequence[Tensor]) -> Tensor:
        """θᵀHg, () in float64, for the gradients of the parameters, with their graph; H: of the weights."""
        if not self._weights:
            raise InputError("expected a network with weights to train", got="biases and scales only")
        squares = [(g**2).sum() for g, weighty in zip(gradients, self._weighty, strict=True) if weighty]
        factors, half = self._convolutions.factors, torch.stack(squares).sum() / 2
        with self.asking(Asked.PRODUCTS):  # H g = ½ ∇‖g‖²
            found = torch.autograd.grad(
                half, [*factors, *self._weights], retain_graph=True, materialize_grads=True
            )
        products = [product.double() for product in found[: len(factors)]]
        # what is used otherwise than in such convolutions
        rest = zip(self._weights, found[len(factors) :], strict=True)
        products += [(weight.detach().double() * hg.double()).sum() for weight, hg in rest]
        return torch.stack(products).sum()
