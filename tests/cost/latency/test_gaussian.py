"""The regression against its textbook form and against brute force."""

import numpy as np
import pytest

from nas_lightning.objectives.latency import Belief, best_rows, left_out


@pytest.fixture
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(12, 4))


@pytest.fixture
def z(rows) -> np.ndarray:
    return rows @ np.array([1.0, -2.0, 0.0, 0.5]) + 0.1 * np.random.default_rng(1).normal(size=len(rows))


def textbook(rows, z, noise):
    """S = (I + ΦᵀΦ/σ²)⁻¹ and m = S Φᵀz/σ²."""
    covariance = np.linalg.inv(np.eye(rows.shape[1]) + rows.T @ rows / noise**2)
    return covariance @ rows.T @ z / noise**2, covariance


@pytest.mark.parametrize("noise", [0.05, 1.0])
def test_the_belief_is_the_textbooks(rows, z, noise):
    belief = Belief.before(4, noise).condition(rows, z)
    mean, covariance = textbook(rows, z, noise)
    np.testing.assert_allclose(belief.mean, mean, atol=1e-10)
    np.testing.assert_allclose(belief.covariance, covariance, atol=1e-10)


def test_measurements_can_come_one_after_another(rows, z):
    together, belief = Belief.before(4, 0.3).condition(rows, z), Belief.before(4, 0.3)
    for row, value in zip(rows, z, strict=True):
        belief = belief.condition(row[None], np.array([value]))
    np.testing.assert_allclose(belief.mean, together.mean, atol=1e-10)
    np.testing.assert_allclose(belief.covariance, together.covariance, atol=1e-10)


def test_predictions_are_right_as_often_as_they_say():
    """Weights are drawn from the prior, so 68.3 % of all predictions are within a standard deviation."""
    random, inside = np.random.default_rng(0), []
    for _ in range(400):
        rows, w = random.normal(size=(15, 5)), random.normal(size=5)
        z = rows @ w + 0.4 * random.normal(size=15)
        mean, deviation = Belief.before(5, 0.4).condition(rows[:5], z[:5]).predict(rows[5:])
        inside.append(np.abs(z[5:] - mean) < deviation)
    assert np.mean(inside) == pytest.approx(0.683, abs=0.03)


def test_what_is_left_out_is_predicted_by_the_others(rows, z):
    mean, covariance = textbook(rows[1:], z[1:], 0.3)
    deviation = (rows[0] @ covariance @ rows[0] + 0.09) ** 0.5
    assert left_out(Belief.before(4, 0.3), rows, z)[0] == pytest.approx((z[0] - rows[0] @ mean) / deviation)


def variance_left(rows, chosen, noise) -> float:
    _, covariance = textbook(rows[list(chosen)], np.zeros(len(chosen)), noise)
    return float(np.einsum("nf,fg,ng->", rows, covariance, rows))


def test_each_choice_leaves_the_least_variance(rows):
    chosen = best_rows(rows, 4, 0.3)
    assert len({*chosen}) == 4
    for number in range(4):
        others = {
            row: variance_left(rows, [*chosen[:number], row], 0.3)
            for row in range(len(rows))
            if row not in chosen[:number]
        }
        assert min(others, key=others.get) == chosen[number]
