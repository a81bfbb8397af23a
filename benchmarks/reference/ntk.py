"""The empirical kernel the way the published codes compute it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def full_jacobian(network: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
    """As the public code of HNAS: every layer's input and output gradient, unfolded, one large Jacobian.

    Convolutions and linear layers only, one backward pass of the sum of the true classes' logits. (m, m).
    """
    seen: list[tuple[nn.Module, Tensor, list[Tensor]]] = []

    def note(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        gradients: list[Tensor] = []
        seen.append((layer, args[0].detach(), gradients))
        output.register_hook(lambda gradient: gradients.append(gradient.detach()))

    layers = [layer for layer in network.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]
    handles = [layer.register_forward_hook(note) for layer in layers]
    logits = network(x)
    for handle in handles:
        handle.remove()
    network.zero_grad()
    logits[torch.arange(len(x)), labels].sum().backward()
    rows = [row for layer, a, gradients in seen if gradients for row in _sample_rows(layer, a, gradients[0])]
    jacobian = torch.cat(rows, dim=1)  # (m, parameters)
    return jacobian @ jacobian.T


def _sample_rows(layer: nn.Module, a: Tensor, b: Tensor) -> list[Tensor]:
    m = len(a)
    if isinstance(layer, nn.Linear):
        rows, bias = torch.einsum("ni,nj->nij", b, a), b
    else:
        a = F.unfold(a, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
        b = b.reshape(m, -1, a.shape[-1])
        groups = layer.groups
        rows = torch.einsum(
            "icjk,iclk->icjl", b.reshape(m, groups, -1, b.shape[-1]), a.reshape(m, groups, -1, a.shape[-1])
        )
        bias = b.sum(dim=2)
    return [rows.flatten(1)] if layer.bias is None else [rows.flatten(1), bias]


def row_by_row(network: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
    """As the public code of TE-NAS: a backward pass of the batch for every row. (m, m)."""
    logits = network(x)
    rows = []
    for logit in logits[torch.arange(len(x)), labels]:
        network.zero_grad()
        logit.backward(retain_graph=True)
        rows.append(torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None]))
    jacobian = torch.stack(rows)
    return jacobian @ jacobian.T


def condition(kernel: Tensor) -> tuple[float, float, float]:
    """Trace, κ and λ_min as the public code takes them: in the network's precision, as they come."""
    values = torch.linalg.eigvalsh(kernel)
    return float(values.sum()), float(values[-1] / values[0]), float(values[0])
