"""Search strategies: LightningModules that derive genotypes."""

from nas_lightning.strategies.base import Strategy
from nas_lightning.strategies.black_box.eigen_nas import EigenNas, Knas
from nas_lightning.strategies.black_box.evolution import Evolution
from nas_lightning.strategies.black_box.hnas import Hnas
from nas_lightning.strategies.black_box.optuna import OptunaSearch
from nas_lightning.strategies.black_box.pool import Greedy, MetricSearch, Predictor, RandomSearch, Robot
from nas_lightning.strategies.derivation import Perturbation, Pruning, Shapley, ZeroCost
from nas_lightning.strategies.nasi import Nasi
from nas_lightning.strategies.nesbs.strategy import Nesbs
from nas_lightning.strategies.one_shot.arch_steps import (
    Adam,
    ExponentiatedGradient,
    FirstOrder,
    SecondOrder,
    SingleLevel,
)
from nas_lightning.strategies.one_shot.connections import AuxiliarySkip, EdgeWeights, Widening
from nas_lightning.strategies.one_shot.freezing import GradientMatching
from nas_lightning.strategies.one_shot.papers import (
    ActivationSearch,
    Darts,
    FairDarts,
    Gaea,
    Gdas,
    PCDarts,
    PRDarts,
    RandomWS,
)
from nas_lightning.strategies.one_shot.parts import Epoch, RelaxedWeights, Sampler, WeightPerturbation
from nas_lightning.strategies.one_shot.perturbations import Adversarial, RandomNoise
from nas_lightning.strategies.one_shot.regularizers import (
    Anchor,
    BetaDecay,
    LayerAlignment,
    PathDepth,
    Sparsity,
    ZeroOne,
)
from nas_lightning.strategies.one_shot.samplers import (
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
from nas_lightning.strategies.one_shot.stopping import SkipLimit, StableRanking
from nas_lightning.strategies.one_shot.strategy import OneShot
from nas_lightning.strategies.supernet import SupernetStrategy

__all__ = [
    "ActivationSearch",
    "Adam",
    "Adversarial",
    "Anchor",
    "AuxiliarySkip",
    "BetaDecay",
    "ClippedSkips",
    "Concrete",
    "Darts",
    "Dirichlet",
    "EdgeWeights",
    "EigenNas",
    "Epoch",
    "Evolution",
    "ExponentiatedGradient",
    "Fair",
    "FairDarts",
    "FirstOrder",
    "Gaea",
    "Gdas",
    "GradientMatching",
    "Greedy",
    "Gumbel",
    "HardConcrete",
    "Hnas",
    "InheritedEvolution",
    "Knas",
    "LayerAlignment",
    "MetricSearch",
    "Nasi",
    "Nesbs",
    "OneShot",
    "OptunaSearch",
    "PCDarts",
    "PRDarts",
    "PathDepth",
    "Perturbation",
    "Predictor",
    "Pruning",
    "RandomCandidates",
    "RandomNoise",
    "RandomSearch",
    "RandomWS",
    "ReinMax",
    "RelaxedWeights",
    "Robot",
    "Sampler",
    "SecondOrder",
    "Shapley",
    "Sigmoid",
    "Simplex",
    "SingleLevel",
    "SkipLimit",
    "Softmax",
    "Sparsity",
    "StableRanking",
    "Strategy",
    "SupernetStrategy",
    "Uniform",
    "WeightPerturbation",
    "Widening",
    "ZeroCost",
    "ZeroOne",
]
