"""KNAS (Xu et al. 2021, arXiv:2111.13293), in the form of Zhu et al. 2022 (arXiv:2209.07238, section 5.2).

    ‖K‖_F of the neural tangent kernel K

The k architectures with the largest are evaluated, the best is it.
"""

from __future__ import annotations

from typing import Any

from nas_lightning.benchmarks.base import TabularBenchmark
from nas_lightning.data import SearchData
from nas_lightning.metrics.kernel import Output
from nas_lightning.metrics.ntk import NTKFrobenius
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.strategies.base import NetworkFactory
from nas_lightning.strategies.pool_search import PoolSearch


class Knas(PoolSearch):
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
        self.metrics = {"ntk_frobenius": NTKFrobenius(output, coupled)}
