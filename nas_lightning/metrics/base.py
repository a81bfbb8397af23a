"""What a metric is, and how several share their passes.

A metric is a frozen dataclass whose fields are its options. Called with a network and a batch, it returns a
number and leaves the network as it was. A new metric is one file with such a class, and one yaml.
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
    """A score of a network on one batch; `tests/metrics/test_contract.py` holds every metric to it.

    Every metric says by `larger_is_better` which way it points. A degenerate network, whose output no input
    reaches, has the worst value: −∞, or +∞ where smaller is better. No metric is ever NaN.

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
    """Whether it only counts what is there, and so has a value for a degenerate network as well."""
    shapes_only: ClassVar[bool] = False
    """Whether it needs no values, neither of weights nor of inputs, so that a pool's networks have none."""
    never_positive: ClassVar[bool] = False
    """Whether 0 is the most that any network has, so that it is no M of HNAS' objective."""
    layered_only: ClassVar[bool] = False
    """Whether it is for networks of `mlp` and `two_layer` alone."""

    @abstractmethod
    def compute(self, passes: Passes) -> Tensor | float:
        """The value, from passes that other metrics may have run already."""

    def __call__(self, network: nn.Module, batch: Batch) -> Tensor:
        """The value as a scalar, float64."""
        return torch.tensor(score(network, batch, {"value": self})["value"], dtype=torch.float64)

    def orient(self, value: float) -> float:
        """The value with its sign such that larger is better."""
        return value if self.larger_is_better else -value

    @property
    def worst_value(self) -> float:
        return -torch.inf if self.larger_is_better else torch.inf

    def value(self, passes: Passes) -> float:
        """`compute` as a number, the worst one where there is nothing to measure."""
        if not self.counts_only and passes.is_degenerate:
            return self.worst_value
        value = float(self.compute(passes))
        return self.worst_value if value != value else value


def score(
    network: nn.Module, batch: Batch, metrics: Mapping[str, Metric], *, batch_statistics: bool = True
) -> dict[str, float]:
    """The value of each metric, from one forward pass and as few backward passes as they need together.

    >>> import torch
    >>> from nas_lightning.metrics import GradNorm, NTKCondition
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> batch = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    >>> list(score(network, batch, {"grad_norm": GradNorm(), "kappa": NTKCondition()}))
    ['grad_norm', 'kappa']
    """
    if not metrics:
        raise InputError("expected at least one metric", got="none")
    needs = reduce(or_, (metric.needs for metric in metrics.values()))

    def run(plain: bool) -> dict[str, float]:
        with Passes(network, batch, needs, batch_statistics=batch_statistics, plain=plain) as passes:
            return {name: metric.value(passes) for name, metric in metrics.items()}

    try:
        return run(plain=False)
    except CheckpointError:  # what computes a pass again does so without the functions in `curvature`
        return run(plain=True)
