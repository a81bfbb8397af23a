"""torch's optimisers, which import torch's compiler no sooner than something is compiled.

torch marks their methods as not to be compiled, and imports its compiler for the mark: a second, almost as
much as torch itself. As long as the compiler is not loaded nothing can be compiled, and what stands behind
the mark is called. Options, steps and states are torch's.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import optim


class EagerOptimizer(optim.Optimizer):
    """An optimiser that needs no compiler: first of the bases of a class, or the base of one with a step.

    >>> optimizer = SGD([torch.nn.Parameter(torch.ones(1))], lr=0.5)
    >>> optimizer.param_groups[0]["params"][0].grad = torch.ones(1)
    >>> optimizer.step()
    >>> optimizer.param_groups[0]["params"][0].tolist()
    [0.5]
    """

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        with torch.set_grad_enabled(self.defaults["differentiable"]):
            return inspect.unwrap(super().step.__func__)(self, closure)  # type: ignore[attr-defined]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        call_unmarked(super().add_param_group, param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        call_unmarked(super().zero_grad, set_to_none)

    def state_dict(self) -> dict[str, Any]:
        return call_unmarked(super().state_dict)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        call_unmarked(super().load_state_dict, state_dict)


def call_unmarked(method: Callable[..., Any], *args: Any) -> Any:
    """What the method does; as long as there is no compiler, what stands behind its marks."""
    if "torch._dynamo" in sys.modules:
        return method(*args)
    return inspect.unwrap(method.__func__)(method.__self__, *args)  # type: ignore[attr-defined]


class SGD(EagerOptimizer, optim.SGD):
    """torch.optim.SGD."""


class Adam(EagerOptimizer, optim.Adam):
    """torch.optim.Adam."""


class AdamW(EagerOptimizer, optim.AdamW):
    """torch.optim.AdamW."""
