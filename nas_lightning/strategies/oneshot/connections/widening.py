"""DrNAS' progressive widening (Chen et al. 2021, arXiv:2006.10355, section 3.3).

Only 1/K of the channels pass the operations, which costs 1/K of the memory and blurs what operations are
worth; so K falls in stages of equally many epochs. The supernet grows with what it has learned, and so does
the search: only the momenta of the weights that grow start anew. The paper drops the weakest operations
between its two stages, too; here all stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nas_lightning.checks import PositiveInt, checked
from nas_lightning.errors import InputError
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.parts import Connection
from nas_lightning.strategies.oneshot.values import Arch, Epoch, Groups, RelaxedWeights


@checked
@dataclass(frozen=True)
class Widening(Connection):
    """More channels from stage to stage, for a supernet with `partial` at the first stage's K.

    Args:
        stages: K of each; the paper has (4, 2) in NAS-Bench-201 and (6, 3) in DARTS' space.

    >>> [Widening((4, 2)).partial(Epoch(number, of=4)) for number in range(4)]
    [4, 4, 2, 2]
    """

    stages: tuple[PositiveInt, ...] = (4, 2)

    fewest: ClassVar[int] = 1
    """Stages that there must be."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", tuple(self.stages))  # a configuration has a list
        if len(self.stages) < self.fewest:
            expected = "expected one stage or more, with which the supernet begins"
            raise InputError(expected, got=[], where="strategy.partial.stages")
        if any(later >= stage for stage, later in zip(self.stages, self.stages[1:], strict=False)):
            raise InputError(
                "expected stages of smaller and smaller K", got=list(self.stages), where="partial"
            )

    def check_supernet(self, supernet: Supernet) -> None:
        if self.stages and supernet.backbone.partial != self.stages[0]:
            expected = f"expected a supernet with partial={self.stages[0]}, the first stage's"
            raise InputError(expected, got=supernet.backbone.partial, where="supernet.partial")

    def apply(self, relaxed: RelaxedWeights, arch: Arch, epoch: Epoch, groups: Groups) -> RelaxedWeights:
        return relaxed
