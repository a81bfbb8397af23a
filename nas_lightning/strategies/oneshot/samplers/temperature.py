"""Samplers with a temperature that falls over the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from nas_lightning.checks import PositiveFloat, checked
from nas_lightning.errors import InputError
from nas_lightning.strategies.oneshot.parts import Sampler
from nas_lightning.strategies.oneshot.values import Arch, Epoch, Groups


@checked
@dataclass(frozen=True)
class TemperatureSampler(Sampler):
    """Base of the samplers with a temperature τ.

    Args:
        tau_start: τ in the first epoch.
        tau_end: and in the last; it falls linearly.

    >>> from nas_lightning.strategies.oneshot.samplers.gumbel import Gumbel
    >>> Gumbel(tau_start=10.0, tau_end=1.0).tau(Epoch(1, of=3))
    5.5
    """

    tau_start: PositiveFloat = 10.0
    tau_end: PositiveFloat = 0.1

    def __post_init__(self) -> None:
        if self.tau_start < self.tau_end:
            got = f"{self.tau_start} and {self.tau_end}"
            raise InputError("expected tau_start of at least tau_end", got=got, where="strategy.sampler")

    def tau(self, epoch: Epoch) -> float:
        """τ in an epoch."""
        return epoch.between(self.tau_start, self.tau_end)

    def metrics(self, arch: Arch, epoch: Epoch, groups: Groups) -> Mapping[str, float | Tensor]:
        return {"tau": self.tau(epoch)}
