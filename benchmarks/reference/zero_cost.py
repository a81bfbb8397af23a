"""Six zero-cost metrics as the public code of arXiv:2101.08134 has them: each with passes of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Value = Callable[[nn.Module, Tensor, Tensor], Tensor]
LAYERS = (nn.Conv2d, nn.Linear)


def grad_norm(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Σ_l ‖∂L/∂θ_l‖ over all parameters."""
    F.cross_entropy(network(x), y).backward()
    return sum(p.grad.norm() for p in network.parameters() if p.grad is not None)


def snip(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Σ |θ ⊙ ∂L/∂θ|."""
    F.cross_entropy(network(x), y).backward()
    return sum((p * p.grad).abs().sum() for p in network.parameters() if p.grad is not None)


def grasp(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """|Σ θ ⊙ H g|, from a gradient and, in a second pass, one that is differentiated again."""
    weights = [layer.weight for layer in network.modules() if isinstance(layer, LAYERS)]
    first = torch.autograd.grad(F.cross_entropy(network(x), y), weights, allow_unused=True)
    second = torch.autograd.grad(
        F.cross_entropy(network(x), y), weights, create_graph=True, allow_unused=True
    )
    sum((a.detach() * b).sum() for a, b in zip(first, second, strict=True) if a is not None).backward()
    return sum((weight * weight.grad).sum() for weight in weights if weight.grad is not None).abs()


def fisher(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Σ_c ½ mean_i (Σ_hw a ∂L/∂a)² over the outputs of the layers."""
    values: list[Tensor] = []

    def note(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        output.register_hook(lambda gradient: values.append(_channel_saliency(output.detach() * gradient)))

    for layer in network.modules():
        if isinstance(layer, LAYERS):
            layer.register_forward_hook(note)
    F.cross_entropy(network(x), y).backward()
    return sum(values)


def _channel_saliency(products: Tensor) -> Tensor:
    if products.dim() == 4:
        products = products.sum(dim=(2, 3))
    return products.square().mean(dim=0).sum() / 2


def jacov(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """−Σ (ln(σ + k) + 1/(σ + k)) of the correlations of the rows of ∂Σf/∂x."""
    x = x.detach().clone().requires_grad_()
    logits = network(x)
    logits.backward(torch.ones_like(logits))
    values = torch.linalg.eigvalsh(torch.corrcoef(x.grad.flatten(1).double())) + 1e-5
    return -(values.log() + 1 / values).sum()


def synflow(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Σ θ ∂R/∂θ of the absolute weights for an input of ones, norms passed by, in float64."""
    network.double()
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.forward = lambda x: x
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.abs_()
    network(torch.ones_like(x[:1], dtype=torch.float64)).sum().backward()
    return sum((p * p.grad).sum() for p in network.parameters() if p.grad is not None)


VALUES: dict[str, Value] = {
    function.__name__: function for function in (grad_norm, snip, grasp, fisher, jacov, synflow)
}


def one_by_one(
    network: nn.Module, x: Tensor, y: Tensor, names: Iterable[str] = tuple(VALUES)
) -> dict[str, float]:
    """All six or those named, each of a copy of the network."""
    return {name: float(VALUES[name](copy.deepcopy(network), x, y).detach()) for name in names}
