"""Eigen-NAS and KNAS (Zhu et al. 2022, arXiv:2209.07238, section 5.2).

    Eigen-NAS   (1/N) Σ_i K_ii ≥ λ_min(K)    (1/d in print, which is no bound for N < d)
    KNAS        ‖K‖_F                            (Xu et al. 2021, arXiv:2111.13293, in the form of Zhu et al.)

A large smallest eigenvalue of the neural tangent kernel K predicts fast training and good generalization; the
mean diagonal bounds it at a cost of O(N). The k architectures with the largest values are evaluated, and the
best is returned.
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
    """Base class; the number of rounds is k, and every round evaluates the next best of the pool.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: the images.
        benchmark: the table for `evaluation="table"`.
        output: the logits of the kernel, see `nas_lightning.metrics.kernel`.
        coupled: whether batch norms couple the samples.
        metrics: further metrics of the ranking, by the sum of log-ranks: `default`, `top`, or a mapping.
        evaluation: `training` or `table`, see `BlackBox`.
        **pool: see `PoolSearch` and `BlackBox`.
    """

    metric: ClassVar[type[NTKMeanDiagonal | NTKFrobenius]]
    """The metric of the kernel."""
    column: ClassVar[str]
    """Its name in the pool file."""

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
    """Eigen-NAS: rank by the mean diagonal of the kernel.

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
    """KNAS: rank by the Frobenius norm of the kernel.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space, sizes = NasBench201(), {"in_channels": 1, "num_classes": 10, "channels": 4, "cells": 1}
    >>> network = lambda genotype: space.network(genotype, **sizes)
    >>> Knas(space, network, SearchData(Digits()), pool_size=20).metrics
    {'ntk_frobenius': NTKFrobenius(output='true_class', coupled=False)}
    """

    metric, column = NTKFrobenius, "ntk_frobenius"
