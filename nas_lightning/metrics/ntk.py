"""Metrics of the empirical neural tangent kernel and of the Fisher information."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.engine import Batch, Passes, kernel_diagonal
from nas_lightning.metrics.kernel import Kernel, Output
from nas_lightning.metrics.recording import Needs
from nas_lightning.tasks import check_classes
from nas_lightning.utils.devices import double

# Metrics of the empirical neural tangent kernel at initialization. `coupled` and `output` are explained in
# `nas_lightning.metrics.kernel`.


def ntk(
    network: nn.Module,
    batch: Batch,
    *,
    output: Output = "true_class",
    coupled: bool = False,
    batch_statistics: bool = True,
) -> Kernel:
    """Return Θ₀ = J Jᵀ of the trainable parameters on the batch; the network is unchanged.

    Args:
        network: any module from inputs to logits.
        batch: inputs (m, …) and labels (m,).
        output: f in J = ∂f/∂θ: `true_class`, `sum`, or `all`.
        coupled: differentiate through the batch statistics of the whole batch.
        batch_statistics: whether batch norms use the statistics of the batch.


    >>> import torch
    >>> network = nn.Linear(2, 3, bias=False)
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    >>> ntk(network, (x, torch.tensor([1, 1]))).matrix
    tensor([[1., 0.],
            [0., 4.]], dtype=torch.float64)
    """
    with Passes(network, batch, batch_statistics=batch_statistics) as passes:
        return passes.kernel(output, coupled)


@dataclass(frozen=True)
class KernelMetric(Metric):
    """Base of the metrics of Θ₀.

    Args:
        output: f in J = ∂f/∂θ: `true_class`, `sum`, or `all`.
        coupled: differentiate through the batch statistics of the whole batch.
    """

    output: Output = "true_class"
    coupled: bool = False


@dataclass(frozen=True)
class DiagonalMetric(KernelMetric):
    """Base of the metrics of Θ₀'s diagonal.

    Args:
        output: f in J = ∂f/∂θ: `true_class`, `sum`, or `all`.
        coupled: differentiate through the batch statistics of the whole batch.
    """

    def compute(self, passes: Passes) -> float:
        return self.from_diagonal(kernel_diagonal(passes, self.output, self.coupled), len(passes.x))

    @abstractmethod
    def from_diagonal(self, diagonal: Tensor, m: int) -> float:
        """Return the metric from the diagonal of the kernel of m samples."""


@dataclass(frozen=True)
class MatrixMetric(KernelMetric):
    """Base of the metrics that need the whole of Θ₀.

    Args:
        output: f in J = ∂f/∂θ: `true_class`, `sum`, or `all`.
        coupled: differentiate through the batch statistics of the whole batch.
    """

    needs: ClassVar[Needs] = Needs.KERNEL

    def compute(self, passes: Passes) -> float:
        return self.from_kernel(passes.kernel(self.output, self.coupled), len(passes.x))

    @abstractmethod
    def from_kernel(self, kernel: Kernel, m: int) -> float:
        """Return the metric from the kernel of m samples."""


@dataclass(frozen=True)
class NTKSqrtMeanDiagonal(DiagonalMetric):
    """√(‖Θ₀‖_tr / m), the square root of `NTKMeanDiagonal`: M_Trace (thesis, equation 7.4; arXiv:2109.00817).

    >>> import torch
    >>> network = nn.Linear(2, 2, bias=False)
    >>> batch = torch.diag(torch.tensor([2.0, 4.0])), torch.tensor([1, 1])
    >>> round(NTKSqrtMeanDiagonal()(network, batch).item() ** 2, 4)  # (4 + 16) / 2
    10.0
    """

    def from_diagonal(self, diagonal: Tensor, m: int) -> float:
        return math.sqrt(float(diagonal.sum()) / m)


@dataclass(frozen=True)
class NTKCondition(MatrixMetric):
    """κ = λ_max / λ_min (TE-NAS, arXiv:2102.11535; thesis, theorem 7.2); ∞ for a singular kernel.

    >>> import torch
    >>> network = nn.Linear(2, 2, bias=False)
    >>> batch = torch.diag(torch.tensor([2.0, 4.0])), torch.tensor([1, 1])
    >>> round(NTKCondition()(network, batch).item(), 4)  # 16 / 4
    4.0
    """

    larger_is_better: ClassVar[bool] = False

    def from_kernel(self, kernel: Kernel, m: int) -> float:
        return kernel.condition


@dataclass(frozen=True)
class NTKLambdaMin(MatrixMetric):
    """λ_min(Θ₀) (Zhu et al. 2022, arXiv:2209.07238); 0 for a singular kernel.

    >>> import torch
    >>> network = nn.Linear(2, 2, bias=False)
    >>> batch = torch.diag(torch.tensor([2.0, 4.0])), torch.tensor([1, 1])
    >>> round(NTKLambdaMin()(network, batch).item(), 4)
    4.0
    """

    def from_kernel(self, kernel: Kernel, m: int) -> float:
        return kernel.lambda_min


@dataclass(frozen=True)
class NTKMeanDiagonal(DiagonalMetric):
    """(1/m) Σ_i Θ_ii, an upper bound of λ_min: Eigen-NAS (Zhu et al. 2022, arXiv:2209.07238).

    >>> import torch
    >>> network = nn.Linear(2, 2, bias=False)
    >>> batch = torch.diag(torch.tensor([2.0, 4.0])), torch.tensor([1, 1])
    >>> round(NTKMeanDiagonal()(network, batch).item(), 4)  # (4 + 16) / 2
    10.0
    """

    def from_diagonal(self, diagonal: Tensor, m: int) -> float:
        return float(diagonal.mean())


@dataclass(frozen=True)
class NTKFrobenius(MatrixMetric):
    """‖Θ₀‖_F: KNAS (Xu et al. 2021, arXiv:2111.13293), in the form of Zhu et al. 2022.

    >>> import torch
    >>> network = nn.Linear(2, 2, bias=False)
    >>> batch = torch.diag(torch.tensor([2.0, 4.0])), torch.tensor([1, 1])
    >>> round(NTKFrobenius()(network, batch).item() ** 2, 6)  # 4² + 16²
    272.0
    """

    def from_kernel(self, kernel: Kernel, m: int) -> float:
        return kernel.frobenius


@dataclass(frozen=True)
class NTKMean(MatrixMetric):
    """√|m⁻² Σ_ij Θ_ij|, the norm of the mean row of J: KNAS (arXiv:2111.13293; thesis, equation D.11).

    >>> import torch
    >>> network = nn.Linear(2, 2, bias=False)
    >>> batch = torch.diag(torch.tensor([2.0, 4.0])), torch.tensor([1, 1])
    >>> round(NTKMean()(network, batch).item() ** 2, 6)  # (4 + 16) / 2²
    5.0
    """

    def from_kernel(self, kernel: Kernel, m: int) -> float:
        return math.sqrt(abs(float(kernel.matrix.sum()))) / m


# VKDNW (arXiv:2502.04975): the evenness of the Fisher information's spectrum.


@dataclass(frozen=True)
class Vkdnw(Metric):
    """−Σ_k λ̃_k log λ̃_k, λ̃ the nine deciles of the spectrum of F divided by their sum (Týbl & Neumann 2025).

    F = (1/m) Σ_i J_iᵀ (diag p_i − p_i p_iᵀ) J_i is the Fisher information of the classifier, p_i its
    probabilities and J_i the Jacobian of its logits. The public code uses one parameter of each tensor; here
    F is that of all parameters, and its m (n − 1) eigenvalues that can be positive are those of a matrix
    between samples and logits, from n backward passes. The paper ranks by the entropy plus the number of
    layers; for the latter use `layers`.

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
    """Return the m (n − 1) largest eigenvalues of F, from J Jᵀ (m·n, m·n) and the logits (m, n)."""
    m = len(logits)
    p = double(logits).softmax(dim=1)
    values, vectors = torch.linalg.eigh(torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1))  # (m, n, n)
    root = torch.block_diag(*(vectors * values.clamp(min=0).sqrt().unsqueeze(1)))
    spectrum = torch.linalg.eigvalsh(root.T @ kernel.to(root) @ root / m)
    return spectrum[m:].clamp(min=0)


def decile_entropy(values: Tensor) -> Tensor:
    """Return the entropy of the nine deciles of numbers ≥ 0; log 9 if all are equal.

    >>> decile_entropy(torch.ones(20)).exp()
    tensor(9.)
    """
    deciles = torch.quantile(values, torch.arange(1, 10, dtype=values.dtype, device=values.device) / 10)
    return torch.special.entr(deciles / deciles.sum()).sum()
