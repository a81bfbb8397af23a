"""Bayesian linear regression (Bishop 2006, section 3.3): what a few measurements say of all the others.

    z = φᵀw + ε,   w ~ N(0, I),   ε ~ N(0, σ²)
    S = (I + ΦᵀΦ/σ²)⁻¹,   m = S Φᵀz/σ²            the belief after measurements z of rows Φ
    z* ~ N(φ*ᵀm, φ*ᵀS φ* + σ²)                    and what it says of another row

Scaling a column of features scales its weight's prior. Which rows to measure does not depend on what is
measured, so `best_rows` chooses them beforehand.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Belief(NamedTuple):
    """What is known of the weights.

    Args:
        mean: m, of (features,).
        covariance: S, of (features, features).
        noise: σ.

    >>> prior = Belief.before(features=1, noise=1.0)
    >>> after = prior.condition(np.array([[1.0]]), np.array([3.0]))  # half of the way from 0 to 3
    >>> after.mean, after.covariance
    (array([1.5]), array([[0.5]]))
    """

    mean: Array
    covariance: Array
    noise: float

    @classmethod
    def before(cls, features: int, noise: float) -> Belief:
        """The prior."""
        return cls(np.zeros(features), np.eye(features), noise)

    def condition(self, rows: Array, z: Array) -> Belief:
        """The belief after measurements z (n,) of rows (n, features)."""
        gain, spread = self._gain(rows)
        mean = self.mean + gain @ (z - rows @ self.mean)
        return Belief(mean, self.covariance - gain @ spread @ gain.T, self.noise)

    def _gain(self, rows: Array) -> tuple[Array, Array]:
        """Kalman's form of S, whose matrix to invert is as large as there are measurements."""
        spread = rows @ self.covariance @ rows.T + self.noise**2 * np.eye(len(rows))
        return np.asarray(np.linalg.solve(spread, rows @ self.covariance).T, dtype=np.float64), spread

    def predict(self, rows: Array) -> tuple[Array, Array]:
        """The mean and the standard deviation of what would be measured: (n,), (n,)."""
        variance = np.einsum("nf,fg,ng->n", rows, self.covariance, rows) + self.noise**2
        return rows @ self.mean, np.sqrt(variance)


def left_out(prior: Belief, rows: Array, z: Array) -> Array:
    """Each measurement's error in standard deviations, as the others predict it: (n,)."""
    errors = np.empty(len(z))
    for i in range(len(z)):
        others = np.arange(len(z)) != i
        mean, deviation = prior.condition(rows[others], z[others]).predict(rows[i : i + 1])
        errors[i] = (z[i] - mean[0]) / deviation[0]
    return errors


def best_rows(rows: Array, count: int, noise: float) -> list[int]:
    """The rows whose measurements leave the least variance over all, one after another (I-optimality).

    A measurement of φ changes S to S − Sφφᵀ S/(φᵀSφ + σ²); so the variance, summed over rows Φ, falls by
    φᵀS ΦᵀΦ Sφ/(φᵀSφ + σ²).

    >>> best_rows(np.array([[0.0], [1.0], [3.0]]), count=1, noise=1.0)
    [2]
    """
    belief = Belief.before(rows.shape[1], noise)
    moments = rows.T @ rows
    chosen: list[int] = []
    while len(chosen) < count:
        reached = rows @ belief.covariance
        fall = np.einsum("nf,fg,ng->n", reached, moments, reached)
        fall /= np.einsum("nf,nf->n", reached, rows) + noise**2
        fall[chosen] = -1.0
        chosen.append(int(fall.argmax()))
        belief = belief.condition(rows[chosen[-1:]], np.zeros(1))  # of what value, changes no variance
    return chosen
