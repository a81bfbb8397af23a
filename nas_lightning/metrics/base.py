"""The contract of a metric, and the scoring of a network by several.

A metric is a frozen dataclass whose fields are its options. Called with a network and a batch, it returns a
number and leaves the network unchanged. To add one, write such a class and a yaml in `conf/metric`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointError

from nas_lightning.errors import InputError
from nas_lightning.metrics.engine import Batch, Passes
from nas_lightning.metrics.recording import Needs


@dataclass(frozen=True)
class Metric(ABC):
    """A score of a network on one batch; `tests/metrics/test_base.py` checks the contract for every metric.

    `larger_is_better` is the direction of the metric. A degenerate network, whose output does not depend on
    its input, has the worst value: −∞, or +∞ if smaller is better. No metric is ever NaN.

    >>> from nas_lightning.metrics import Metric
    >>> @dataclass(frozen=True)
    ... class Modules(Metric):
    ...     counts_only = True
    ...
    ...     def compute(self, passes):
    ...         return len(list(passes.network.modules()))
    >>> Modules()(nn.Sequential(nn.Linear(2, 2)), (torch.randn(2, 2), torch.tensor([0, 1])))
    tensor(2., dtype=torch.float64)
    """

    larger_is_better: ClassVar[bool] = True
    needs: ClassVar[Needs] = Needs.NOTHING
    counts_only: ClassVar[bool] = False
    """Whether the metric has a value for degenerate networks, such as a count."""
    shapes_only: ClassVar[bool] = False
    """Whether the metric can be computed on the meta device."""
    never_positive: ClassVar[bool] = False
    """Whether the metric is never positive, and so cannot be M in HNAS' objective."""
    layered_only: ClassVar[bool] = False
    """Whether the metric is only for the spaces `mlp` and `two_layer`."""

    @abstractmethod
    def compute(self, passes: Passes) -> Tensor | float:
        """Compute the value from passes that metrics share."""

    def __call__(self, network: nn.Module, batch: Batch) -> Tensor:
        """Return the value as a float64 scalar."""
        return torch.tensor(score(network, batch, {"value": self})["value"], dtype=torch.float64)

    def orient(self, value: float) -> float:
        """Return the value, negated if smaller is better."""
        return value if self.larger_is_better else -value

    @property
    def worst_value(self) -> float:
        return -torch.inf if self.larger_is_better else torch.inf

    def value(self, passes: Passes) -> float:
        """Return `compute` as a number, or the worst value for a degenerate network or NaN."""
        if not self.counts_only and passes.is_degenerate:
            return self.worst_value
        value = float(self.compute(passes))
        return self.worst_value if value != value else value


def score(
    network: nn.Module, batch: Batch, metrics: Mapping[str, Metric], *, batch_statistics: bool = True
) -> dict[str, float]:
    """Return the value of each metric, from one forward pass and as few backward passes as possible.

    Args:
        network: any module from inputs to logits.
        batch: inputs (m, …) and labels (m,), or the targets of the network's task.
        metrics: metrics by name.
        batch_statistics: whether batch norms use the statistics of the batch.


    >>> import torch
    >>> from nas_lightning.metrics import GradNorm, NTKCondition
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> batch = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    >>> list(score(network, batch, {"grad_norm": GradNorm(), "kappa": NTKCondition()}))
    ['grad_norm', 'kappa']
    """
    if not metrics:
        raise InputError("There must be at least one metric")
    needs = reduce(or_, (metric.needs for metric in metrics.values()))

    def run(plain: bool) -> dict[str, float]:
        with Passes(network, batch, needs, batch_statistics=batch_statistics, plain=plain) as passes:
            return {name: metric.value(passes) for name, metric in metrics.items()}

    try:
        return run(plain=False)
    except CheckpointError:  # checkpointed layers are recomputed without the functions in `curvature`
        return run(plain=True)
