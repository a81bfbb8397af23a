"""A kernel as a matrix: its spectrum, and what of it rounding alone can explain."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Kernel:
    """A kernel and the numbers that metrics take from it.

    >>> kernel = Kernel(torch.diag(torch.tensor([4.0, 1.0])), precision=1e-7)
    >>> kernel.trace, kernel.condition, kernel.lambda_min
    (5.0, 4.0, 1.0)
    """

    matrix: Tensor
    """(rows, rows), symmetric, float64."""
    precision: float
    """The relative error of one operation where the kernel was computed."""

    @cached_property
    def eigenvalues(self) -> Tensor:
        """Ascending, float64; those that rounding alone can explain are zero."""
        matrix = self.matrix.double()
        matrix = (matrix + matrix.T) / 2
        if not bool(torch.isfinite(matrix).all()):
            return matrix.new_full((len(matrix),), torch.nan)
        values = torch.linalg.eigvalsh(matrix)
        # the tolerance of a numerical rank: rows · ε · λ_max
        floor = len(matrix) * self.precision * values[-1].clamp(min=0)
        return torch.where(values > floor, values, torch.zeros_like(values))

    @property
    def trace(self) -> float:
        return float(self.matrix.diagonal().sum())

    @property
    def mean_diagonal(self) -> float:
        return float(self.matrix.diagonal().mean())

    @property
    def frobenius(self) -> float:
        return float(torch.linalg.matrix_norm(self.matrix))

    @property
    def lambda_min(self) -> float:
        """The smallest eigenvalue, 0 where the kernel is singular to working precision."""
        return float(self.eigenvalues[0])

    @property
    def lambda_max(self) -> float:
        return float(self.eigenvalues[-1])

    @property
    def is_singular(self) -> bool:
        """Whether the rank is deficient, as far as the arithmetic can tell."""
        return not self.lambda_min > 0

    @property
    def condition(self) -> float:
        """κ = λ_max / λ_min, infinite for a singular kernel; never negative, never NaN."""
        return torch.inf if self.is_singular else self.lambda_max / self.lambda_min
