"""Eigen-NAS, and KNAS beside it (Zhu et al. 2022, arXiv:2209.07238, section 5.2).

    Eigen-NAS   (1/N) Σ_i K_ii ≥ λ_min(K)    (1/d in print, which is no bound for N < d)
    KNAS        ‖K‖_F                            (Xu et al. 2021, arXiv:2111.13293, in the form of Zhu et al.)

A large smallest eigenvalue of the neural tangent kernel K promises fast training and good generalization; the
mean diagonal bounds it at a cost of O(N). The k architectures with the largest are evaluated, the best is it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from nas_lightning.data import SearchData
from nas_lightning.metrics.kernel import Output
from nas_lightning.metrics.ntk import NTKFrobenius, NTKMeanDiagonal
from nas_lightning.objectives.rankings import MetricsChoice, named_metrics
from nas_lightning.objectives.short_training import Evaluator
from nas_lightning.objectives.tables import TabularBenchmark
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.strategies.black_box.pool import PoolSearch
from nas_lightning.validation import checked


class KernelSearch(PoolSearch):
    """The length of the run is k: every round evaluates the next best of the pool.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: where the images come from.
        benchmark: the table that `evaluation="table"` reads.
        output: the logits that K is of, see `nas_lightning.metrics.kernel`.
        coupled: whether samples act on each other through batch norms.
        metrics: that the pool is ranked by together with the kernel, by the sum of log-ranks: `default`,
            `top`, or some of your own.
        evaluation: of the most promising ones; see `BlackBox`.
        **pool: see `PoolSearch` and `BlackBox`.
    """

    metric: ClassVar[type[NTKMeanDiagonal | NTKFrobenius]]
    """What is read off the kernel."""
    column: ClassVar[str]
    """Its name in the pool's file."""

    @checked
    def __init__(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        data: SearchData,
        benchmark: TabularBenchmark | None = None,
        *,
        output: Output = "true_class",
        coupled: bool = False,
        metrics: MetricsChoice | None = None,
        evaluation: Evaluator = "training",
        **pool: Any,
    ) -> None:
        super().__init__(space, network, data, benchmark, evaluation=evaluation, **pool)
        others = {} if metrics is None else named_metrics(metrics)
        self.metrics = {self.column: self.metric(output, coupled), **others}


class EigenNas(KernelSearch):
    """By the mean diagonal.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space, sizes = NasBench201(), {"in_channels": 1, "num_classes": 10, "channels": 4, "cells": 1}
    >>> network = lambda genotype: space.network(genotype, **sizes)
    >>> search = EigenNas(space, network, SearchData(Digits()), pool_size=20, output="sum")
    >>> search.metrics
    {'ntk_mean_diag': NTKMeanDiagonal(output='sum', coupled=False)}
    """

    metric, column = NTKMeanDiagonal, "ntk_mean_diag"


class Knas(KernelSearch):
    """By the Frobenius norm.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space, sizes = NasBench201(), {"in_channels": 1, "num_classes": 10, "channels": 4, "cells": 1}
    >>> network = lambda genotype: space.network(genotype, **sizes)
    >>> Knas(space, network, SearchData(Digits()), pool_size=20).metrics
    {'ntk_frobenius': NTKFrobenius(output='true_class', coupled=False)}
    """

    metric, column = NTKFrobenius, "ntk_frobenius"
