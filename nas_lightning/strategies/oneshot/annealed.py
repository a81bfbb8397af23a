"""Strategies that sample at a temperature which falls over the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.bilevel import Bilevel
from nas_lightning.strategies.oneshot.relaxations import linear


class Annealed(Bilevel):
    """Base of the strategies with a temperature τ.

    Args:
        space: the search space.
        supernet: its supernet.
        tau_start: τ in the first epoch.
        tau_end: and in the last; it falls linearly.
        **bilevel: see `Bilevel`.
    """

    compilable = False  # samples other operations in every step

    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        tau_start: float = 10.0,
        tau_end: float = 0.1,
        **bilevel: Any,
    ) -> None:
        super().__init__(space, supernet, **bilevel)
        if not tau_start >= tau_end > 0:
            raise InputError(
                "expected tau_start ≥ tau_end > 0", got=f"{tau_start} and {tau_end}", where="strategy"
            )
        self.tau_start, self.tau_end = tau_start, tau_end
        self.tau = tau_start

    def enter_epoch(self) -> None:
        super().enter_epoch()
        self.tau = linear(self.tau_start, self.tau_end, self.current_epoch, self.epochs)

    def epoch_metrics(self) -> Mapping[str, float | Tensor]:
        return {"tau": self.tau}
