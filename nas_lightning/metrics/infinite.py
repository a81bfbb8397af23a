"""Neural tangent kernels of infinitely wide networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from nas_lightning.errors import InputError
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.engine import Passes
from nas_lightning.metrics.kernel import Kernel
from nas_lightning.spaces.activations import ACTIVATIONS, SLOPE, LayeredBackbone
from nas_lightning.spaces.network import Network
from nas_lightning.utils.devices import double

# E[σ(u) σ(v)] for Gaussian (u, v), the layers of infinitely wide networks.
#
# ReLU and LeakyReLU have closed forms (Cho & Saul 2009, the arc-cosine kernels). Other activations are
# expanded in Hermite polynomials h_k that are orthonormal under the Gaussian (Mehler's formula): for u = s
# z, v = s' z' with standard normal z, z' of correlation ρ,
#
#     E[σ(u) σ(v)] = Σ_k ρ^k c_k(s) c_k(s'),   c_k(s) = E[σ(s z) h_k(z)].
#
# The remainder after K terms is at most ρ^K √(t_K(s) t_K(s')), t_K(s) = E σ(s z)² − Σ_{k<K} c_k(s)², by the
# inequality of Cauchy and Schwarz; terms are added until it is small. Unlike a quadrature in two dimensions
# this has an error bound, and costs N instead of N² integrals.

Function = Callable[[Tensor], Tensor]
_KINKS = {"relu": 0.0, "leaky_relu": SLOPE}  # max(ηx, x)
_REACH = 12.0  # beyond it e^(−z²/4) is below the precision of float64
_STEP = 0.02  # of the quadrature in one dimension
_FINEST = 2000.0  # largest standard deviation
_MOST_TERMS = 2**16


class Moments(NamedTuple):
    """Moments of an activation σ, at preactivations of covariance A."""

    product: Tensor
    """E[σ(u_i) σ(u_j)], (N, N)."""
    slopes: Tensor
    """E[σ′(u_i) σ′(u_j)], (N, N)."""
    mean: Tensor
    """E[σ(u_i)], (N,)."""


def moments(name: str, A: Tensor, tolerance: float = 1e-9) -> Moments:
    """Return the moments of the activation of that name, for covariances (N, N) in float64.

    >>> A = torch.eye(2, dtype=torch.float64)
    >>> [round(value, 4) for value in moments("relu", A).product[0].tolist()]  # 1/2 and 1/(2π)
    [0.5, 0.1592]
    """
    if name in _KINKS:
        return _of_kink(_KINKS[name], A)
    sigma = ACTIVATIONS[name]
    product, mean = expectation(sigma, A, tolerance)
    return Moments(product, expectation(lambda x: slope(sigma, x), A, tolerance)[0], mean)


def slope(sigma: Function, x: Tensor) -> Tensor:
    """Return σ′ at each entry."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(sigma(x).sum(), x)[0]


def _of_kink(eta: float, A: Tensor) -> Moments:
    """Return the moments of σ(x) = max(ηx, x), with θ the angle between u and v:

    E[σ(u) σ(v)] = η A_uv + (1 − η)² √(A_uu A_vv) (sin θ + (π − θ) cos θ)/2π
    E[σ′(u) σ′(v)] = η + (1 − η)² (π − θ)/2π,   E[σ(u)] = (1 − η) √(A_uu/2π)
    """
    s = A.diagonal().sqrt()
    norms = s[:, None] * s[None, :]
    cos = _correlation(A)
    theta = torch.arccos(cos)
    # 1 − cos² loses half of the digits where u and v are nearly parallel
    sin = ((1 - cos) * (1 + cos)).sqrt()
    arc = norms * (sin + (math.pi - theta) * cos) / (2 * math.pi)
    slopes = eta + (1 - eta) ** 2 * (math.pi - theta) / (2 * math.pi)
    return Moments(eta * A + (1 - eta) ** 2 * arc, slopes, (1 - eta) * s / math.sqrt(2 * math.pi))


def expectation(sigma: Function, A: Tensor, tolerance: float = 1e-9) -> tuple[Tensor, Tensor]:
    """Return E[σ(u_i) σ(u_j)] and E[σ(u_i)] by the expansion: (N, N) → (N, N), (N,).

    Args:
        sigma: a smooth function; one with a kink needs too many terms and raises.
        A: the covariance of u, in float64.
        tolerance: error relative to the largest E σ(u_i)².
    """
    s = A.diagonal().sqrt()
    if not bool(torch.isfinite(s).all()) or float(s.max()) > _FINEST:
        raise InputError(f"Standard deviations must be at most {_FINEST:g}", got=float(s.max()))
    rho = _correlation(A)
    z, values, weight = _nodes(sigma, s)
    squares = (values**2 * (weight**2 / math.sqrt(2 * math.pi) * (z[1] - z[0]))).sum(dim=1)  # E σ(s z)²
    total, left = torch.zeros_like(A), squares.clone()
    power = torch.ones_like(A)  # ρ^k
    off = ~torch.eye(len(A), dtype=torch.bool)
    before, polynomial, means = torch.zeros_like(z), weight, torch.zeros_like(s)
    values = values * (weight / math.sqrt(2 * math.pi) * (z[1] - z[0]))
    # h_k oscillates with √k; the grid resolves only so many terms
    terms = min(_MOST_TERMS, int((math.pi / 2 / (z[1] - z[0])) ** 2))
    for k in range(terms):
        c = values @ polynomial  # c_k(s_i), (N,)
        means = c if k == 0 else means
        total += power * torch.outer(c, c)
        left = (left - c**2).clamp_min(0.0)
        power = power * rho
        bound = (power.abs() * torch.outer(left, left).sqrt())[off]
        if not bool((bound > tolerance * squares.max()).any()):
            return torch.where(off, total, torch.diag(squares)), means
        # √(k+1) h_{k+1} = z h_k − √k h_{k−1}, each times e^(−z²/4)
        before, polynomial = polynomial, (z * polynomial - math.sqrt(k) * before) / math.sqrt(k + 1)
    raise InputError(
        f"The activation is not smooth enough for {terms:,} terms of its Hermite expansion",
        got=f"an error of up to {float(bound.max() / squares.max()):.1g}",
        where=f"tolerance={tolerance:g}",
    )


def _nodes(sigma: Function, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return z on a uniform grid, σ(s_i z), and e^(−z²/4): the trapezoidal rule.

    Its error falls as e^(−2πd/h), with h the step and ±d i the singularities of σ(s z), for tanh d = π/(2 s).
    """
    step = min(_STEP, 0.25 / float(s.max().clamp_min(1e-12)))
    count = math.ceil(_REACH / step)
    z = torch.arange(-count, count + 1, dtype=s.dtype) * step
    return z, sigma(s[:, None] * z), torch.exp(-(z**2) / 4)


def _correlation(A: Tensor) -> Tensor:
    """Return ρ, clamped to [−1, 1], and 0 where a variance is 0."""
    s = A.diagonal().sqrt()
    rho = torch.where(A == 0, A, A / (s[:, None] * s[None, :])).clamp(-1.0, 1.0)
    return rho.fill_diagonal_(1.0)


# The neural tangent kernel of infinitely wide `mlp` networks (Zhu et al. 2022, arXiv:2209.07238, lemma 1).
#
# For f_l = √(2/m) σ_l(W_l f_{l−1}) + α_{l−1} f_{l−1}, W ~ N(0, 1), f_0 = x, α ∈ {0, 1}, the covariances A⁽ˡ⁾
# of f_{l−1} and the kernels Θ⁽ˡ⁾ of f_l follow layer by layer; with G and Ġ, twice the moments of σ_l and
# σ_l′ at A⁽ˡ⁾,
#
#     A⁽¹⁾ = X Xᵀ,   A⁽ˡ⁺¹⁾ = G + α_{l−1} (A⁽ˡ⁾ + a sᵀ + s aᵀ),   Θ⁽ˡ⁾ = Ġ ∘ (A⁽ˡ⁾ + Θ⁽ˡ⁻¹⁾) + α_{l−1} Θ⁽ˡ⁻¹⁾
#
# and K = A⁽ᴸ⁾ + Θ⁽ᴸ⁻¹⁾. Here a = √2 E σ_l, and s = Σ_units f_{l−1}/√m, the sum of a over the layers joined
# by skips. Lemma 1 differs if there are skips: it lacks a sᵀ + s aᵀ, which vanishes only for activations of
# mean zero (Sigmoid − ½ and Tanh), and has G⁽ˡ⁾ for A⁽ˡ⁾ where W_l and W_L see f_{l−1} with its skip.
# `lemma=True` is lemma 1 as printed; networks of growing width approach the default.


def infinite_ntk(
    gram: Tensor,
    activations: Sequence[str],
    skips: Sequence[bool],
    *,
    lemma: bool = False,
    tolerance: float = 1e-9,
) -> Kernel:
    """Return K of one output, for inputs with these products.

    Args:
        gram: X Xᵀ, (N, N).
        activations: σ_1, …, σ_{L−1}.
        skips: α_1, …, α_{L−2}.
        lemma: lemma 1 as printed.
        tolerance: relative error of each layer's moments.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> infinite_ntk(x @ x.T, ["relu"], []).matrix[0, 0]  # A + Θ = 1 + 1
    tensor(2., dtype=torch.float64)
    """
    if not activations or len(skips) != len(activations) - 1:
        got = f"{len(activations)} activations and {len(skips)} skips"
        raise InputError("There must be at least one activation, and one skip less than activations", got=got)
    A = double(gram).cpu()  # small matrices, and integrals on grids
    seen = A  # what the weights of the next layer see
    theta, s = torch.zeros_like(A), torch.zeros(len(A), dtype=A.dtype)
    for name, alpha in zip(activations, [False, *skips], strict=True):
        product, slopes, mean = moments(name, A, tolerance)
        G, a = 2 * product, 2**0.5 * mean
        theta = 2 * slopes * (seen + theta) + alpha * theta
        cross = torch.outer(a, s) + torch.outer(s, a)
        A = G + alpha * (A if lemma else A + cross)
        s = a + alpha * s
        seen = G if lemma else A
    return Kernel(seen + theta, precision=tolerance)


@dataclass(frozen=True)
class InfiniteNTKLambdaMin(Metric):
    """λ_min of the infinitely wide network with the same activations and skips, at inputs x/√d.

    For the spaces `mlp` and `two_layer`; independent of the weights.

    Args:
        lemma: lemma 1 of arXiv:2209.07238 as printed, which finite networks with skips do not approach.

    >>> from nas_lightning.spaces import Mlp
    >>> space = Mlp(layers=3)
    >>> sizes = {"in_channels": 1, "num_classes": 2, "width": 4, "side": 2}
    >>> network = space.network(space.parse("relu|tanh"), **sizes)
    >>> batch = torch.randn(4, 1, 2, 2), torch.tensor([0, 1, 0, 1])
    >>> InfiniteNTKLambdaMin()(network, batch).item() > 0
    True
    """

    counts_only: ClassVar[bool] = True
    layered_only: ClassVar[bool] = True

    lemma: bool = False

    def compute(self, passes: Passes) -> float:
        backbone = layered_backbone(passes.network)
        x = double(backbone.vectors(passes.x.detach()))  # (m, d)
        activations, skips = backbone.decisions
        return infinite_ntk(x @ x.T / x.shape[1], activations, skips, lemma=self.lemma).lambda_min


def layered_backbone(network: nn.Module) -> LayeredBackbone:
    """Return the backbone, which knows activations and skips."""
    if not isinstance(network, Network) or not isinstance(network.backbone, LayeredBackbone):
        raise InputError(
            "The network must be one of space=mlp or space=two_layer",
            got=type(network).__name__,
            where="metric",
        )
    return network.backbone
