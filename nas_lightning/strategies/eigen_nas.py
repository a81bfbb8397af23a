"""Eigen-NAS (Zhu et al. 2022, arXiv:2209.07238, section 5.2).

    λ_min(K) ≤ (1/N) Σ_i K_ii

A large smallest eigenvalue of the neural tangent kernel K promises fast training and good generalisation; the
mean diagonal bounds it at a cost of O(N). The k architectures with the largest are evaluated, the best is it.
"""

from __future__ import annotations

from typing import Any

from nas_lightning.benchmarks.base import TabularBenchmark
from nas_lightning.data import SearchData
from nas_lightning.metrics.kernel import Output
from nas_lightning.metrics.ntk import NTKMeanDiagonal
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.strategies.base import NetworkFactory
from nas_lightning.strategies.pool_search import PoolSearch


class EigenNas(PoolSearch):
    """The length of the run is k: every round evaluates the next best of the pool.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: where the images come from.
        benchmark: the table that `evaluation="table"` reads.
        output: the logits that K is of, see `nas_lightning.metrics.kernel`.
        coupled: whether samples act on each other through batch norms.
        **pool: see `PoolSearch` and `BlackBox`.
    """

    def __init__(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        data: SearchData,
        benchmark: TabularBenchmark | None = None,
        *,
        output: Output = "true_class",
        coupled: bool = False,
        **pool: Any,
    ) -> None:
        super().__init__(space, network, data, benchmark, **pool)
        self.metrics = {"ntk_mean_diag": NTKMeanDiagonal(output, coupled)}
