"""Finite networks and theorems 2 and 3 of Zhu et al. 2022, against autograd and plain sums."""

import math

import pytest
import torch
from torch.func import jacrev
from torch.nn import functional as F

from nas_lightning.spaces.activations import ACTIVATIONS
from reproductions.eigen_nas import (
    FiniteNTK,
    PlainNetwork,
    depth_factor,
    descend,
    error_bound,
    finite_bounds,
    step_size,
)

SIGMAS = {
    "relu": torch.relu,
    "leaky_relu": lambda x: torch.where(x > 0, x, 0.01 * x),
    "sigmoid": lambda x: 1 / (1 + (-x).exp()) - 0.5,
    "tanh": torch.tanh,
    "swish": lambda x: x / (1 + (-x).exp()),
}


def forward(weights, x, names, skips):
    """Equation 1 as it is printed, for one input."""
    f = SIGMAS[names[0]](weights[0] @ x)
    for W, name, skip in zip(weights[1:-1], names[1:], skips, strict=True):
        f = SIGMAS[name](W @ f) + skip * f
    return (weights[-1] @ f)[0]


def network(names, skips, width=6, seed=0):
    return PlainNetwork(4, width, names, skips, torch.Generator().manual_seed(seed))


def inputs(count, dimension=4):
    x = torch.randn(count, dimension, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return F.normalize(x, dim=1)


CASES = [
    (["relu", "tanh"], [True]),
    (["swish", "sigmoid", "leaky_relu"], [False, True]),
    (["tanh"] * 4, [True, False, True]),
]


@pytest.mark.parametrize(("names", "skips"), CASES)
def test_outputs_and_kernel_are_those_of_equation_1(names, skips):
    found, x = network(names, skips), inputs(5)
    weights = tuple(found.weights)
    torch.testing.assert_close(
        found.outputs(x), torch.stack([forward(weights, one, names, skips) for one in x])
    )
    rows = [jacrev(lambda w, one=one: forward(w, one, names, skips))(weights) for one in x]
    jacobian = torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])
    torch.testing.assert_close(found.kernel(x), jacobian @ jacobian.T)


def test_weights_have_the_variance_of_the_paper():
    drawn = torch.cat([W.flatten() for W in network(["relu"] * 3, [False] * 2, width=200).weights])
    assert float(drawn.var()) == pytest.approx(1 / 200, rel=0.02)


def test_descent_is_one_step_for_each_of_the_first_inputs():
    names, skips = CASES[0]
    found, x, gamma = network(names, skips), inputs(4), 0.3
    y = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64)
    weights = [W.clone() for W in found.weights]
    for one, label in zip(x[:3], y[:3], strict=True):
        slopes = jacrev(
            lambda *w, one=one, label=label: (1 + (-label * forward(w, one, names, skips)).exp()).log(),
            argnums=tuple(range(3)),
        )(*weights)
        weights = [W - gamma * dW for W, dW in zip(weights, slopes, strict=True)]
    descend(found, x, y, gamma, 3)
    for mine, other in zip(found.weights, weights, strict=True):
        torch.testing.assert_close(mine, other)


def test_bounds_of_theorem_2_by_hand():
    """L = 4: β₃ of ReLU, LeakyReLU and Swish is 1, 1.0001 and ½, β₂ is 1, 1.0001 and 1.22."""
    found = finite_bounds(["tanh", "relu", "swish"], [True, False], 30, 10)
    assert found.lower == pytest.approx(3 * 2 * 0.5)
    assert found.upper == pytest.approx(3 * (2 * 1.22 + 1.22 + 1 + 1))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_lipschitz_constants_are_the_steepest_slopes(name):
    x = torch.linspace(-8, 8, 400_001, dtype=torch.float64)
    steepest = float((SIGMAS[name](x).diff() / x.diff()).abs().max())
    assert depth_factor([name])[1] == pytest.approx(math.sqrt(2) * (3 * steepest + 1), rel=1e-6)
    assert math.prod(depth_factor([name])) == pytest.approx(2)


def test_theorem_3_by_hand():
    y = torch.tensor([1.0, -1.0, 1.0, 1.0], dtype=torch.float64)
    bound = error_bound(["relu", "relu"], 0.25, y, 0.1)
    assert bound == pytest.approx(math.sqrt(3) * 16 * 2 + math.sqrt(math.log(10) / 4))
    kernel = torch.diag(torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64))
    expected = math.sqrt(3) / 16 * math.sqrt(1 + 0.5 + 0.25 + 0.125) / (50 * 2)
    assert step_size(["relu", "relu"], kernel, y, 50) == pytest.approx(expected)


def test_the_study_has_them_in_its_tables():
    study = FiniteNTK(
        activations=["relu"], width=16, counts=[6], dimension=5, draws=2, tested=50, kappas=[1.0]
    )
    finite, errors, order = study.run().tables
    x = study.pool.x[:6]
    expected = [
        float(torch.linalg.eigvalsh(study._network((["relu"] * 2, [False]), number).kernel(x))[0])
        for number in range(2)
    ]
    assert finite.rows[0][3].value == pytest.approx(sum(expected) / 2)
    assert finite.rows[0][4].value == pytest.approx(sum(expected) / 2 / (6 / 5))
    assert [row[1] for row in errors.rows] == ["none", "all"]
    assert 0 <= errors.rows[0][6].value <= 100
    assert order.rows[0][0] == "κ = 1"
