"""Metrics from the empirical neural tangent kernel at initialisation, all from one kernel.

`coupled` and `output` are explained in `nas_lightning.metrics.passes.kernel`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes.diagonal import kernel_diagonal
from nas_lightning.metrics.passes.kernel import Output
from nas_lightning.metrics.passes.kernel_matrix import Kernel
from nas_lightning.metrics.passes.needs import Needs
from nas_lightning.metrics.passes.shared import Batch, Passes


def ntk(
    network: nn.Module,
    batch: Batch,
    *,
    output: Output = "true_class",
    coupled: bool = False,
    batch_statistics: bool = True,
) -> Kernel:
    """Θ₀ = J Jᵀ of the network's trained parameters on the batch; the network stays as it was.

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
        output: what of the network Θ₀ is the kernel of, as `passes.kernel` says.
        coupled: whether its rows are those of the whole batch's forward pass, as there.
    """

    output: Output = "true_class"
    coupled: bool = False


@dataclass(frozen=True)
class DiagonalMetric(KernelMetric):
    """Base of those that are read off Θ₀'s diagonal.

    Args:
        output: what of the network Θ₀ is the kernel of, as `passes.kernel` says.
        coupled: whether its rows are those of the whole batch's forward pass, as there.
    """

    def compute(self, passes: Passes) -> float:
        return self.from_diagonal(kernel_diagonal(passes, self.output, self.coupled), len(passes.x))

    @abstractmethod
    def from_diagonal(self, diagonal: Tensor, m: int) -> float:
        """The metric from the diagonal of the kernel of m samples."""


@dataclass(frozen=True)
class MatrixMetric(KernelMetric):
    """Base of those that want the whole of Θ₀.

    Args:
        output: what of the network Θ₀ is the kernel of, as `passes.kernel` says.
        coupled: whether its rows are those of the whole batch's forward pass, as there.
    """

    needs: ClassVar[Needs] = Needs.KERNEL

    def compute(self, passes: Passes) -> float:
        return self.from_kernel(passes.kernel(self.output, self.coupled), len(passes.x))

    @abstractmethod
    def from_kernel(self, kernel: Kernel, m: int) -> float:
        """The metric from the kernel of m samples."""


@dataclass(frozen=True)
class NTKTrace(DiagonalMetric):
    """√(‖Θ₀‖_tr / m) (thesis, equation 7.4; NASI, arXiv:2109.00817).

    >>> import torch
    >>> network = nn.Linear(2, 2, bias=False)
    >>> batch = torch.diag(torch.tensor([2.0, 4.0])), torch.tensor([1, 1])
    >>> round(NTKTrace()(network, batch).item() ** 2, 4)  # (4 + 16) / 2
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
    """√|m⁻² Σ_ij Θ_ij|: KNAS (Xu et al. 2021, arXiv:2111.13293) as the thesis has it (equation D.11).

    The norm of the mean row of the Jacobian.

    >>> import torch
    >>> network = nn.Linear(2, 2, bias=False)
    >>> batch = torch.diag(torch.tensor([2.0, 4.0])), torch.tensor([1, 1])
    >>> round(NTKMean()(network, batch).item() ** 2, 6)  # (4 + 16) / 2²
    5.0
    """

    def from_kernel(self, kernel: Kernel, m: int) -> float:
        return math.sqrt(abs(float(kernel.matrix.sum()))) / m
