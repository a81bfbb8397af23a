"""Eigen-NAS and its theory (Zhu et al. 2022, arXiv:2209.07238)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import product
from math import log, prod, sqrt
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F

from nas_lightning.data import ImageData, SearchData
from nas_lightning.errors import InputError, near_match
from nas_lightning.frozen_map import FrozenMap
from nas_lightning.genotype import Genotype
from nas_lightning.metrics.infinite import expectation, infinite_ntk, moments, slope
from nas_lightning.metrics.recording import Scheme
from nas_lightning.objectives.tables import OracleAccuracy, TabularBenchmark, table_accuracy
from nas_lightning.plots.comparisons import ACTIVATION_COLORS, draw_activations
from nas_lightning.plots.style import INK, tidy
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces import Mlp, SearchSpace, Supernet
from nas_lightning.spaces.activations import ACTIVATION, ACTIVATIONS, SKIPS, SLOPE
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.strategies.one_shot.papers import ActivationSearch
from nas_lightning.studies.base import Study
from nas_lightning.studies.scoring import (
    MAIN,
    ScoredStudy,
    Setting,
    Values,
    check_metrics,
    data_sets,
    estimate,
    mean_estimate,
    orient,
    spearman,
)
from nas_lightning.studies.training import fit_quietly
from nas_lightning.utils.files import json_text, read_records, write_whole
from nas_lightning.utils.progress import follow
from nas_lightning.utils.randomness import generator, seed_of
from nas_lightning.utils.tables import Entry, Table
from nas_lightning.validation import (
    DISTINCT,
    Between0And1,
    PositiveFloat,
    PositiveInt,
    Seed,
    at_least,
    at_most,
    checked,
    entries,
)

# Theorems 1 to 3 of Zhu et al. 2022 (arXiv:2209.07238): bounds of λ_min of kernels and of test errors.
#
# Theorem 1, of the infinitely wide kernel, with the constants of table 1:
#
#     λ_min ≥ 2 μ₁(σ_1)² Θ(N/d) Π_{p=3}^{L} (β₃(σ_{p−1}) + α_{p−2})
#     λ_min ≤ (N/d) Σ_{l=1}^{L} β₁(σ_{l−1}) Π_{p=2}^{l−1} (β₁(σ_{p−1}) + α_{p−2})
#                                           Π_{p=l+1}^{L} (β₂(σ_{p−1}) + α_{p−2})
#
# for N inputs of norm 1 in d dimensions. The constant in Θ is unknown; `lower` is the bound without it. The
# theorem requires N ≥ Ω(d⁴), again with an unknown constant, and does not cover fewer inputs. The paper does
# not define β₁(σ_0) and α_0; here β₁(σ_0) = 1, because the diagonal of G⁽¹⁾ is 1, and α_0 = 0.
#
# Theorem 2, of J Jᵀ at finite width, with a constant on the left and one for each term on the right:
#
#     λ_min(J Jᵀ) ≳ (N/d) Π_{i=2}^{L−1} (β₃(σ_i) + α_{i−1})
#     λ_min(J Jᵀ) ≲ (N/d) Σ_{k=0}^{L−1} Π_{i=k+2}^{L−1} (β₂(σ_i) + α_{i−1})
#
# Theorem 3, for the descent of algorithm 1 with γ = κ C₁ √(yᵀ K⁻¹ y) / (m √N), up to constants and
# logarithms:
#
#     E[0-1 error] ≲ C₂ √(yᵀy / (λ_min(K) N)) + √(ln(1/δ) / N)
#     C₁ = √L (3 Lip + 1)^{1−L},   C₂ = √L (3 Lip + 1)^{L−1}

_LEAKY = 1 + SLOPE**2
_BETA1 = {"relu": 1.0, "leaky_relu": _LEAKY, "sigmoid": 1 / 8, "tanh": 2.0, "swish": 1.0}
_BETA2 = {"relu": 1.0, "leaky_relu": _LEAKY, "sigmoid": 1 / 8, "tanh": 2.0, "swish": 1.22}
_LIPSCHITZ = {"relu": 1.0, "leaky_relu": 1.0, "sigmoid": 1 / 4, "tanh": 1.0, "swish": 1.0998393194}
_BETA3 = {"relu": 1.0, "leaky_relu": _LEAKY, "swish": 1 / 2}


class Bounds(NamedTuple):
    """Bounds of λ_min; the lower one without the unknown constant of Θ."""

    lower: float
    upper: float


def bounds(activations: Sequence[str], skips: Sequence[bool], inputs: int, dimension: int) -> Bounds:
    """Return the bounds of theorem 1 for σ_1, …, σ_{L−1} and α_1, …, α_{L−2}.

    >>> bounds(["relu", "relu"], [True], inputs=64, dimension=64)  # 2 · ¼ · 2;  1·(1+0)(1+1) + 1·2 + 1·(1+0)
    Bounds(lower=1.0, upper=5.0)
    """
    L = len(activations) + 1
    sigma, alpha = dict(enumerate(activations, 1)), {0: False, **dict(enumerate(skips, 1))}

    def grown(l: int) -> float:  # noqa: E741, as in the paper
        first = _BETA1[sigma[l - 1]] if l > 1 else 1.0
        below = prod(_BETA1[sigma[p - 1]] + alpha[p - 2] for p in range(2, l))
        return first * below * prod(_BETA2[sigma[p - 1]] + alpha[p - 2] for p in range(l + 1, L + 1))

    lower = 2 * first_coefficient(sigma[1]) ** 2
    lower *= prod(beta3(sigma[p - 1], L) + alpha[p - 2] for p in range(3, L + 1))
    ratio = inputs / dimension
    return Bounds(lower * ratio, ratio * sum(grown(l) for l in range(1, L + 1)))  # noqa: E741


def finite_bounds(activations: Sequence[str], skips: Sequence[bool], inputs: int, dimension: int) -> Bounds:
    """Return the bounds of theorem 2, both without their constants.

    >>> finite_bounds(["relu", "relu"], [True], inputs=64, dimension=64)  # 2;  2 (k = 0) + 1 + 1
    Bounds(lower=2.0, upper=4.0)
    """
    L = len(activations) + 1
    pairs = list(zip(activations[1:], skips, strict=True))  # of the layers i = 2, …, L − 1
    ratio = inputs / dimension
    upper = sum(prod(_BETA2[name] + skip for name, skip in pairs[k:]) for k in range(L))
    return Bounds(ratio * prod(beta3(name, L) + skip for name, skip in pairs), ratio * upper)


def depth_factor(activations: Sequence[str]) -> tuple[float, float]:
    """Return C₁ and C₂ of theorem 3.

    >>> depth_factor(["relu", "tanh"])  # √3 / 16 and 16 √3
    (0.10825317547305482, 27.712812921102035)
    """
    L = len(activations) + 1
    growth = (3 * max(_LIPSCHITZ[name] for name in activations) + 1) ** (L - 1)
    return sqrt(L) / growth, sqrt(L) * growth


def error_bound(activations: Sequence[str], lambda_min: float, y: Tensor, delta: float) -> float:
    """Return the right side of theorem 3 for labels y, (N,), with constants and logarithms as 1."""
    N = len(y)
    first = depth_factor(activations)[1] * sqrt(float(y @ y) / (lambda_min * N))
    return first + sqrt(log(1 / delta) / N)


def step_size(activations: Sequence[str], kernel: Tensor, y: Tensor, width: int) -> float:
    """Return γ of theorem 3 with κ = 1."""
    energy = float(y @ torch.linalg.solve(kernel, y))
    return depth_factor(activations)[0] * sqrt(energy) / (width * sqrt(len(y)))


def beta3(name: str, L: int) -> float:
    """Return β₃; for Sigmoid and Tanh f(t) = 2 E σ′(√t z)² at t = 3 (1 + η²)(2 + η²)^{L−3}.

    >>> round(beta3("sigmoid", 3), 7), round(beta3("tanh", 3), 7)
    (0.0645886, 0.5840078)
    """
    if name in _BETA3:
        return _BETA3[name]
    t = 3 * _LEAKY * (1 + _LEAKY) ** (L - 3)
    return 2 * float(moments(name, torch.tensor([[t]], dtype=torch.float64)).slopes)


def first_coefficient(name: str) -> float:
    """Return μ₁ = E[σ(z) z] = E σ′(z), the first Hermite coefficient."""
    if name in ("relu", "leaky_relu"):
        return (1 + (SLOPE if name == "leaky_relu" else 0.0)) / 2
    sigma = ACTIVATIONS[name]
    return float(expectation(lambda x: slope(sigma, x), torch.ones(1, 1, dtype=torch.float64))[1])


# λ_min of infinitely wide networks over depth, and theorem 1 (Zhu et al. 2022, arXiv:2209.07238, F.4).

_NOTE = (
    "λ_min of the kernel that wide networks approach, of lemma 1 to the letter (other where there are "
    "skips), and the bounds of theorem 1, which asks for inputs in the order of d⁴; the lower one has an "
    "unknown factor"
)


_OVER_INPUTS = (
    "Were the lower bound one with some constant, λ_min / lower would stay above it as N grows beyond d⁴; "
    "0: below the precision of the kernel"
)


class InfiniteNTK(Study):
    """λ_min of infinitely wide networks, for every activation, without and with skips, at several depths.

    Args:
        depths: L, the last layer included.
        inputs: number of images, each divided by its norm.
        activations: activations, each used in all layers.
        counts: N of a second table, with inputs uniform on a sphere, at the smallest depth.
        dimension: d of these inputs; the theorem requires N in the order of d⁴.

    >>> from nas_lightning.data import Digits
    >>> small = {"depths": [3], "inputs": 4, "activations": ["relu"], "counts": [4, 8]}
    >>> [table.name for table in InfiniteNTK(**small).run(SearchData(Digits())).tables]
    ['lambda_min', 'over_inputs']
    """

    @checked
    def __init__(
        self,
        *,
        depths: Annotated[Sequence[Annotated[int, at_least(3), at_most(1000)]], entries(1)] = (
            3,
            4,
            5,
            6,
            8,
            10,
        ),
        inputs: Annotated[int, at_least(2)] = 64,
        activations: Sequence[str] = tuple(ACTIVATIONS),
        counts: Annotated[Sequence[Annotated[int, at_least(2)]], entries(1)] = (16, 32, 81, 160, 320, 512),
        dimension: Annotated[int, at_least(2)] = 3,
    ) -> None:
        self.depths, self.inputs, self.activations = sorted(depths), inputs, list(activations)
        self.counts, self.dimension = sorted(counts), dimension

    def run(self, data: SearchData) -> Findings:
        """Compute λ_min exactly and by lemma 1, and its bounds."""
        x = unit_vectors(data, self.inputs)
        gram, d = x @ x.T, x.shape[1]
        rows: list[list[Entry]] = []
        lines: dict[tuple[str, bool], list[float]] = {}
        for name in follow(self.activations, "activations"):
            for skip in (False, True):
                for L in self.depths:
                    layers = [name] * (L - 1), [skip] * (L - 2)
                    exact = infinite_ntk(gram, *layers).lambda_min
                    lemma = infinite_ntk(gram, *layers, lemma=True).lambda_min
                    found = bounds(*layers, len(x), d)
                    rows.append([name, "all" if skip else "none", L, exact, lemma, *found])
                    lines.setdefault((name, skip), []).append(exact)
        what = f"{len(x)} images of {data.name}, d = {d}"
        columns = ["activation", "skips", "L", "λ_min", "lemma 1", "lower bound × constant", "upper bound"]
        return Findings(
            [
                Table(
                    "lambda_min",
                    f"Smallest eigenvalue of the infinitely wide kernel: {what}",
                    columns,
                    rows,
                    _NOTE,
                ),
                self._over_inputs(),
            ],
            {"lambda_min": _figure(self.depths, lines)},
        )

    def _over_inputs(self) -> Table:
        """Compare λ_min with the lower bound of theorem 1 over N, to see whether any constant fits."""
        L, rows = self.depths[0], list[list[Entry]]()
        x = torch.randn(max(self.counts), self.dimension, dtype=torch.float64, generator=generator(0))
        x = x / x.norm(dim=1, keepdim=True)
        for name in self.activations:
            layers = [name] * (L - 1), [False] * (L - 2)
            for N in self.counts:
                found = infinite_ntk(x[:N] @ x[:N].T, *layers).lambda_min
                lower, upper = bounds(*layers, N, self.dimension)
                rows.append([name, N, N / self.dimension**4, found, lower, found / lower, upper])
        columns = [
            "activation",
            "N",
            "N / d⁴",
            "λ_min",
            "lower bound × constant",
            "λ_min / lower",
            "upper bound",
        ]
        title = f"λ_min over the number of inputs on a sphere: d = {self.dimension}, L = {L}, no skips"
        return Table("over_inputs", title, columns, rows, _OVER_INPUTS)


def unit_vectors(data: SearchData, count: int) -> Tensor:
    """Return distinct images as vectors of norm 1 in float64, (count, d)."""
    batches = data.train_batches(-(-count // data.batch_size))
    x = torch.cat([images for images, _ in batches]).flatten(1).double()
    x = torch.unique(x / x.norm(dim=1, keepdim=True), dim=0)  # equal inputs make λ_min 0
    if len(x) < count:
        raise InputError(f"expected {count} different images", got=len(x), where="study.inputs")
    return x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:count]]


def _figure(depths: Sequence[int], lines: dict[tuple[str, bool], list[float]]) -> Figure:
    figure = Figure(figsize=(7.2, 3.0), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, skip in zip(panels, (False, True), strict=True):
        tidy(axes)
        for (name, skips), values in lines.items():
            if skips == skip:
                axes.semilogy(
                    depths, values, marker="o", markersize=3, color=ACTIVATION_COLORS[name], label=name
                )
        title = "a skip round each layer" if skip else "no skips"
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK)
        axes.set_xlabel("depth L", fontsize=8, color=INK)
    panels[0].set_ylabel("λ_min", fontsize=8, color=INK)
    panels[0].legend(frameon=False, fontsize=7, labelcolor=INK)
    return figure


# Equation 1 of Zhu et al. 2022 (arXiv:2209.07238) at finite width, its kernel, and algorithm 1's descent.
#
#     f_0 = x,   f_1 = σ_1(W_1 f_0),   f_l = σ_l(W_l f_{l−1}) + α_{l−1} f_{l−1},   f = ⟨W_L, f_{L−1}⟩
#
# with W ~ N(0, 1/m). For b_l = ∂f/∂f_l and g_l = b_l ∘ σ_l′(W_l f_{l−1}), b_{L−1} = W_L and
# b_{l−1} = W_lᵀ g_l + α_{l−1} b_l; with f_l and g_l of each input as the rows of F_l and G_l,
#
#     J Jᵀ = F_{L−1} F_{L−1}ᵀ + Σ_{l=1}^{L−1} (G_l G_lᵀ) ∘ (F_{l−1} F_{l−1}ᵀ)


class PlainNetwork:
    """A network of one output without biases, in float64.

    Args:
        inputs: d.
        width: m.
        activations: σ_1, …, σ_{L−1}.
        skips: α_1, …, α_{L−2}.
        generator: generator of the weights.

    >>> network = PlainNetwork(3, 8, ["relu", "tanh"], [True], torch.Generator().manual_seed(0))
    >>> network.kernel(torch.eye(3, dtype=torch.float64)).shape
    torch.Size([3, 3])
    """

    def __init__(
        self,
        inputs: int,
        width: int,
        activations: Sequence[str],
        skips: Sequence[bool],
        generator: torch.Generator,
    ) -> None:
        self.sigma = [ACTIVATIONS[name] for name in activations]
        self.skips = [False, *skips]  # the first layer has no skip
        shapes = [(width, inputs), *[(width, width)] * (len(activations) - 1), (1, width)]
        self.weights = [
            torch.randn(shape, dtype=torch.float64, generator=generator) / width**0.5 for shape in shapes
        ]

    def outputs(self, x: Tensor) -> Tensor:
        """Return f, (n, d) → (n,)."""
        return (self.layers(x)[-1] @ self.weights[-1].T)[:, 0]

    def layers(self, x: Tensor) -> list[Tensor]:
        """Return f_0, …, f_{L−1}."""
        found = [x]
        for W, sigma, skip in zip(self.weights, self.sigma, self.skips, strict=False):
            found.append(sigma(found[-1] @ W.T) + (found[-1] if skip else 0))
        return found

    @torch.no_grad()
    def kernel(self, x: Tensor) -> Tensor:
        """Return J Jᵀ, (n, d) → (n, n)."""
        f = self.layers(x)
        found, b = f[-1] @ f[-1].T, self.weights[-1].expand(len(x), -1)
        for W, sigma, skip, below in reversed(
            list(zip(self.weights, self.sigma, self.skips, f[:-1], strict=False))
        ):
            g = b * slope(sigma, below @ W.T)
            found = found + (g @ g.T) * (below @ below.T)
            b = g @ W + (b if skip else 0)
        return found


def descend(network: PlainNetwork, x: Tensor, y: Tensor, gamma: float, kept: int) -> None:
    """Run the second part of algorithm 1 in place: W ← W − γ ∇ ln(1 + e^(−y_i f(x_i))) for i < kept.

    A uniform `kept` of 0 … N − 1 makes the result its random iterate Ŵ.
    """
    for image, label in zip(x[:kept], y[:kept], strict=True):
        for W in network.weights:
            W.requires_grad_()
        loss = F.softplus(-label * network.outputs(image[None])[0])
        slopes = torch.autograd.grad(loss, network.weights)
        network.weights = [(W - gamma * dW).detach() for W, dW in zip(network.weights, slopes, strict=True)]


# Finite networks and their test errors against theorems 2 and 3 (Zhu et al. 2022, arXiv:2209.07238).

_FINITE = "Means over draws of weights ± their standard errors; the bounds have unknown constants"
_ERRORS = (
    "K of infinite width; the bound with all constants as 1. Errors of algorithm 1's random iterate on other "
    "inputs, in percent, means over draws ± their standard errors; 50 % is chance. Empty where K is singular"
)
_ORDER = "Over all rows of the errors, ± the bootstrap's standard error"


class Images(NamedTuple):
    """Inputs on a sphere, labeled by the side of a hyperplane through its center.

    Args:
        x: inputs of norm 1, (n, d).
        y: labels −1 or 1, (n,).
    """

    x: Tensor
    y: Tensor


def draw_images(count: int, dimension: int, random: torch.Generator) -> Images:
    """Draw inputs uniformly on the sphere, labeled by the sign of the first coordinate.

    >>> draw_images(2, 3, torch.Generator().manual_seed(0)).x.norm(dim=1)
    tensor([1., 1.], dtype=torch.float64)
    """
    x = F.normalize(torch.randn(count, dimension, dtype=torch.float64, generator=random), dim=1)
    return Images(x, x[:, 0].sign())


class FiniteNTK(Study):
    """Kernels and test errors of finite networks, for every activation, without and with skips.

    Args:
        activations: activations, each used in all layers.
        layers: L.
        width: m.
        counts: N, numbers of training inputs.
        dimension: d of the inputs.
        kappas: κ of the step of algorithm 1.
        draws: number of draws of weights.
        tested: number of inputs that errors are measured on.
        delta: δ of theorem 3, which holds with probability 1 − δ.
        seed: seed of inputs and weights.

    >>> study = FiniteNTK(activations=["relu"], width=8, counts=[4], dimension=3, draws=2, tested=10)
    >>> [table.name for table in study.run().tables]
    ['finite', 'errors', 'order']
    """

    @checked
    def __init__(
        self,
        *,
        activations: Annotated[Sequence[str], entries(1)] = tuple(ACTIVATIONS),
        layers: Annotated[int, at_least(3)] = 3,
        width: PositiveInt = 256,
        counts: Annotated[Sequence[Annotated[int, at_least(2)]], entries(1)] = (32, 128, 512),
        dimension: Annotated[int, at_least(2)] = 16,
        kappas: Annotated[Sequence[PositiveFloat], entries(1)] = (1.0, 100.0),
        draws: Annotated[int, at_least(2)] = 4,
        tested: PositiveInt = 2000,
        delta: Between0And1 = 0.05,
        seed: Seed = 0,
    ) -> None:
        self.activations, self.layers, self.width, self.counts = (
            list(activations),
            layers,
            width,
            list(counts),
        )
        self.kappas, self.draws, self.delta, self.seed = list(kappas), draws, delta, seed
        self.pool = draw_images(max(counts), dimension, generator(seed))
        self.fresh = draw_images(tested, dimension, generator(seed, 1))

    def run(self) -> Findings:
        """Compare kernels with theorem 2, and errors with theorem 3."""
        finite: list[list[Entry]] = []
        errors: list[list[Entry]] = []
        cases = list(product(self.activations, (False, True), self.counts))
        for name, skip, N in follow(cases, "networks"):
            layers = [name] * (self.layers - 1), [skip] * (self.layers - 2)
            start: list[Entry] = [name, "all" if skip else "none", N]
            finite.append([*start, *self._finite(layers, N)])
            errors.append([*start, *self._errors(layers, N)])
        kappas = [f"κ = {kappa:g}" for kappa in self.kappas]
        what = f"L = {self.layers}, m = {self.width}, d = {self.pool.x.shape[1]}"
        columns = ["activation", "skips", "N"]
        bounds = ["λ_min", "λ_min / lower", "λ_min / upper"]
        said = [*columns, "λ_min(K)", "bound", "step, κ = 1", *kappas]
        tables = [
            Table("finite", f"λ_min of J Jᵀ against theorem 2: {what}", [*columns, *bounds], finite, _FINITE),
            Table("errors", f"Test errors against theorem 3: {what}", said, errors, _ERRORS),
            self._order(errors, kappas),
        ]
        return Findings(tables)

    def _network(self, layers: tuple[list[str], list[bool]], number: int) -> PlainNetwork:
        return PlainNetwork(self.pool.x.shape[1], self.width, *layers, generator(self.seed, 2, number))

    def _finite(self, layers: tuple[list[str], list[bool]], N: int) -> list[Entry]:
        x = self.pool.x[:N]
        kernels = [self._network(layers, number).kernel(x) for number in range(self.draws)]
        found = np.array([max(float(torch.linalg.eigvalsh(kernel)[0]), 0.0) for kernel in kernels])
        bounds = finite_bounds(*layers, N, x.shape[1])
        return [mean_estimate(values) for values in (found, found / bounds.lower, found / bounds.upper)]

    def _errors(self, layers: tuple[list[str], list[bool]], N: int) -> list[Entry]:
        x, y = self.pool.x[:N], self.pool.y[:N]
        kernel = infinite_ntk(x @ x.T, *layers)
        if kernel.is_singular:
            return [kernel.lambda_min, *[None] * (2 + len(self.kappas))]
        gamma = step_size(layers[0], kernel.matrix, y, self.width)
        found = []
        for kappa in self.kappas:
            wrong = [self._error(layers, number, Images(x, y), kappa * gamma) for number in range(self.draws)]
            found.append(mean_estimate(wrong))
        return [
            kernel.lambda_min,
            error_bound(layers[0], kernel.lambda_min, y, self.delta),
            gamma,
            *found,
        ]

    def _error(
        self, layers: tuple[list[str], list[bool]], number: int, images: Images, gamma: float
    ) -> float:
        network, random = self._network(layers, number), generator(self.seed, 3, number)
        kept = int(torch.randint(len(images.y), (), generator=random))
        descend(network, *images, gamma, kept)
        return 100 * float((network.outputs(self.fresh.x) * self.fresh.y < 0).double().mean())

    def _order(self, errors: Sequence[Sequence[Entry]], kappas: Sequence[str]) -> Table:
        errors = [row for row in errors if row[4] is not None]
        bounds = np.array([row[4] for row in errors], dtype=np.float64)
        rows: list[list[Entry]] = []
        for place, name in enumerate(kappas, 6):
            values = [row[place].value for row in errors]  # type: ignore[union-attr]
            rows.append([name, estimate(spearman, bounds, values, seed=self.seed)])
        title = "Whether a smaller bound is a smaller error: Spearman's ρ"
        return Table("order", title, ["step", "ρ"], rows, _ORDER)


# Eigen-NAS and KNAS on NAS-Bench-201, by the protocol of KNAS' public code (table 2).
#
# There is a selection for each data set: random cells are scored on its images, the k with the largest score
# are evaluated on it, and the best of these is the result.

RANDOM = "random"
_SELECTION = (
    "Test accuracies (%) of the results on their data set, mean ± standard deviation over searches, each in "
    "its own part of the scored cells. An oracle evaluates by test accuracies; where the table has no "
    "validation accuracies of a data set, those of another one also choose"
)


@checked
@dataclass(frozen=True, kw_only=True)
class KernelSelection(ScoredStudy):
    """Searches of Eigen-NAS and KNAS, and of as many random cells, on each data set of a table.

    Args:
        by: metrics whose largest k are evaluated, besides k random cells.
        k: numbers of cells that are evaluated, each in turn.
        pool: number of the scored cells that a search draws; all if there are fewer.
        pools: the same of single data sets, by name.
        searches: number of repetitions.
        others: images that cells are scored on for the table's other data sets, by their names in the table;
            for those not named, on the images of `data`.
        scheme: initialization of the weights.
        metrics, cells, scores, seed, workers, backend: see `ScoredStudy`.

    >>> from nas_lightning.metrics import NTKFrobenius, NTKMeanDiagonal
    >>> metrics = {"ntk_mean_diag": NTKMeanDiagonal(), "ntk_frobenius": NTKFrobenius()}
    >>> KernelSelection(metrics=metrics).k
    (20, 5)
    """

    by: Annotated[Sequence[str], entries(1), DISTINCT] = ("ntk_mean_diag", "ntk_frobenius")
    k: Annotated[Sequence[PositiveInt], entries(1), DISTINCT] = (20, 5)
    cells: Annotated[int, at_least(4)] = 1100
    pool: Annotated[int, at_least(2)] = 300
    pools: Mapping[str, Annotated[int, at_least(2)]] = FrozenMap({"imagenet16-120": 500})
    searches: Annotated[int, at_least(2)] = 10
    others: Mapping[str, ImageData] = FrozenMap()
    scheme: Scheme = "lecun"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_metrics(self.by, self.metrics)

    def run(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        data: SearchData,
        benchmark: TabularBenchmark,
        folder: Path,
    ) -> Findings:
        """Score the cells, choose for each data set, and look up accuracies."""
        for name in {*self.others, *self.pools} - {*benchmark.datasets}:
            expected = f"expected a data set of the table ({near_match(name, benchmark.datasets)})"
            raise InputError(expected, got=name, where="study")
        genotypes, accuracies = self.draw_known(benchmark, space)
        main = Setting(network, data.train_batches(1)[0], self.scheme)
        pool = self.scored_pool(space, genotypes, folder)
        metrics = {name: self.metrics[name] for name in self.by}
        scores = {MAIN: pool.score_main(main)}
        scores |= replace(pool, metrics=metrics).score(data_sets(main, network, self.others))
        rows: list[list[Entry]] = []
        for dataset, accuracy in accuracies.items():
            values = orient(metrics, scores.get(f"data_{dataset}", scores[MAIN]))
            images = self.others[dataset].name if dataset in self.others else data.name
            for (judge, evaluate), k in product(judges_of(benchmark, dataset).items(), self.k):
                worth = np.array([evaluate(genotype) for genotype in genotypes])
                for name in (*self.by, RANDOM):
                    ends = accuracy[self._results(values.get(name), worth, k, self._size(dataset))]
                    found = [float(ends.mean()), float(ends.std(ddof=1))]
                    rows.append([dataset, name, k, judge, images, self._size(dataset), *found])
        columns = ["data set", "chosen by", "k", "evaluations by"]
        columns += ["scored on", "pool", "accuracy", "± accuracy"]
        title = f"One selection for each data set: {self.searches} searches in pools of {self.cells:,} cells"
        return Findings([Table("selection", title, columns, rows, _SELECTION)])

    def _size(self, dataset: str) -> int:
        return min(self.pools.get(dataset, self.pool), self.cells)

    def _results(self, scores: Values | None, worth: Values, k: int, size: int) -> list[int]:
        """Return the result of each search: the worthiest of the k with the largest scores, or of any k."""
        found = []
        for number in range(self.searches):
            part = np.random.default_rng(seed_of(self.seed, number)).permutation(self.cells)[:size]
            if scores is not None:
                part = part[np.argsort(-scores[part], kind="stable")]
            found.append(int(part[worth[part[:k]].argmax()]))
        return found


def judges_of(benchmark: TabularBenchmark, dataset: str) -> dict[str, Callable[[Genotype], float]]:
    """Return the evaluations that can choose for a data set, by name.

    The first is its own validation accuracy where the table has one; then its test accuracy, an oracle, and
    the evaluation on the benchmark's own data set.
    """
    own = copy(benchmark)
    own.dataset = dataset
    found = table_accuracy(own), OracleAccuracy(own), table_accuracy(benchmark)
    return {f"{judge.benchmark.dataset} {judge.name}": judge for judge in found}


# Which activations and skips DARTS chooses (Zhu et al. 2022, arXiv:2209.07238, section 5.1 and figure 1).
#
# The paper reports that ReLU and LeakyReLU win in each layer, that the first layer shows the largest
# difference between activations, and that the skips are kept in every layer.

_RECTIFIERS = ("relu", "leaky_relu")


class ActivationSearchStudy(Study):
    """Search activations and skips with several seeds.

    Args:
        seeds: number of seeds, from 0.
        epochs: epochs of each search.
        lr: learning rate of the weights.
        arch_lr: learning rate of the architecture parameters.

    >>> study = ActivationSearchStudy(seeds=3, epochs=10)
    >>> list(study.wants())
    ['space', 'supernet', 'data', 'trainer', 'folder']
    """

    @checked
    def __init__(
        self,
        *,
        seeds: PositiveInt = 5,
        epochs: PositiveInt = 20,
        lr: PositiveFloat = 0.025,
        arch_lr: PositiveFloat = 3e-3,
    ) -> None:
        self.seeds, self.epochs, self.lr, self.arch_lr = seeds, epochs, lr, arch_lr

    def run(
        self,
        space: SearchSpace,
        supernet: Callable[..., Supernet],
        data: SearchData,
        trainer: Callable[..., pl.Trainer],
        folder: Path,
    ) -> Findings:
        """Search with each seed from where its files end; average over the seeds."""
        if not isinstance(space, Mlp):
            raise InputError("expected space=mlp", got=space.name, where="space")
        searches = []
        for seed in follow(range(self.seeds), "searches"):
            torch.manual_seed(seed)
            strategy = ActivationSearch(space, supernet(), seed=seed, lr=self.lr, arch_lr=self.arch_lr)
            searches.append(self._search(strategy, data, trainer, folder / "searches" / f"{seed}.json"))
        weights = {
            name: np.array([one[name] for one in searches], dtype=np.float64) for name in (ACTIVATION, SKIPS)
        }
        shares, skips = weights[ACTIVATION], weights[SKIPS][:, :, -1]  # (seeds, L − 1, ops), (seeds, L − 2)
        accuracies = np.array([one["valid_accuracy"] for one in searches], dtype=np.float64)
        what = f"{data.name}, {self.seeds} searches of {self.epochs} epochs"
        by_name = {name: shares[:, :, column] for column, name in enumerate(space.activations)}
        return Findings(
            [self._layers(by_name, skips, what), _claims(by_name, skips, what)],
            {"activations": draw_activations(by_name, skips)},
            {"supernet_valid_accuracy": float(accuracies.mean())},
        )

    def _search(
        self, strategy: ActivationSearch, data: SearchData, trainer: Callable[..., pl.Trainer], path: Path
    ) -> dict[str, Any]:
        if stored := read_records(path):
            return stored
        checkpoint = path.with_suffix(".ckpt")
        fit = fit_quietly(trainer, strategy, data, checkpoint=checkpoint, max_epochs=self.epochs)
        found: dict[str, Any] = {name: matrix.tolist() for name, matrix in strategy.scores().items()}
        found["valid_accuracy"] = float(fit.callback_metrics["valid_accuracy"])
        write_whole(path, json_text(found))
        checkpoint.unlink(missing_ok=True)
        return found

    def _layers(self, shares: Mapping[str, Values], skips: Values, what: str) -> Table:
        winners = np.array(list(shares)).take(
            np.stack(list(shares.values())).argmax(axis=0)
        )  # (seeds, L − 1)
        rows: list[list[Entry]] = []
        for layer in range(winners.shape[1]):
            names, counts = np.unique(winners[:, layer], return_counts=True)
            wins = ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True))
            skip = (
                [None, None]
                if layer == 0
                else [mean_estimate(skips[:, layer - 1]), _count(skips[:, layer - 1])]
            )
            rows.append(
                [layer + 1, *(mean_estimate(values[:, layer]) for values in shares.values()), wins, *skip]
            )
        columns = ["layer", *shares, "wins", "α of its skip", "kept"]
        return Table("layers", f"Probabilities of activations, weights of skips: {what}", columns, rows)


def _claims(shares: Mapping[str, Values], skips: Values, what: str) -> Table:
    """Compare the claims of the paper with the results."""
    stacked = np.stack(list(shares.values()), axis=-1)  # (seeds, L − 1, ops)
    best = stacked.argmax(axis=-1)
    rectified = np.isin(np.array(list(shares)).take(best), _RECTIFIERS)
    spread = (stacked.max(axis=-1) - stacked.min(axis=-1)).mean(axis=0)  # (L − 1,)
    rows: list[list[Entry]] = [
        ["layers in which ReLU or LeakyReLU wins", "all", f"{rectified.sum()} of {rectified.size}"],
        ["layer with the largest difference", "1", str(int(spread.argmax()) + 1)],
        [
            "difference in layer 1, and mean of the others",
            "larger",
            f"{spread[0]:.3f}, {spread[1:].mean():.3f}",
        ],
        ["skips that are kept", "all", _count(skips)],
    ]
    return Table("claims", f"What the paper reports, and what was found: {what}", ["", "paper", "here"], rows)


def _count(alpha: Values) -> str:
    return f"{int((alpha > 0.5).sum())} of {alpha.size}"
