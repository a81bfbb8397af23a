"""VKDNW: how evenly a network can know its weights, by its Fisher information (arXiv:2502.04975)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes import Passes
from nas_lightning.tasks.multi_class import check_classes


@dataclass(frozen=True)
class Vkdnw(Metric):
    """−Σ_k λ̃_k log λ̃_k, λ̃ the nine deciles of the spectrum of F divided by their sum (Týbl & Neumann 2025).

    F = (1/m) Σ_i J_iᵀ (diag p_i − p_i p_iᵀ) J_i is the Fisher information of the classifier, p_i its
    probabilities and J_i the Jacobian of its logits. The public code takes one parameter of each tensor to
    have a small matrix. Here F is that of all parameters; its eigenvalues that can be positive, m (n − 1) for
    n classes, are those of a matrix between samples and logits, from n backward passes. The paper ranks by
    the entropy plus the number of layers, for which there is `layers`.

    >>> import torch
    >>> from torch import nn
    >>> layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()
    >>> network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    >>> batch = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])
    >>> 0 < Vkdnw()(network, batch).item() < 2.2  # log 9
    True
    """

    def compute(self, passes: Passes) -> Tensor:
        check_classes(passes.network, "vkdnw is of")
        return decile_entropy(fisher_spectrum(passes.kernel("all").matrix, passes.logits.detach()))


def fisher_spectrum(kernel: Tensor, logits: Tensor) -> Tensor:
    """The m (n − 1) largest eigenvalues of F, from J Jᵀ of all logits, (m·n, m·n), and the logits (m, n)."""
    m = len(logits)
    p = logits.double().softmax(dim=1)
    values, vectors = torch.linalg.eigh(torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1))  # (m, n, n)
    root = torch.block_diag(*(vectors * values.clamp(min=0).sqrt().unsqueeze(1)))
    spectrum = torch.linalg.eigvalsh(root.T @ kernel.to(root) @ root / m)
    return spectrum[m:].clamp(min=0)


def decile_entropy(values: Tensor) -> Tensor:
    """Of numbers ≥ 0; log 9 where all are the same.

    >>> decile_entropy(torch.ones(20)).exp()
    tensor(9.)
    """
    deciles = torch.quantile(values, torch.arange(1, 10, dtype=values.dtype) / 10)
    return torch.special.entr(deciles / deciles.sum()).sum()
