"""The papers of one-shot search, side by side."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from nas_lightning.data import SearchData
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.one_shot.arch_steps import Adam, FirstOrder, SecondOrder, SingleLevel
from nas_lightning.strategies.one_shot.connections import AuxiliarySkip, EdgeWeights
from nas_lightning.strategies.one_shot.freezing import GradientMatching
from nas_lightning.strategies.one_shot.perturbations import Adversarial, RandomNoise
from nas_lightning.strategies.one_shot.regularizers import (
    Anchor,
    BetaDecay,
    LayerAlignment,
    PathDepth,
    Sparsity,
    ZeroOne,
)
from nas_lightning.strategies.one_shot.relaxations import STRETCHED
from nas_lightning.strategies.one_shot.samplers import (
    ClippedSkips,
    Concrete,
    Dirichlet,
    Fair,
    Gumbel,
    HardConcrete,
    Paths,
    Sigmoid,
    Simplex,
    Uniform,
)
from nas_lightning.strategies.one_shot.selection import InheritedEvolution, RandomCandidates
from nas_lightning.strategies.one_shot.strategy import OneShot
from nas_lightning.validation import (
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Share,
    above,
    at_least,
    at_most,
    below,
    checked,
)

# What the papers whose parameters Adam descends have in common.


class Bilevel(OneShot):
    """A composition whose architecture parameters Adam descends.

    Args:
        space: the search space.
        supernet: its supernet.
        arch_betas: Adam's.
        arch_weight_decay: of the architecture parameters.
        **one_shot: see `OneShot`.
    """

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        arch_betas: tuple[Share, Share] = (0.5, 0.999),
        arch_weight_decay: NonNegativeFloat = 1e-3,
        **one_shot: Any,
    ) -> None:
        optimizer = Adam(betas=arch_betas, weight_decay=arch_weight_decay)
        super().__init__(space, supernet, arch_optimizer=optimizer, **one_shot)


# DARTS: differentiable architecture search (Liu et al. 2019, arXiv:1806.09055).


class Darts(Bilevel):
    """A softmax; first or second order (section 2.3).

    Args:
        space: the search space.
        supernet: its supernet.
        order: 1 differentiates L_val(w, β), 2 differentiates L_val(w'(β), β) through a step of w.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> darts = Darts(space, space.supernet(in_channels=1, num_classes=2, channels=2, cells=1), order=2)
    >>> len(darts.derive())
    1
    """

    made_of: ClassVar[tuple[str, ...]] = ("Softmax", "Softmax + SecondOrder")

    @checked
    def __init__(
        self, space: SearchSpace, supernet: Supernet, *, order: Literal[1, 2] = 1, **bilevel: Any
    ) -> None:
        super().__init__(space, supernet, arch_step=FirstOrder() if order == 1 else SecondOrder(), **bilevel)


# PR-DARTS: path-regularized differentiable search (Zhou et al. 2020, arXiv:2006.16537).
#
# Every operation has a stochastic gate of its own instead of a share of a softmax, so that skip connections
# do not win by taking from the others (section 4.1), and the architecture step descends
#
#     L_val + λ₁ L_skip + λ₂ L_nonskip − λ₃ L_path                                             (section 4.2)
#
# which makes skips costlier than other operations and deep cells likelier.


class PRDarts(Bilevel):
    """PR-DARTS on any space with skip connections, such as `darts` and `nasbench201`.

    Its defaults are for short runs: the regularizers act at τ below 1, and the rate of the public code, 3e-4,
    is for the paper's 40,000 steps.

    Args:
        space: the search space.
        supernet: its supernet.
        lambda_skip: λ₁; for this and the next four see `Sparsity`.
        lambda_nonskip: λ₂.
        pooling_group: pooling operations as a third group.
        threshold: penalize groups only above it.
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
        regularizer = [sparsity, PathDepth(lambda_path, path_sum)]
        super().__init__(
            space, supernet, sampler=sampler, regularizer=regularizer, arch_lr=arch_lr, **bilevel
        )


# GDAS: search by a differentiable sampler (Dong & Yang 2019, arXiv:1910.04465).


class Gdas(Bilevel):
    """GDAS: a step costs what one path costs.

    Args:
        space: the search space.
        supernet: its supernet.
        tau_start: τ in the first epoch.
        tau_end: and in the last; it falls linearly.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> gdas = Gdas(space, space.supernet(in_channels=1, num_classes=2, channels=2, cells=1))
    >>> gdas.relax().active["cell"].sum(dim=1).tolist()
    [1, 1, 1, 1, 1, 1]
    """

    made_of: ClassVar[tuple[str, ...]] = ("Gumbel",)

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        tau_start: PositiveFloat = 10.0,
        tau_end: PositiveFloat = 0.1,
        **bilevel: Any,
    ) -> None:
        super().__init__(space, supernet, sampler=Gumbel(tau_start, tau_end), **bilevel)


# SNAS: stochastic neural architecture search (Xie et al. 2019, arXiv:1812.09926).


class Snas(Bilevel):
    """Relaxed samples, and one loss for weights and architecture; give it all images: `train_fraction=1`.

    Args:
        space: the search space.
        supernet: its supernet.
        tau_start: τ in the first epoch.
        tau_end: and in the last; it falls linearly.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    >>> Snas(space, supernet).label
    'Snas'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Concrete + SingleLevel",)

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        tau_start: PositiveFloat = 1.0,
        tau_end: PositiveFloat = 0.03,
        **bilevel: Any,
    ) -> None:
        sampler = Concrete(tau_start, tau_end)
        super().__init__(space, supernet, sampler=sampler, arch_step=SingleLevel(), **bilevel)


# PC-DARTS: partially connected differentiable search (Xu et al. 2020, arXiv:1907.05737).


class PCDarts(Bilevel):
    """A softmax and weights of edges, on a supernet with `partial` > 1.

    Args:
        space: the search space.
        supernet: its supernet.
        arch_lr: learning rate of the architecture parameters.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import DartsSpace
    >>> space = DartsSpace()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1, partial=4)
    >>> weights = PCDarts(space, supernet).relax().weights["normal"]
    >>> round(weights[:2].sum().item(), 4)  # the two edges into the first inner node
    1.0
    """

    made_of: ClassVar[tuple[str, ...]] = ("Softmax + EdgeWeights",)

    @checked
    def __init__(
        self, space: SearchSpace, supernet: Supernet, *, arch_lr: PositiveFloat = 6e-4, **bilevel: Any
    ) -> None:
        super().__init__(space, supernet, partial=EdgeWeights(), arch_lr=arch_lr, **bilevel)


# FairDARTS: independent operations (Chu et al. 2020, arXiv:1911.12126).


class FairDarts(Bilevel):
    """A sigmoid for every operation, pulled to zero or one.

    Args:
        space: the search space.
        supernet: its supernet.
        zero_one: weight of L_01.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> fair = FairDarts(space, space.supernet(in_channels=1, num_classes=2, channels=2, cells=1))
    >>> round(float(fair.relax().weights["cell"].detach().mean()), 2)
    0.5
    """

    made_of: ClassVar[tuple[str, ...]] = ("Sigmoid + ZeroOne",)

    @checked
    def __init__(
        self, space: SearchSpace, supernet: Supernet, *, zero_one: NonNegativeFloat = 10.0, **bilevel: Any
    ) -> None:
        super().__init__(space, supernet, sampler=Sigmoid(), regularizer=[ZeroOne(zero_one)], **bilevel)


# GAEA: geometry-aware exponentiated gradient (Li et al. 2021, arXiv:2004.07802).


class Gaea(OneShot):
    """GAEA on the supernet of DARTS.

    Args:
        space: the search space.
        supernet: its supernet.
        single_level: descend L_train for weights and architecture in one pass, as empirical risk minimization
            (section 2.1), instead of L_val for the architecture. Give it all training images then:
            `search_data.train_fraction=1`.
        **one_shot: see `OneShot`; `arch_lr` is η.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> gaea = Gaea(space, space.supernet(in_channels=1, num_classes=2, channels=2, cells=1))
    >>> gaea.relax().weights["cell"][0].tolist() == [gaea.arch["cell"][0, 0]] * 5
    True
    """

    made_of: ClassVar[tuple[str, ...]] = ("Simplex", "Simplex + SingleLevel")

    def __init__(
        self, space: SearchSpace, supernet: Supernet, *, single_level: bool = False, **one_shot: Any
    ) -> None:
        step = SingleLevel() if single_level else FirstOrder()
        super().__init__(space, supernet, sampler=Simplex(), arch_step=step, **one_shot)


# DrNAS: Dirichlet neural architecture search (Chen et al. 2021, arXiv:2006.10355).


class DrNas(Bilevel):
    """Samples of a Dirichlet distribution, kept near the flat one.

    Args:
        space: the search space.
        supernet: its supernet.
        anchor: weight of the distance from it.
        arch_weight_decay: of the architecture parameters, which the anchor replaces.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    >>> DrNas(space, supernet).label
    'DrNas'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Dirichlet + Anchor", "Dirichlet + Widening + Anchor")

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        anchor: NonNegativeFloat = 1e-3,
        arch_weight_decay: NonNegativeFloat = 0.0,
        **bilevel: Any,
    ) -> None:
        super().__init__(
            space,
            supernet,
            sampler=Dirichlet(),
            regularizer=[Anchor(anchor)],
            arch_weight_decay=arch_weight_decay,
            **bilevel,
        )


# SmoothDARTS: perturbation-based regularization (Chen & Hsieh 2020, arXiv:2002.05283).


class SmoothDarts(Bilevel):
    """DARTS whose supernet is trained at weights near the architecture's.

    Args:
        space: the search space.
        supernet: its supernet.
        adversarial: at the worst of them, at seven more passes a step, instead of random ones.
        epsilon: largest change of a weight in the last epoch.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    >>> SmoothDarts(space, supernet).label
    'SmoothDarts'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Softmax + RandomNoise", "Softmax + Adversarial")

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        adversarial: bool = False,
        epsilon: PositiveFloat = 0.3,
        **bilevel: Any,
    ) -> None:
        perturbation = Adversarial(epsilon) if adversarial else RandomNoise(epsilon)
        super().__init__(space, supernet, perturbation=perturbation, **bilevel)


# DARTS−: an auxiliary skip connection (Chu et al. 2021, arXiv:2009.01027).


class DartsMinus(Bilevel):
    """DARTS with a skip connection beside every edge, which fades out.

    Args:
        space: the search space.
        supernet: its supernet.
        start: the connection's weight in the first epoch; it falls linearly to 0.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    >>> DartsMinus(space, supernet).label
    'DartsMinus'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Softmax + AuxiliarySkip",)

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        start: NonNegativeFloat = 1.0,
        **bilevel: Any,
    ) -> None:
        super().__init__(space, supernet, auxiliary=AuxiliarySkip(start), **bilevel)


# β-DARTS: beta-decay regularization (Ye et al. 2022, arXiv:2203.01665).


class BetaDarts(Bilevel):
    """DARTS whose largest weights decay.

    Args:
        space: the search space.
        supernet: its supernet.
        weight_end: λ of the decay in the last epoch; it grows linearly from 0.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    >>> BetaDarts(space, supernet).label
    'BetaDarts'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Softmax + BetaDecay",)

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        weight_end: NonNegativeFloat = 50.0,
        **bilevel: Any,
    ) -> None:
        super().__init__(space, supernet, regularizer=[BetaDecay(weight_end=weight_end)], **bilevel)


# Λ-DARTS: cells that agree on what operations are worth (Movahedi et al. 2023, arXiv:2210.07998).


class LambdaDarts(Bilevel):
    """DARTS whose supernet learns to have cells with like gradients for the architecture.

    Args:
        space: the search space.
        supernet: its supernet.
        weight_end: λ in the last epoch.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    >>> LambdaDarts(space, supernet).label
    'LambdaDarts'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Softmax + LayerAlignment",)

    @checked
    def __init__(
        self, space: SearchSpace, supernet: Supernet, *, weight_end: NonNegativeFloat = 0.125, **bilevel: Any
    ) -> None:
        regularizer = [LayerAlignment(weight_end=weight_end)]
        super().__init__(space, supernet, regularizer=regularizer, **bilevel)


# OLES: operation-level early stopping (Jiang et al. 2023, NeurIPS).


class Oles(Bilevel):
    """DARTS whose operations learn no more once they overfit.

    Args:
        space: the search space.
        supernet: its supernet.
        threshold: of the mean cosine; for this and the next see `GradientMatching`.
        steps: that it is the mean of.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    >>> Oles(space, supernet).label
    'Oles'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Softmax + GradientMatching",)

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        threshold: Annotated[float, at_least(-1), at_most(1)] = 0.4,
        steps: PositiveInt = 20,
        **bilevel: Any,
    ) -> None:
        super().__init__(space, supernet, freezing=GradientMatching(threshold, steps), **bilevel)


# What SPOS and FairNAS have in common: a supernet that paths train and evolution searches.


class SinglePath(OneShot):
    """Base of the papers that differ in which paths they train.

    Args:
        space: the search space.
        supernet: its supernet.
        data: where the validation images come from.
        population: architectures that are judged in each generation.
        generations: how many.
        **one_shot: see `OneShot`.
    """

    path_sampler: ClassVar[Paths]

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        data: SearchData,
        *,
        population: PositiveInt = 20,
        generations: PositiveInt = 5,
        **one_shot: Any,
    ) -> None:
        selection = InheritedEvolution(population, generations)
        super().__init__(space, supernet, data, sampler=self.path_sampler, selection=selection, **one_shot)


# Random search with weight sharing (Li & Talwalkar 2019, arXiv:1902.07638, section 3.2).


class RandomWS(OneShot):
    """The baseline that every strategy with shared weights must beat.

    Every step trains the path of an architecture drawn uniformly; then architectures are drawn again, judged
    with the shared weights on validation images, and the best is returned.

    Args:
        space: the search space.
        supernet: its supernet.
        data: where the validation images come from.
        candidates: architectures judged when a genotype is derived.
        valid_batches: batches that each of them is judged on, of all processes together.
        **one_shot: see `OneShot`.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=10, channels=2, cells=1)
    >>> search = RandomWS(space, supernet, SearchData(Digits()), candidates=10)
    >>> search.label, sorted(search.relax().weights["cell"].sum(dim=1).tolist())
    ('RandomWS', [1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    """

    made_of: ClassVar[tuple[str, ...]] = ("Uniform + RandomCandidates",)

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        data: SearchData,
        *,
        candidates: PositiveInt = 100,
        valid_batches: PositiveInt = 4,
        **one_shot: Any,
    ) -> None:
        selection = RandomCandidates(candidates, valid_batches)
        super().__init__(space, supernet, data, sampler=Uniform(), selection=selection, **one_shot)


# Single Path One-Shot (Guo et al. 2020, arXiv:1904.00420).


class Spos(SinglePath):
    """Uniform paths, then evolution over the shared weights; its arguments are those of `SinglePath`.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    >>> Spos(space, supernet, SearchData(Digits())).label
    'Spos'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Uniform + InheritedEvolution",)
    path_sampler: ClassVar[Paths] = Uniform()


# FairNAS: strict fairness (Chu et al. 2021, arXiv:1907.01845).


class FairNas(SinglePath):
    """Paths that train every operation equally often, then evolution over the shared weights.

    Its arguments are those of `SinglePath`.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    >>> FairNas(space, supernet, SearchData(Digits())).label
    'FairNas'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Fair + InheritedEvolution",)
    path_sampler: ClassVar[Paths] = Fair()


# DARTS as it searches activations and skips (Zhu et al. 2022, arXiv:2209.07238, section 5.1).


class ActivationSearch(Bilevel):
    """First-order DARTS whose decisions between `none` and `skip_connect` are clipped weights.

    In spaces without such groups it is DARTS.

    Args:
        space: the search space.
        supernet: its supernet.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import Mlp
    >>> space = Mlp(layers=3)
    >>> search = ActivationSearch(space, space.supernet(in_channels=1, num_classes=2, width=4))
    >>> search.relax().weights["skip"].tolist()
    [[0.5, 0.5]]
    """

    made_of: ClassVar[tuple[str, ...]] = ("ClippedSkips",)

    def __init__(self, space: SearchSpace, supernet: Supernet, **bilevel: Any) -> None:
        super().__init__(space, supernet, sampler=ClippedSkips(), **bilevel)
