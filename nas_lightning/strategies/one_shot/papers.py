"""The papers of one-shot search, side by side: each is a class whose parts are its attributes.

Every part can be replaced by an argument, see `OneShot`. Where a paper sets no part, it is that of
first-order DARTS (Liu et al. 2019, arXiv:1806.09055).
"""

from __future__ import annotations

from typing import Any, Literal

from nas_lightning.data import SearchData
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.one_shot.arch_steps import Adam, SecondOrder, SingleLevel
from nas_lightning.strategies.one_shot.connections import AuxiliarySkip, EdgeWeights
from nas_lightning.strategies.one_shot.freezing import GradientMatching
from nas_lightning.strategies.one_shot.perturbations import RandomNoise
from nas_lightning.strategies.one_shot.regularizers import (
    Anchor,
    BetaDecay,
    ComputedPathDepth,
    ComputedSparsity,
    LayerAlignment,
    PathDepth,
    Sparsity,
    ZeroOne,
)
from nas_lightning.strategies.one_shot.samplers import (
    BinaryGates,
    ClippedSkips,
    Concrete,
    Dirichlet,
    Fair,
    Gumbel,
    HardConcrete,
    ReinMax,
    Sigmoid,
    Simplex,
    Softmax,
    Uniform,
)
from nas_lightning.strategies.one_shot.selection import InheritedEvolution, RandomCandidates
from nas_lightning.strategies.one_shot.strategy import OneShot
from nas_lightning.validation import NonNegativeFloat, checked

DEEP_CELLS = (
    "PR-DARTS prefers deep cells, which train more slowly than shallow ones (arXiv:2006.16537, theorem 4): "
    "they need large networks and long training"
)


class Darts(OneShot):
    """DARTS: differentiable architecture search (Liu et al. 2019, arXiv:1806.09055).

    Args:
        space: the search space.
        supernet: its supernet.
        data: see `OneShot`.
        order: 1 differentiates L_val(w, β), 2 differentiates L_val(w'(β), β) through a step of w (section
            2.3).
        **options: see `OneShot`.

    >>> from nas_lightning.spaces import NasBench201
    >>> darts = Darts.from_space(NasBench201(), in_channels=1, num_classes=2, channels=2, cells=1, order=2)
    >>> darts.label, len(darts.derive())
    ('Darts + SecondOrder', 1)
    """

    sampler = Softmax()

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        data: SearchData | None = None,
        *,
        order: Literal[1, 2] = 1,
        **options: Any,
    ) -> None:
        step = {"arch_step": SecondOrder()} if order == 2 else {}
        super().__init__(space, supernet, data, **{**step, **options})


class PRDarts(OneShot):
    """PR-DARTS: path-regularized differentiable search (Zhou et al. 2020, arXiv:2006.16537).

    Every operation has its own stochastic gate instead of a share of a softmax, so that skip connections do
    not win by taking from the others (section 4.1), and the architecture step descends

        L_val + λ₁ L_skip + λ₂ L_nonskip − λ₃ L_path                                           (section 4.2)

    which makes skips costlier than other operations and deep cells likelier. The defaults are for short runs:
    the regularizers act at τ below 1, and the public code's rate of 3e-4 is for the paper's 40,000 steps.

    >>> from nas_lightning.spaces import DartsSpace
    >>> search = PRDarts.from_space(DartsSpace(), in_channels=1, num_classes=2, channels=2, cells=1)
    >>> int(search.relax().active["normal"].sum(dim=1).max()) <= 2
    True
    """

    sampler = HardConcrete()
    regularizers = (Sparsity(), PathDepth())
    arch_lr = 6e-3
    note = DEEP_CELLS


class PRDartsPublicCode(OneShot):
    """PR-DARTS as its authors' code has it (salesforce/PR-DARTS, `PRDARTS_search`).

    Its gates are binary, and its regularizers see only the operations that a step computes; see
    `BinaryGates`, `ComputedSparsity`, and `ComputedPathDepth`. Two differences remain: the public code takes
    the step of the weights first, and it may derive two operations between the same two nodes.

    Args:
        space: the search space.
        supernet: its supernet.
        data: see `OneShot`.
        weight_decay: weight decay of SGD.
        nesterov: use Nesterov momentum.
        **options: see `OneShot`.

    >>> from nas_lightning.spaces import DartsSpace
    >>> search = PRDartsPublicCode.from_space(DartsSpace(), in_channels=1, num_classes=2, channels=2, cells=1)
    >>> search.relax().weights["normal"].detach().unique()
    tensor([0., 1.])
    """

    sampler = BinaryGates()
    regularizers = (ComputedSparsity(), ComputedPathDepth())
    note = DEEP_CELLS

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        data: SearchData | None = None,
        *,
        weight_decay: NonNegativeFloat = 5e-4,
        nesterov: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(space, supernet, data, weight_decay=weight_decay, nesterov=nesterov, **options)


class Gdas(OneShot):
    """GDAS: search by a differentiable sampler (Dong & Yang 2019, arXiv:1910.04465).

    A step costs what one path costs.

    >>> from nas_lightning.spaces import NasBench201
    >>> gdas = Gdas.from_space(NasBench201(), in_channels=1, num_classes=2, channels=2, cells=1)
    >>> gdas.relax().active["cell"].sum(dim=1).tolist()
    [1, 1, 1, 1, 1, 1]
    """

    sampler = Gumbel()


class Snas(OneShot):
    """SNAS: stochastic neural architecture search (Xie et al. 2019, arXiv:1812.09926).

    Weights and architecture descend one loss, so pass all images as training images: `train_fraction=1`.
    """

    sampler = Concrete()
    arch_step = SingleLevel()


class ReinMaxDarts(OneShot):
    """DARTS with ReinMax' samples and second-order gradient (Liu et al. 2023, arXiv:2304.08612)."""

    sampler = ReinMax()


class PCDarts(OneShot):
    """PC-DARTS: partially connected differentiable search (Xu et al. 2020, arXiv:1907.05737).

    The paper's supernet has `partial=4`.

    >>> from nas_lightning.spaces import DartsSpace
    >>> sizes = {"in_channels": 1, "num_classes": 2, "channels": 4, "cells": 1, "partial": 4}
    >>> weights = PCDarts.from_space(DartsSpace(), **sizes).relax().weights["normal"]
    >>> round(weights[:2].sum().item(), 4)  # the two edges into the first inner node
    1.0
    """

    edge_weights = EdgeWeights()
    arch_lr = 6e-4


class FairDarts(OneShot):
    """FairDARTS: independent operations, pulled to zero or one (Chu et al. 2020, arXiv:1911.12126).

    >>> from nas_lightning.spaces import NasBench201
    >>> fair = FairDarts.from_space(NasBench201(), in_channels=1, num_classes=2, channels=2, cells=1)
    >>> round(float(fair.relax().weights["cell"].detach().mean()), 2)
    0.5
    """

    sampler = Sigmoid()
    regularizers = (ZeroOne(),)


class Gaea(OneShot):
    """GAEA: geometry-aware exponentiated gradient (Li et al. 2021, arXiv:2004.07802).

    `arch_lr` is η. For empirical risk minimization (section 2.1), pass `arch_step=SingleLevel()` and all
    images as training images.

    >>> from nas_lightning.spaces import NasBench201
    >>> gaea = Gaea.from_space(NasBench201(), in_channels=1, num_classes=2, channels=2, cells=1)
    >>> gaea.relax().weights["cell"][0].tolist() == [gaea.arch["cell"][0, 0]] * 5
    True
    """

    sampler = Simplex()


class DrNas(OneShot):
    """DrNAS: samples of a Dirichlet distribution near the flat one (Chen et al. 2021, arXiv:2006.10355).

    The anchor replaces weight decay. The paper's supernet grows during the search: `edge_weights=Widening()`.
    """

    sampler = Dirichlet()
    arch_optimizer = Adam(weight_decay=0.0)
    regularizers = (Anchor(),)


class SmoothDarts(OneShot):
    """SmoothDARTS: weights trained near the architecture (Chen & Hsieh 2020, arXiv:2002.05283).

    At random architecture weights nearby; at the worst ones, at seven more passes a step, with
    `perturbation=Adversarial()`.
    """

    perturbation = RandomNoise()


class DartsMinus(OneShot):
    """DARTS−: a parallel skip connection that fades out (Chu et al. 2021, arXiv:2009.01027)."""

    auxiliary_skip = AuxiliarySkip()


class BetaDarts(OneShot):
    """β-DARTS: DARTS whose largest weights decay (Ye et al. 2022, arXiv:2203.01665)."""

    regularizers = (BetaDecay(),)


class LambdaDarts(OneShot):
    """Λ-DARTS: DARTS whose cells get similar gradients (Movahedi et al. 2023, arXiv:2210.07998)."""

    regularizers = (LayerAlignment(),)


class Oles(OneShot):
    """OLES: DARTS that freezes operations once they overfit (Jiang et al. 2023, NeurIPS)."""

    freezing = GradientMatching()


class RandomWS(OneShot):
    """Random search with weight sharing (Li & Talwalkar 2019, arXiv:1902.07638, section 3.2).

    The baseline of weight sharing: every step trains the path of a random architecture; then random
        architectures are judged with the shared weights on validation images.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=10, channels=2, cells=1)
    >>> search = RandomWS(space, supernet, SearchData(Digits()), selection=RandomCandidates(candidates=10))
    >>> search.relax().weights["cell"].sum(dim=1).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """

    sampler = Uniform()
    selection = RandomCandidates()


class Spos(OneShot):
    """Single Path One-Shot: uniform paths, then evolution (Guo et al. 2020, arXiv:1904.00420)."""

    sampler = Uniform()
    selection = InheritedEvolution()


class FairNas(OneShot):
    """FairNAS: paths that are fair to all operations, then evolution (Chu et al. 2021, arXiv:1907.01845)."""

    sampler = Fair()
    selection = InheritedEvolution()


class ActivationSearch(OneShot):
    """DARTS with clipped weights for skips (Zhu et al. 2022, arXiv:2209.07238, section 5.1).

    In spaces without decisions between `none` and `skip_connect` it is DARTS.

    >>> from nas_lightning.spaces import Mlp
    >>> search = ActivationSearch.from_space(Mlp(layers=3), in_channels=1, num_classes=2, width=4)
    >>> search.relax().weights["skip"].tolist()
    [[0.5, 0.5]]
    """

    sampler = ClippedSkips()
