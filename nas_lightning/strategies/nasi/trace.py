"""t(A) = ‖b⁻¹ Σ_x ∇_θ L_x‖², for a kernel's trace (NASI, arXiv:2109.00817, equation 12), and its slope."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nas_lightning.metrics.passes.initialise import LAYERS
from nas_lightning.training.gradients import average, gradients


def trace_and_direction(loss: Tensor, parameters: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """t = ‖ḡ‖² and 2⟨ḡ, g⟩: g is the gradient of this process' loss, ḡ its mean over processes.

    The mean over processes of ∇_α 2⟨ḡ, g⟩, with ḡ held fixed, is ∇_α ‖ḡ‖².
    """
    found = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
    g = [gradient for gradient in found if gradient is not None]
    mean = [gradient.detach().clone() for gradient in g]
    average(mean)
    products = [(m * gradient).sum() for m, gradient in zip(mean, g, strict=True)]
    return squared_norm(mean), 2 * torch.stack(products).sum()


def squared_norm(tensors: Sequence[Tensor]) -> Tensor:
    """Σ ‖·‖²."""
    return torch.stack([tensor.square().sum() for tensor in tensors]).sum()


def parameters_without_biases(network: nn.Module) -> list[nn.Parameter]:
    """θ: what is trained later, without the biases of linear layers and convolutions."""
    return [
        parameter
        for module in network.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if not (name == "bias" and isinstance(module, LAYERS))
    ]


def trace(loss: Tensor, parameters: Sequence[nn.Parameter]) -> Tensor:
    """t = ‖ḡ‖² alone."""
    return squared_norm([gradient for gradient in gradients(loss, parameters) if gradient is not None])
