"""Samplers: how architecture parameters become weights of operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.group import Group, without_none
from nas_lightning.spaces.operations import NONE, SKIP
from nas_lightning.strategies.one_shot.parts import Arch, Epoch, Groups, Noise, Parts, RelaxedWeights, Sampler
from nas_lightning.strategies.one_shot.relaxations import (
    STRETCHED,
    gate_probability,
    gumbel,
    hard_concrete,
    largest,
    one_hot,
    saturated_share,
    straight_through_gumbel,
    uniform_noise,
)
from nas_lightning.utils.devices import double
from nas_lightning.validation import PositiveFloat, PositiveInt, Share, above, at_least, below, checked

# Samplers with a temperature schedule.


@checked
@dataclass(frozen=True)
class TemperatureSampler(Sampler):
    """Base class of samplers with a temperature τ.

    Args:
        tau_start: τ in the first epoch.
        tau_end: τ in the last epoch; the schedule is linear.

    >>> from nas_lightning.strategies.one_shot.samplers import Gumbel
    >>> Gumbel(tau_start=10.0, tau_end=1.0).tau(Epoch(1, of=3))
    5.5
    """

    tau_start: PositiveFloat = 10.0
    tau_end: PositiveFloat = 0.1

    def __post_init__(self) -> None:
        if self.tau_start < self.tau_end:
            got = f"{self.tau_start} and {self.tau_end}"
            raise InputError("`tau_start` must be at least `tau_end`", got=got, where="strategy.sampler")

    def tau(self, epoch: Epoch) -> float:
        """Return τ in an epoch."""
        return epoch.between(self.tau_start, self.tau_end)

    def metrics(self, arch: Arch, epoch: Epoch, groups: Groups) -> Mapping[str, float | Tensor]:
        return {"tau": self.tau(epoch)}


# DARTS' weights: a softmax over the operations of an edge (Liu et al. 2019, arXiv:1806.09055).


class Softmax(Sampler):
    """w_o = exp(β_o) / Σ_{o'} exp(β_{o'})  (equation 2).

    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> Softmax().weights(torch.zeros(1, 2), [], Epoch(0, of=2), group)
    tensor([[0.5000, 0.5000]])
    """

    softmax: ClassVar[bool] = True

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        return torch.softmax(beta, dim=-1)

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        return torch.softmax(beta, dim=-1)


# FairDARTS' weights: independent operations (Chu et al. 2020, arXiv:1911.12126, section 3.3).


class Sigmoid(Sampler):
    """w_o = σ(α_o), so that operations do not compete.

    The loss does not depend on the weight of the zero operation, so it is never derived.

    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> Sigmoid().weights(torch.zeros(1, 2), [], Epoch(0, of=2), group)
    tensor([[0.5000, 0.5000]])
    """

    shares: ClassVar[bool] = False

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        return torch.sigmoid(beta)

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        return torch.sigmoid(beta)

    def scores(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        return without_none(torch.sigmoid(beta), group)


# GAEA's weights: parameters that are the shares themselves (Li et al. 2021, arXiv:2004.07802).


class Simplex(Sampler):
    """w = α, a point of the simplex for every row, initially its center.

    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> Simplex().initial(group, torch.Generator())
    tensor([[0.5000, 0.5000]])
    """

    on_simplex: ClassVar[bool] = True

    def initial(self, group: Group, generator: torch.Generator) -> Tensor:
        return torch.full(group.shape, 1 / group.shape[1])

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        return beta

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        return beta


# Uniform paths: each step trains one architecture of the space (Li & Talwalkar 2019, arXiv:1902.07638; Guo et
#     al. 2020, arXiv:1904.00420, section 3.2).


class Paths(Sampler):
    """Base class of samplers without parameters; their noise is the weights of whole architectures."""

    varies: ClassVar[bool] = True
    learns: ClassVar[bool] = False

    def relax(self, arch: Arch, noise: Noise, epoch: Epoch, groups: Groups) -> RelaxedWeights:
        return RelaxedWeights({name: drawn[0] for name, drawn in noise.items()})

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        return noise[0]

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        expected = "The sampler must have parameters, because probabilities depend on them"
        raise InputError(expected, got=type(self).__name__, where="sampler")


class Uniform(Paths):
    """w = one-hot of an architecture that is drawn uniformly from the space.

    >>> from nas_lightning.spaces import NasBench201
    >>> noise = Uniform().draw({}, NasBench201(), torch.Generator().manual_seed(0))
    >>> noise["cell"][0].sum(dim=1)  # one operation an edge
    tensor([1., 1., 1., 1., 1., 1.])
    """

    def draw(self, arch: Arch, space: SearchSpace, generator: torch.Generator) -> Noise:
        return {name: [matrix] for name, matrix in space.one_hot(space.sample(generator)).items()}


# FairNAS' paths: every operation is trained equally often (Chu et al. 2021, arXiv:1907.01845).


class Fair(Paths):
    """A step trains m paths that together take each of an edge's m operations once.

    Their gradients are added, and the weights take one step (strict fairness, definition 2 and algorithm 1).
    Path k takes the k-th operation of every row in a random order.

    >>> from nas_lightning.spaces import NasBench201
    >>> space, sampler = NasBench201(), Fair()
    >>> paths = sampler.paths(sampler.draw({}, space, torch.Generator().manual_seed(0)))
    >>> sum(path["cell"][0] for path in paths)[0]  # each operation of an edge once
    tensor([1., 1., 1., 1., 1.])
    """

    varies: ClassVar[bool] = True

    def check(self, parts: Parts, space: SearchSpace) -> None:
        sizes = {group.shape[1] for group in space.groups.values()}
        if len(sizes) != 1 or any(group.draw != 1 for group in space.groups.values()):
            expected = (
                "This needs a space whose rows all choose one of equally many operations, so that m paths"
            )
            raise InputError(f"{expected} are fair to each", got=space.name, where="space")

    def draw(self, arch: Arch, space: SearchSpace, generator: torch.Generator) -> Noise:
        shapes = {name: group.shape for name, group in space.groups.items()}
        noise = {name: uniform_noise(torch.empty(shape), generator) for name, shape in shapes.items()}
        return {name: fair_paths(matrix) for name, matrix in noise.items()}

    def paths(self, noise: Noise) -> list[Noise]:
        count = len(next(iter(noise.values())))
        return [{name: [drawn[path]] for name, drawn in noise.items()} for path in range(count)]


def fair_paths(noise: Tensor) -> list[Tensor]:
    """Return m one-hot matrices whose sum is all ones, in random order: (edges, ops) each."""
    order = noise.argsort(dim=-1)  # a permutation of the operations of each row
    return [torch.zeros_like(noise).scatter(-1, order[:, k : k + 1], 1.0) for k in range(noise.shape[-1])]


# GDAS' weights: one sampled operation per edge (Dong & Yang 2019, arXiv:1910.04465).
#
# A step costs what one path costs; the parameters learn by the straight-through estimator.


@checked
@dataclass(frozen=True)
class Gumbel(TemperatureSampler):
    """w = one-hot of arg max(β + G) forward, softmax((β + G)/τ) backward  (equations 3 and 4).

    Args:
        tau_start: τ in the first epoch.
        tau_end: τ in the last epoch; the schedule is linear.

    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> half = torch.full((1, 2), 0.5)
    >>> Gumbel().weights(torch.tensor([[-1.0, 1.0]]), [half], Epoch(0, of=2), group)
    tensor([[0., 1.]])
    """

    noises: ClassVar[int] = 1
    varies: ClassVar[bool] = True
    sparse: ClassVar[bool] = True
    softmax: ClassVar[bool] = True

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        return straight_through_gumbel(beta, noise[0], self.tau(epoch), group.draw)

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        return torch.softmax(beta, dim=-1)


# SNAS' weights: a relaxed sample of one operation per edge (Xie et al. 2019, arXiv:1812.09926).


@checked
@dataclass(frozen=True)
class Concrete(TemperatureSampler):
    """w = softmax((β + G)/τ), G standard Gumbel  (section 2.3).

    The gradient is exact; every operation is computed.

    Args:
        tau_start: τ in the first epoch.
        tau_end: τ in the last epoch; the schedule is linear.

    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> half = torch.full((1, 2), 0.5)
    >>> Concrete().weights(torch.zeros(1, 2), [half], Epoch(0, of=2), group)
    tensor([[0.5000, 0.5000]])
    """

    tau_start: PositiveFloat = 1.0
    tau_end: PositiveFloat = 0.03

    noises: ClassVar[int] = 1
    softmax: ClassVar[bool] = True

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        return torch.softmax((beta + gumbel(noise[0])) / self.tau(epoch), dim=-1)

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        return torch.softmax(beta, dim=-1)


# DrNAS' weights: a sample of a Dirichlet distribution (Chen et al. 2021, arXiv:2006.10355).
#
#     w ~ Dir(c),   c = elu(β) + 1                                                             (section 2.2)
#
# A sample is a row of Gamma variables divided by their sum. Here each is its quantile at a uniform number,
# x_o = F⁻¹(u_o; c_o), a pure function of parameters and noise, whose derivative
#
#     ∂x/∂c = −(∂F(x; c)/∂c) / p(x; c)
#
# is the implicit reparametrization of the paper (Figurnov et al. 2018, arXiv:1805.08498, equation 5).

_SMALLEST = 1e-30  # of a Gamma variable: smaller ones have no weight next to any other


class Dirichlet(Sampler):
    """w ~ Dir(elu(β) + 1); the genotype follows from the mean.

    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> Dirichlet().probabilities(torch.tensor([[0.0, 2.0]]), Epoch(0, of=2), group)  # of (1, 3)
    tensor([[0.2500, 0.7500]])
    """

    noises: ClassVar[int] = 1

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        gammas = gamma_quantile(double(concentration(beta)), double(noise[0]))
        return (gammas / gammas.sum(dim=-1, keepdim=True)).to(beta.dtype).to(beta.device)

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        """Return E[w] = c / Σ c."""
        c = concentration(beta)
        return c / c.sum(dim=-1, keepdim=True)


def concentration(beta: Tensor) -> Tensor:
    """Return c = elu(β) + 1 > 0: (edges, ops)."""
    return (F.elu(beta) + 1).clamp_min(torch.finfo(beta.dtype).tiny)


def gamma_quantile(c: Tensor, u: Tensor) -> Tensor:
    """Return the quantile F⁻¹(u; c) of the Gamma distribution with shape c and scale 1.

    >>> gamma_quantile(torch.tensor([1.0]), torch.tensor([0.5])).item()  # −ln(1 − u) where c = 1
    0.6931471824645996
    """
    return _GammaQuantile.apply(c, u)


class _GammaQuantile(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, c: Tensor, u: Tensor) -> Tensor:
        from scipy.special import gammaincinv  # half a second to import

        quantiles = gammaincinv(c.detach().cpu().double().numpy(), u.detach().cpu().double().numpy())
        x = torch.as_tensor(quantiles).to(c).clamp_min(_SMALLEST)
        ctx.save_for_backward(c, x)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        c, x = ctx.saved_tensors
        slope = torch._standard_gamma_grad(c, x)  # no public function has this derivative
        return gradients[0] * torch.where(x > _SMALLEST, slope, torch.zeros_like(slope)), None


# PR-DARTS' weights: a stochastic gate for every operation (Zhou et al. 2020, arXiv:2006.16537, section 4.1).
#
# ḡ = Θ((ln u − ln(1 − u) + β)/τ),   g = min(1, max(0, a + (b − a) ḡ)),   P(g ≠ 0) = Θ(β − τ ln(−a/b))


@checked
@dataclass(frozen=True)
class HardConcrete(TemperatureSampler):
    """Gates, of which a step computes only the largest of an edge.

    Ties are broken at random, as in the authors' code; the paper samples two operations. The zero operation
    has a gate during the search, but the loss does not depend on it, so no genotype is derived from it.
    τ starts at 1 as in the authors' code: at the paper's 10, P rounds to 1 and the regularizers have no
    gradient, so that only a part of a long search has any.

    Args:
        tau_start: τ in the first epoch.
        tau_end: τ in the last epoch; the schedule is linear.
        active_ops: number of operations per edge that a step computes.
        low: a, the lower end of the stretched gates, which are clipped to [0, 1].
        high: b, the upper end.

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
            raise InputError(f"`active_ops` must be from 1 to {fewest}", got=self.active_ops, where=where)

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        gates = hard_concrete(beta, noise[0], self.tau(epoch), self.stretched)
        return gates * largest(gates, self.active_ops, noise[1])

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        return gate_probability(beta, self.tau(epoch), self.stretched)

    def scores(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        """Return P at the last temperature: at any the order is the same, but at high ones P rounds to 1."""
        return without_none(gate_probability(beta, self.tau_end, self.stretched), group)

    def metrics(self, arch: Arch, epoch: Epoch, groups: Groups) -> Mapping[str, float | Tensor]:
        tau = self.tau(epoch)
        shares = {name: saturated_share(arch[name].detach(), tau, self.stretched) for name in groups}
        return {"tau": tau, **{f"gate_saturation/{name}": share for name, share in shares.items()}}


@checked
@dataclass(frozen=True)
class BinaryGates(HardConcrete):
    """Gates as in the authors' code (salesforce/PR-DARTS): 1 for the chosen operations of an edge, else 0.

    Chosen are those with the largest g − d, where d is 1 for a random share of the operations and 0 for the
    others, so that all are explored; a chosen gate passes the gradient of its g straight through. The
    genotype is derived from softmax(β).

    Args:
        tau_start: τ in the first epoch.
        tau_end: τ in the last epoch; the schedule is linear.
        active_ops: number of operations per edge that a step computes.
        low: a, the lower end of the stretched gates, which are clipped to [0, 1].
        high: b, the upper end.
        withheld: probability that d is 1.

    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_1x1", "nor_conv_3x3"))
    >>> beta, half = torch.tensor([[-1.0, 0.0, 9.0]]), torch.full((1, 3), 0.5)
    >>> noise = [half, half, torch.tensor([[0.9, 0.9, 0.1]])]  # the last operation is withheld
    >>> BinaryGates(active_ops=1).weights(beta, noise, Epoch(0, of=2), group)
    tensor([[0., 1., 0.]])
    """

    withheld: Share = 0.4

    noises: ClassVar[int] = 3  # of the gates, of their ties, of the withheld operations

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        gates = hard_concrete(beta, noise[0], self.tau(epoch), self.stretched)
        worth = gates.detach() - (noise[2] < self.withheld).to(gates)
        return largest(worth, self.active_ops, noise[1]) * (1 + (gates - gates.detach()))

    def scores(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        return without_none(torch.softmax(beta, dim=-1), group)


# ReinMax' weights: one sampled operation, with a second-order gradient (Liu et al. 2023, arXiv:2304.08612).
#
# With D one-hot from π₀ = softmax(β), the estimator of ∂E[f(D)]/∂β is (algorithm 2)
#
#     π₁ = (D + softmax(β/τ))/2,   ∇ = 2 J(π₁)ᵀ ∂f/∂D − ½ J(π₀)ᵀ ∂f/∂D,   J(π) = diag(π) − π πᵀ,
#
# which is Heun's method where the straight-through estimator is Euler's: exact for quadratic f at τ = 1.


@checked
@dataclass(frozen=True)
class ReinMax(Sampler):
    """A one-hot sample with a second-order gradient estimator.

    A weight step computes one path; an architecture step computes all operations, because it needs ∂f/∂D.

    Args:
        tau: τ of the estimator; the paper recommends 1 or more.

    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> half = torch.full((1, 2), 0.5)
    >>> ReinMax().weights(torch.tensor([[-1.0, 1.0]]), [half], Epoch(0, of=2), group)
    tensor([[0., 1.]])
    """

    tau: Annotated[float, at_least(1)] = 1.0

    noises: ClassVar[int] = 1
    varies: ClassVar[bool] = True
    sparse: ClassVar[bool] = False
    softmax: ClassVar[bool] = True

    def check(self, parts: Parts, space: SearchSpace) -> None:
        if any(group.draw != 1 for group in space.groups.values()):
            expected = "ReinMax needs a space that draws one candidate a row"
            raise InputError(expected, got=space.name, where="space")

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        return reinmax(beta, noise[0], self.tau)

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        return torch.softmax(beta, dim=-1)


def reinmax(beta: Tensor, noise: Tensor, tau: float) -> Tensor:
    """Return D with the gradient of 2 π₁ − ½ π₀: (edges, ops)."""
    sample = one_hot(beta.detach() + gumbel(noise))
    between = (sample + torch.softmax(beta.detach() / tau, dim=-1)) / 2
    logits = between.clamp_min(torch.finfo(between.dtype).tiny).log() - beta.detach()  # π₁ as a softmax of β
    soft = 2 * torch.softmax(logits + beta, dim=-1) - torch.softmax(beta, dim=-1) / 2
    return sample + (soft - soft.detach())


# Activation search: separate weights for skips (Zhu et al. 2022, arXiv:2209.07238, section 5.1).
#
# Activations share a softmax, as DARTS' operations do. Whether to keep a skip is a separate decision: its
# weight α_l starts at ½ and is clipped to [0, 1] after every step; the skip is kept if α_l > ½. The paper
# does not mention weight decay of α; here there is none, because it would pull α below ½ regardless of the
# loss.


class ClippedSkips(Softmax):
    """A softmax, and a clipped weight for decisions between `none` and `skip_connect`.

    In spaces without such groups it is DARTS' softmax.

    >>> group, generator = Group(((0,),), ("none", "skip_connect")), torch.Generator()
    >>> sampler = ClippedSkips()
    >>> sampler.weights(sampler.initial(group, generator), [], Epoch(0, of=2), group)
    tensor([[0.5000, 0.5000]])
    >>> sampler.project(torch.tensor([[1.3]]), group)  # after a step
    tensor([[1.]])
    """

    softmax: ClassVar[bool] = False

    def initial(self, group: Group, generator: torch.Generator) -> Tensor:
        """Return 10⁻³ N(0, 1) for a softmax, ½ for the weight of each skip: (rows, 1)."""
        start = super().initial(group, generator)
        return torch.full((len(start), 1), 0.5) if is_skip(group) else start

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        return self.probabilities(beta, epoch, group)

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        return clipped_weights(beta, group) if is_skip(group) else torch.softmax(beta, dim=-1)

    def project(self, beta: Tensor, group: Group) -> Tensor:
        return beta.clamp(0.0, 1.0) if is_skip(group) else beta

    def decays(self, group: Group) -> bool:
        return not is_skip(group)


def is_skip(group: Group) -> bool:
    """Return whether the group decides between a skip and nothing."""
    return set(group.ops) == {NONE, SKIP} and not group.own


def clipped_weights(alpha: Tensor, group: Group) -> Tensor:
    """Return α for the skip and 1 − α for `none`, which the loss does not depend on: (rows, 2)."""
    columns = {SKIP: alpha, NONE: 1 - alpha}
    return torch.cat([columns[op] for op in group.ops], dim=-1)
