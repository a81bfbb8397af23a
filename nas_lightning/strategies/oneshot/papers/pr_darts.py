"""PR-DARTS: path-regularised differentiable search (Zhou et al. 2020, arXiv:2006.16537).

Every operation has a stochastic gate of its own instead of a share of a softmax, so that skip connections do
not win by taking from the others (section 4.1), and the architecture step descends

    L_val + λ₁ L_skip + λ₂ L_nonskip − λ₃ L_path                                             (section 4.2)

which makes skips costlier than other operations and deep cells likelier.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from nas_lightning.checks import (
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    above,
    at_least,
    at_most,
    below,
    checked,
)
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.papers.bilevel import Bilevel
from nas_lightning.strategies.oneshot.regularisers.path_depth import PathDepth
from nas_lightning.strategies.oneshot.regularisers.sparsity import Sparsity
from nas_lightning.strategies.oneshot.relaxations import STRETCHED
from nas_lightning.strategies.oneshot.samplers.hard_concrete import HardConcrete


class PRDarts(Bilevel):
    """PR-DARTS on any space with skip connections, such as `darts` and `nasbench201`.

    Its defaults are for short runs: the regularisers act at τ below 1, and the rate of the public code, 3e-4,
    is for the paper's 40,000 steps.

    Args:
        space: the search space.
        supernet: its supernet.
        lambda_skip: λ₁; for this and the next four see `Sparsity`.
        lambda_nonskip: λ₂.
        pooling_group: pooling operations as a third group.
        threshold: penalise groups only above it.
        lambda_path: λ₃; for this and the next see `PathDepth`.
        path_sum: equation 8 to the letter.
        active_ops: operations of an edge that a step computes; for this and the next four see `HardConcrete`.
        tau_start: τ in the first epoch.
        tau_end: and in the last.
        low: a of the stretched gates.
        high: and b.
        arch_lr: learning rate of the architecture parameters.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import DartsSpace
    >>> space = DartsSpace()
    >>> strategy = PRDarts(space, space.supernet(in_channels=1, num_classes=2, channels=2, cells=1))
    >>> int(strategy.relax().active["normal"].sum(dim=1).max()) <= 2
    True
    """

    made_of: ClassVar[tuple[str, ...]] = ("HardConcrete + Sparsity + PathDepth",)

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        lambda_skip: NonNegativeFloat = 0.01,
        lambda_nonskip: NonNegativeFloat = 0.005,
        lambda_path: NonNegativeFloat = 0.005,
        active_ops: PositiveInt = 2,
        path_sum: bool = False,
        pooling_group: bool = False,
        threshold: Annotated[float, at_least(0), at_most(1)] = 0.0,
        tau_start: PositiveFloat = 1.0,
        tau_end: PositiveFloat = 0.1,
        low: Annotated[float, below(0)] = STRETCHED[0],
        high: Annotated[float, above(1)] = STRETCHED[1],
        arch_lr: PositiveFloat = 6e-3,
        **bilevel: Any,
    ) -> None:
        sampler = HardConcrete(tau_start, tau_end, active_ops, low, high)
        sparsity = Sparsity(lambda_skip, lambda_nonskip, pooling_group, threshold)
        regulariser = [sparsity, PathDepth(lambda_path, path_sum)]
        super().__init__(
            space, supernet, sampler=sampler, regulariser=regulariser, arch_lr=arch_lr, **bilevel
        )
