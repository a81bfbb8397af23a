"""The bounds of Shu's thesis (2022) that have no unknown constants.

Proposition 6.1 for one output, as k → ∞, and the first term of corollary 7.2 for the same loss, where
e = η/m is what its η is to the former, M² = λ̄ and c = 1:

    1/m ‖f_t − y‖² ≤ m (1 − ηλ̄)^q,  q = 2t where t < ½, and 1 from there on          (6.1)
    1/m ‖f_t − y‖² ≤ m (1 − eλ̄)^2t                                                   (7.2)

The second takes Σ_i (1 − eλ_i)^2t ≤ m (1 − eλ̄)^2t from Jensen's
inequality, which says the opposite of the convex x^2t.

Proposition 6.2, with Z = Σ_x |P(x) − Q(x)|, |σ(x)| ≤ |x| and slopes of at most 1, and lemma D.9, which
theorem 7.3 stands on and which lacks the depth:

    |E_P Θ(x, x) − E_Q Θ(x, x)| ≤ Z L / n₀        and        ≤ Z / n₀

Theorem 7.1, for losses of slope β and curvature γ, θ₀ ~ N(0, 1)^d and R² = d + 2√(d ln 1/δ) + 2 ln 1/δ:

    M_Grad ≤ β M_Trace,   M_SNIP ≤ β R M_Trace,   M_GraSP ≤ β (γρ₁² + βρ₂) R M_Trace,   M_KNAS ≤ M_Trace
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nas_lightning.metrics.infinite.gaussian import moments
from nas_lightning.studies.theory.wide_mlp import WideMlp

BETA, GAMMA = 1.0, 0.25
"""The largest slope and curvature of ℓ(f, y) = ln(1 + e^(−yf))."""


def power_bound(kernel: Tensor, eta: float, t: Tensor) -> Tensor:
    """m (1 − ηλ̄)^2t of corollary 7.2, for each t."""
    return len(kernel) * (1 - eta * kernel.diagonal().mean()) ** (2 * t)


def mean_bound(kernel: Tensor, eta: float, t: Tensor) -> Tensor:
    """m (1 − ηλ̄)^q of proposition 6.1, for each t.

    >>> kernel = torch.diag(torch.tensor([1.0, 3.0]))
    >>> mean_bound(kernel, 0.25, torch.tensor([0.0, 1.0, 2.0]))
    tensor([2., 1., 1.])
    """
    q = torch.where(t < 0.5, 2 * t, torch.ones_like(t))
    return len(kernel) * (1 - eta * kernel.diagonal().mean()) ** q


def kernel_diagonal(name: str, lengths: Tensor, depth: int) -> Tensor:
    """Θ(x, x) of infinitely wide perceptrons for inputs of ‖x‖²/n₀ = lengths, (p,):

        Σ¹ = Θ¹ = ‖x‖²/n₀,   Σˡ⁺¹ = E σ(u)²,   Θˡ⁺¹ = Θˡ E σ′(u)² + Σˡ⁺¹,   u ~ N(0, Σˡ)

    >>> kernel_diagonal("relu", torch.tensor([1.0], dtype=torch.float64), 3)  # L / 2^(L − 1)
    tensor([0.7500], dtype=torch.float64)
    """
    covariance = kernel = lengths
    for _ in range(depth - 1):
        layer = moments(name, torch.diag(covariance))
        covariance = layer.product.diagonal()
        kernel = kernel * layer.slopes.diagonal() + covariance
    return kernel


def radius(count: int, delta: float) -> float:
    """R, which ‖θ₀‖ of so many weights is below with probability 1 − δ (lemma D.1)."""
    log = math.log(1 / delta)
    return math.sqrt(count + 2 * math.sqrt(count * log) + 2 * log)


def metric_shares(mlp: WideMlp, x: Tensor, y: Tensor, delta: float) -> dict[str, float]:
    """What share of its bound by theorem 7.1 each metric reaches, for y of −1 and 1.

    ρ₁ and ρ₂ are those of the drawn weights: the largest ‖∇f‖, and norm of ∇²f, of the images.
    """
    jacobian, theta = mlp.jacobian(x), mlp.weights
    f = mlp.outputs(theta, x)
    slope, curve = -y * torch.sigmoid(-y * f), torch.sigmoid(f) * torch.sigmoid(-f)
    gradients = slope[:, None] * jacobian  # of ℓ, (m, d)
    second = torch.stack(
        [
            torch.autograd.functional.hessian(lambda w, one=one: mlp.outputs(w, one[None])[0], theta)
            for one in x
        ]
    )  # (m, d, d)
    hessians = (
        curve[:, None, None] * jacobian[:, :, None] * jacobian[:, None, :] + slope[:, None, None] * second
    )
    trace = float(jacobian.square().sum(dim=1).mean().sqrt())
    grasp = abs(float(torch.einsum("d,mde,me->m", theta, hessians, gradients).mean()))
    curvature = GAMMA * float(jacobian.square().sum(dim=1).max())
    curvature += BETA * float(torch.linalg.matrix_norm(second, ord=2).max())
    bound = BETA * trace
    return {
        "M_Grad": float(gradients.mean(dim=0).norm()) / bound,
        "M_SNIP": float((gradients @ theta).abs().mean()) / (bound * radius(len(theta), delta)),
        "M_GraSP": grasp / (bound * curvature * radius(len(theta), delta / 2)),
        "M_KNAS": math.sqrt(abs(float((jacobian @ jacobian.T).mean()))) / trace,
    }
