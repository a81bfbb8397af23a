"""The bounds of the thesis on perceptrons, against plain computations."""

import math

import numpy as np
import pytest
import torch
from torch.func import grad, jacrev
from torch.nn import functional as F

from reproductions.thesis_bounds import (
    BETA,
    CURVATURE,
    GAMMA,
    ThesisBounds,
    WideMlp,
    descend,
    gradients,
    kernel_diagonal,
    linear_outputs,
    mean_bound,
    metric_shares,
    power_bound,
    radius,
    smoothness,
    train,
)


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def mlp(width, depth=3, sigma=torch.tanh, inputs=4, seed=0):
    return WideMlp(
        inputs, width=width, depth=depth, sigma=sigma, generator=torch.Generator().manual_seed(seed)
    )


def test_linearized_training_is_descent_with_the_kernel():
    kernel, y, eta = normal(5, 5) @ normal(5, 5).T, normal(5, seed=1), 0.03
    found = linear_outputs(kernel, y, eta, 7)
    f = torch.zeros(5, dtype=torch.float64)
    for t in range(8):
        torch.testing.assert_close(found[t], f)
        f = f - eta * kernel @ (f - y)


def test_wide_networks_train_as_linearized_ones():
    x, y = F.normalize(normal(6, 4), dim=1), torch.rand(6, dtype=torch.float64)
    apart = []
    for width in (32, 512):
        trained = train(mlp(width), x, y, share=0.9, steps=20)
        apart.append(float((trained.outputs - trained.linear).norm(dim=1).max()))
    assert apart[1] < apart[0] / 2  # 1/√k in theory: a quarter


@pytest.mark.parametrize(("name", "sigma"), [("relu", torch.relu), ("tanh", torch.tanh)])
def test_diagonal_of_the_infinite_kernel_is_that_of_wide_networks(name, sigma):
    x = normal(3, 4) * torch.tensor([[0.3], [1.0], [2.0]])
    drawn = torch.stack(
        [mlp(400, sigma=sigma, seed=seed).jacobian(x).square().sum(dim=1) for seed in range(12)]
    )
    expected = kernel_diagonal(name, x.square().sum(dim=1) / 4, 3)
    assert bool(((drawn.mean(dim=0) - expected).abs() < 4 * drawn.std(dim=0) / 12**0.5).all())
    assert bool((drawn.std(dim=0) < expected / 4).all())


def test_metrics_and_their_bounds_from_the_loss_itself():
    """All of theorem 7.1 again, by differentiating ln(1 + e^(−yf)) instead of f."""
    network, x, y, delta = (
        mlp(3, depth=2),
        normal(5, 4, seed=2),
        torch.tensor([1.0, -1, -1, 1, 1]).double(),
        0.1,
    )

    def loss(weights, one, label):
        return F.softplus(-label * network.outputs(weights, one[None])[0])

    theta, pairs = network.weights, list(zip(x, y, strict=True))
    slopes = torch.stack([grad(loss)(theta, *pair) for pair in pairs])
    curves = torch.stack([jacrev(jacrev(loss))(theta, *pair) for pair in pairs])
    jacobian, second = jacrev(network.outputs)(theta, x), jacrev(jacrev(network.outputs))(theta, x)
    trace = math.sqrt(float((jacobian @ jacobian.T).trace()) / 5)
    rho = float(torch.linalg.svdvals(second)[:, 0].max())
    curvature = GAMMA * float(jacobian.norm(dim=1).max()) ** 2 + BETA * rho
    expected = {
        "M_Grad": float(slopes.mean(dim=0).norm()) / trace,
        "M_SNIP": float((slopes @ theta).abs().mean()) / trace / radius(len(theta), delta),
        "M_GraSP": abs(sum(float(theta @ H @ g) for H, g in zip(curves, slopes, strict=True)))
        / 5
        / (trace * curvature * radius(len(theta), delta / 2)),
        "M_KNAS": float(jacobian.sum(dim=0).norm()) / 5 / trace,
    }
    assert metric_shares(network, x, y, delta) == pytest.approx(expected)


def test_weights_are_within_the_radius_with_its_probability():
    norms = normal(20_000, 10).norm(dim=1)
    assert float((norms > radius(10, 0.05)).double().mean()) < 0.05


def test_the_jensen_step_of_the_corollary_fails_where_eigenvalues_differ():
    """Σ (1 − eλ_i)^2t is above m (1 − eλ̄)^2t: 3^-20 + 1/2 against 2 (2/3)^20, say."""
    kernel, y = torch.diag(torch.tensor([1.0, 0.1])).double(), torch.tensor([0.0, 1.0]).double()
    t = torch.arange(11, dtype=torch.float64)
    losses = (linear_outputs(kernel, y, 0.9, 10) - y).square().mean(dim=1)
    assert bool((losses <= mean_bound(kernel, 0.9, t)).all())
    assert losses[10] == pytest.approx(0.5 * 0.91**20)
    assert losses[10] > power_bound(kernel, 0.9, t)[10] == pytest.approx(2 * 0.505**20)


def test_curvature_and_gradients_of_the_logistic_unit():
    z = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    s = torch.sigmoid(z)
    slope = [(s - y) * s * (1 - s) for y in (0.0, 0.5, 1.0)]
    steepest = max(float((torch.diff(one) / torch.diff(z)).abs().max()) for one in slope)
    assert 0.4 * CURVATURE < steepest <= CURVATURE
    w, x, y = normal(2, 3), normal(6, 3, seed=1), torch.rand(6, dtype=torch.float64)
    w.requires_grad_()
    loss = 0.5 * (torch.sigmoid(w @ x.T) - y).square()
    (expected,) = torch.autograd.grad(loss.mean(dim=1).sum(), w)
    torch.testing.assert_close(gradients(w.detach(), x, y).mean(dim=1), expected)
    assert smoothness(x) == pytest.approx(CURVATURE * float(torch.linalg.svdvals(x)[0]) ** 2 / 6)


def test_full_batches_have_no_variance():
    x, y = normal(1, 3), torch.ones(1, dtype=torch.float64)
    found = descend(x, y, share=0.5, steps=4, runs=2, generator=torch.Generator().manual_seed(0))
    assert found.bound == pytest.approx(2 * 0.125 / (4 * 0.5 / smoothness(x)))
    assert float(found.found.max()) < found.bound


def test_which_bounds_hold():
    sizes = {
        "widths": [64],
        "draws": 3,
        "images": 12,
        "inputs": 6,
        "steps": 100,
        "depths": [2, 5],
        "runs": 20,
    }
    training, data, metrics, iterates = ThesisBounds(**sizes).run().tables
    assert [entry.value for entry in (training.rows[0][2], training.rows[0][4])] == [100, 100]
    assert training.rows[0][5].value < 20  # Jensen's inequality the wrong way round
    said = {(row[0], row[1]): (row[4], row[6]) for row in data.rows}
    assert said["tanh", 5] == ("yes", "no")
    assert said["relu", 5] == ("yes", "yes")
    assert all(row[3] == row[4] == 3 for row in metrics.rows)
    assert all(row[3].value + 2 * row[3].error < 1 for row in iterates.rows)
    assert np.isfinite([row[1] for row in iterates.rows]).all()
