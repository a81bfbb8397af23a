"""Gaussian moments against closed forms and plain quadrature; kernels against those of wide networks."""

import math

import numpy as np
import pytest
import torch

from nas_lightning.errors import InputError
from nas_lightning.metrics import ntk
from nas_lightning.metrics.infinite import InfiniteNTKLambdaMin, expectation, infinite_ntk, moments, slope
from nas_lightning.spaces import Mlp, NasBench201, TwoLayer
from nas_lightning.spaces.activations import ACTIVATIONS

SMOOTH = ["sigmoid", "tanh", "swish"]


def covariance(n=4, scale=1.0):
    x = torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return scale * x @ x.T


def quadrature(f, A, order=80):
    """E[f(u) f(v)] by Gauss and Hermite in two dimensions, pair by pair."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    weights = weights / math.sqrt(2 * math.pi)
    total = torch.empty_like(A)
    for i in range(len(A)):
        for j in range(len(A)):
            a, b, c = float(A[i, i]), float(A[j, j]), float(A[i, j])
            u = math.sqrt(a) * nodes[:, None]
            v = c / math.sqrt(a) * nodes[:, None] + math.sqrt(max(b - c * c / a, 0.0)) * nodes[None, :]
            values = (f(torch.tensor(u)) * f(torch.tensor(v))).numpy()
            total[i, j] = float((weights[:, None] * weights[None, :] * values).sum())
    return total


@pytest.mark.parametrize(("name", "eta"), [("relu", 0.0), ("leaky_relu", 0.01)])
def test_kinked_activations_are_arc_cosine_kernels(name, eta):
    """By integrals over φ (Cho & Saul 2009): u = |x| r cos φ, v = |y| r cos(φ − θ), E r² = 2."""
    A = covariance()
    found = moments(name, A)
    phi = torch.linspace(0, 2 * math.pi, 2_000_001, dtype=torch.float64)[:-1]
    sigma = ACTIVATIONS[name]
    for i, j in ((0, 1), (2, 3), (1, 1), (0, 3)):
        norm = math.sqrt(A[i, i] * A[j, j])
        theta = math.acos(max(-1.0, min(1.0, float(A[i, j]) / norm)))
        first, second = torch.cos(phi), torch.cos(phi - theta)
        product = norm * 2 * (sigma(first) * sigma(second)).mean()
        slopes = (torch.where(first > 0, 1.0, eta) * torch.where(second > 0, 1.0, eta)).mean()
        assert float(found.product[i, j]) == pytest.approx(float(product), abs=1e-8)
        assert float(found.slopes[i, j]) == pytest.approx(float(slopes), abs=2e-6)  # of steps
    assert found.mean.tolist() == pytest.approx(
        [(1 - eta) * math.sqrt(float(a) / (2 * math.pi)) for a in A.diagonal()]
    )


@pytest.mark.parametrize("scale", [0.01, 1.0, 300.0])
def test_the_expansion_against_a_closed_form(scale):
    """E[erf(u) erf(v)] = (2/π) arcsin(2c/√((1 + 2a)(1 + 2b))) (Williams 1997), at any scale."""
    A = covariance(scale=scale)
    one = 1 + 2 * A.diagonal()
    wanted = 2 / math.pi * torch.arcsin(2 * A / (one[:, None] * one[None, :]).sqrt())
    found, mean = expectation(torch.erf, A, tolerance=1e-12)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
    torch.testing.assert_close(mean, torch.zeros_like(mean), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SMOOTH)
def test_the_expansion_against_plain_quadrature(name):
    A = covariance(scale=0.2)
    found = moments(name, A)
    sigma = ACTIVATIONS[name]
    torch.testing.assert_close(found.product, quadrature(sigma, A), rtol=0, atol=1e-8)
    torch.testing.assert_close(found.slopes, quadrature(lambda x: slope(sigma, x), A), rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", ["relu", "leaky_relu"])
def test_the_expansion_of_a_kink_is_near_its_closed_form_or_refused(name):
    A = covariance()
    found, mean = expectation(ACTIVATIONS[name], A, tolerance=1e-4)
    torch.testing.assert_close(found, moments(name, A).product, rtol=0, atol=1e-3)
    torch.testing.assert_close(mean, moments(name, A).mean, rtol=1e-4, atol=0)
    alike = torch.tensor([[1.0, 0.999999], [0.999999, 1.0]], dtype=torch.float64)
    with pytest.raises(InputError, match="The activation is not smooth enough for"):
        expectation(lambda x: torch.sign(x), alike, tolerance=1e-12)


def test_infinite_covariance_raises():
    with pytest.raises(InputError, match="Standard deviations must be at most"):
        expectation(torch.tanh, torch.full((2, 2), 1e9, dtype=torch.float64))
    for activations, skips in (([], []), (["relu"], [True])):
        with pytest.raises(InputError, match="one skip less"):
            infinite_ntk(covariance(), activations, skips)


def test_relu_without_skips_by_hand():
    """Two inputs at a right angle, three layers; Cho & Saul's J_1(θ)/π and J_0(θ)/π."""
    found = infinite_ntk(torch.eye(2), ["relu", "relu"], [False]).matrix

    def arc(theta):
        return (math.sin(theta) + (math.pi - theta) * math.cos(theta)) / math.pi, 1 - theta / math.pi

    A2, slope1 = arc(math.pi / 2)
    A3, slope2 = arc(math.acos(A2))
    theta = (A2 + slope1 * 0.0) * slope2  # W_1 sees inputs of product 0
    torch.testing.assert_close(
        found, torch.tensor([[3.0, A3 + theta], [A3 + theta, 3.0]], dtype=torch.float64)
    )


def test_lemma_1_as_printed():
    """K = G⁽ᴸ⁾ + Σ_l G⁽ˡ⁾ ∘ Ġ⁽ˡ⁺¹⁾ ∘ (Ġ⁽ˡ⁺²⁾ + α_l) ∘ …, with the printed indices."""
    names, alpha = ["swish", "relu", "tanh", "leaky_relu"], {1: 1, 2: 0, 3: 1}
    L = len(names) + 1
    gram = covariance(scale=0.3)
    sigma = dict(enumerate(names, 1))
    G, A, dot = {1: gram}, {1: gram}, {}
    for level in range(2, L + 1):
        at = moments(sigma[level - 1], A[level - 1])
        G[level], dot[level] = 2 * at.product, 2 * at.slopes
        A[level] = G[level] + (alpha[level - 2] * A[level - 1] if level > 2 else 0.0)
    K = G[L].clone()
    for level in range(1, L):
        term = G[level] * dot[level + 1]
        for later in range(level + 2, L + 1):
            term = term * (dot[later] + alpha[later - 2])
        K += term
    skips = [bool(alpha[i]) for i in (1, 2, 3)]
    torch.testing.assert_close(infinite_ntk(gram, names, skips, lemma=True).matrix, K)
    plain = [infinite_ntk(gram, names, [False] * 3, lemma=lemma).matrix for lemma in (False, True)]
    torch.testing.assert_close(*plain)


def distances(names, skips, widths, seeds, lemma=False):
    """Mean over seeds of ‖Θ₀ − K‖/‖K‖ at each width, and that of the mean kernel at the largest."""
    space, gen = Mlp(layers=len(names) + 1), torch.Generator().manual_seed(5)
    x = torch.randn(4, 1, 2, 2, dtype=torch.float64, generator=gen)
    gram = x.flatten(1) @ x.flatten(1).T / 4
    K = infinite_ntk(gram, names, skips, lemma=lemma).matrix
    genotype, labels = space.of(names, skips), torch.zeros(4, dtype=torch.long)
    sizes = {"in_channels": 1, "num_classes": 2, "side": 2, "parametrization": "ntk"}
    found = []
    for width in widths:
        kernels = []
        for seed in range(seeds):
            torch.manual_seed(seed)
            kernels.append(ntk(space.network(genotype, width=width, **sizes).double(), (x, labels)).matrix)
        found.append(sum(float((kernel - K).norm() / K.norm()) for kernel in kernels) / seeds)
    return found, float((sum(kernels) / seeds - K).norm() / K.norm())


PATTERNS = [
    *((name, (False, False)) for name in ACTIVATIONS),
    *((name, (True, True)) for name in ACTIVATIONS),
    ("mixed", (True, False)),
    ("mixed", (False, True)),
]


@pytest.mark.parametrize(("name", "skips"), PATTERNS)
def test_wide_networks_approach_the_kernel(name, skips):
    """At a rate of 1/√m: sixteen times the width, a quarter of the distance."""
    names = ["swish", "relu", "sigmoid"] if name == "mixed" else [name] * 3
    (narrow, wide), of_mean = distances(names, list(skips), (64, 1024), seeds=24)
    assert 2.5 < narrow / wide < 6.5
    assert of_mean < 0.6 * wide


def test_wide_networks_with_skips_approach_the_kernel_and_not_lemma_1():
    names, skips = ["relu", "swish", "tanh"], [True, True]
    (narrow, wide), of_mean = distances(names, skips, (32, 512), seeds=6)
    assert 2.2 < narrow / wide < 7.5
    assert of_mean < 0.08
    _, lemma = distances(names, skips, (512,), seeds=6, lemma=True)
    assert lemma > 4 * of_mean


def test_metric_selects_without_weights(generator):
    space, metric = Mlp(layers=5), InfiniteNTKLambdaMin()
    x, y = torch.randn(6, 1, 4, 4, generator=generator), torch.tensor([0, 1, 2, 0, 1, 2])
    sizes = {"in_channels": 1, "num_classes": 3, "side": 4}
    values = []
    for text in (
        "relu|relu|relu|relu",
        "sigmoid|sigmoid|sigmoid|sigmoid",
        "relu|relu+skip|relu+skip|relu+skip",
    ):
        genotype = space.parse(text)
        small, large = (space.network(genotype, width=width, **sizes) for width in (2, 16))
        values.append(float(metric(small, (x, y))))
        assert values[-1] == float(metric(large, (x, y)))
    gram = x.double().flatten(1) @ x.double().flatten(1).T / 16
    assert values[0] == pytest.approx(infinite_ntk(gram, ["relu"] * 4, [False] * 3).lambda_min)
    assert values[1] < values[0] < values[2]  # table 1's order
    assert float(metric(TwoLayer().network(TwoLayer().sample(generator), **sizes), (x, y))) > 0


def test_other_networks_raise(generator):
    space = NasBench201()
    network = space.network(space.sample(generator), in_channels=1, num_classes=3, channels=4, cells=1)
    with pytest.raises(InputError, match="The network must be one of space=mlp"):
        InfiniteNTKLambdaMin()(network, (torch.randn(3, 1, 8, 8), torch.tensor([0, 1, 2])))
