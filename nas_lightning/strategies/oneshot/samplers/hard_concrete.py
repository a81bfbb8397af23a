"""PR-DARTS' weights: a stochastic gate for every operation (Zhou et al. 2020, arXiv:2006.16537, section 4.1).

ḡ = Θ((ln u − ln(1 − u) + β)/τ),   g = min(1, max(0, a + (b − a) ḡ)),   P(g ≠ 0) = Θ(β − τ ln(−a/b))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from nas_lightning.checks import PositiveFloat, PositiveInt, above, below, checked
from nas_lightning.errors import InputError
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.group import Group, without_none
from nas_lightning.strategies.oneshot.parts import Parts
from nas_lightning.strategies.oneshot.relaxations import (
    STRETCHED,
    gate_probability,
    hard_concrete,
    largest,
    saturated_share,
)
from nas_lightning.strategies.oneshot.samplers.temperature import TemperatureSampler
from nas_lightning.strategies.oneshot.values import Arch, Epoch, Groups


@checked
@dataclass(frozen=True)
class HardConcrete(TemperatureSampler):
    """Gates, of which only the largest of an edge are computed in a step.

    Ties are broken at random, as in the authors' code; the paper draws two operations. The zero operation has
    a gate like the others while searching; its gate sees no loss, because it contributes nothing, so no
    genotype is derived from it. The default τ is for short runs, the paper's 10 for its 40,000 steps.

    Args:
        tau_start: τ in the first epoch.
        tau_end: and in the last; it falls linearly.
        active_ops: operations of an edge that a step computes.
        low: a, which gates are stretched to before they are clipped at 0.
        high: b, and at 1.

    >>> import torch
    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> half = torch.full((1, 2), 0.5)
    >>> HardConcrete(active_ops=1).weights(torch.tensor([[-1.0, 9.0]]), [half, half], Epoch(0, of=2), group)
    tensor([[0., 1.]])
    """

    tau_start: PositiveFloat = 1.0
    active_ops: PositiveInt = 2
    low: Annotated[float, below(0)] = STRETCHED[0]
    high: Annotated[float, above(1)] = STRETCHED[1]

    noises: ClassVar[int] = 2  # of the gates, of their ties
    varies: ClassVar[bool] = True
    sparse: ClassVar[bool] = True
    shares: ClassVar[bool] = False

    @property
    def stretched(self) -> tuple[float, float]:
        """(a, b)."""
        return self.low, self.high

    def check(self, parts: Parts, space: SearchSpace) -> None:
        fewest = min(group.shape[1] for group in space.groups.values())
        if self.active_ops > fewest:
            where = "strategy.sampler.active_ops"
            raise InputError(f"expected 1 to {fewest} operations", got=self.active_ops, where=where)

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        gates = hard_concrete(beta, noise[0], self.tau(epoch), self.stretched)
        return gates * largest(gates, self.active_ops, noise[1])

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        return gate_probability(beta, self.tau(epoch), self.stretched)

    def scores(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        """P at the last temperature: any gives the same order, but at the first ones P is 1 in float32."""
        return without_none(gate_probability(beta, self.tau_end, self.stretched), group)

    def metrics(self, arch: Arch, epoch: Epoch, groups: Groups) -> Mapping[str, float | Tensor]:
        tau = self.tau(epoch)
        shares = {name: saturated_share(arch[name].detach(), tau, self.stretched) for name in groups}
        saturated = {f"saturated/{name}": share for name, share in shares.items()}
        return {"tau": tau, **saturated}
