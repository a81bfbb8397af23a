"""Bounds of Y. Shu's thesis (2022) without unknown constants: theorems 4.2, 7.1, propositions 6.1, 6.2, …"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from nas_lightning.metrics.infinite import moments
from nas_lightning.runs.facts import Findings
from nas_lightning.studies import figures
from nas_lightning.studies.base import Study
from nas_lightning.studies.scoring import mean_estimate
from nas_lightning.utils.progress import follow
from nas_lightning.utils.randomness import generator
from nas_lightning.utils.tables import Entry, Table
from nas_lightning.validation import Channels, Seed, at_least, at_most, checked, entries

# Perceptrons in the parametrization of the neural tangent kernel (Jacot et al. 2018), and their training.
#
#     h⁽¹⁾ = W⁽¹⁾ x / √n₀,    h⁽ˡ⁾ = W⁽ˡ⁾ σ(h⁽ˡ⁻¹⁾) / √k,    f(x) = h⁽ᴸ⁾,    W ~ N(0, 1)
#
# With f₀ subtracted, gradient descent on ½‖f − y‖² moves the linearized network by its kernel Θ₀ alone:
#
#     f_t = (1 − (1 − ηΘ₀)ᵗ) y

Sigma = Callable[[Tensor], Tensor]


class WideMlp:
    """A perceptron of one output with its weights in one vector.

    Args:
        inputs: n₀.
        width: k.
        depth: L, including the last layer.
        sigma: the activation.
        generator: generator of the weights.

    >>> mlp = WideMlp(3, width=8, depth=2, sigma=torch.tanh, generator=torch.Generator().manual_seed(0))
    >>> mlp.outputs(mlp.weights, torch.ones(5, 3, dtype=torch.float64)).shape
    torch.Size([5])
    """

    def __init__(
        self, inputs: int, *, width: int, depth: int, sigma: Sigma, generator: torch.Generator
    ) -> None:
        self.sizes, self.sigma = [inputs, *[width] * (depth - 1), 1], sigma
        count = sum(a * b for a, b in zip(self.sizes, self.sizes[1:], strict=False))
        self.weights = torch.randn(count, dtype=torch.float64, generator=generator)  # (d,)

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        """Return f with these weights (d,): (m, n₀) → (m,)."""
        h, first = x, 0
        for layer, (fan_in, fan_out) in enumerate(zip(self.sizes, self.sizes[1:], strict=False)):
            W = weights[first : first + fan_in * fan_out].view(fan_out, fan_in)
            h = (self.sigma(h) if layer else h) @ W.T / fan_in**0.5
            first += fan_in * fan_out
        return h[:, 0]

    def jacobian(self, x: Tensor) -> Tensor:
        """Return ∇_θ f(x_i), (m, n₀) → (m, d)."""
        weights = self.weights.clone().requires_grad_()
        f = self.outputs(weights, x)
        return torch.stack([torch.autograd.grad(one, weights, retain_graph=True)[0] for one in f])


class Trained(NamedTuple):
    """Gradient descent of a network and of its linearization.

    Args:
        kernel: Θ₀, (m, m).
        outputs: f_t − f₀ before each step and after the last, (steps + 1, m).
        linear: the same of the linearized network.
    """

    kernel: Tensor
    outputs: Tensor
    linear: Tensor


def train(mlp: WideMlp, x: Tensor, y: Tensor, *, share: float, steps: int) -> Trained:
    """Run gradient descent with η = share / λ_max(Θ₀), from f₀ = 0."""
    jacobian = mlp.jacobian(x)
    kernel = jacobian @ jacobian.T
    eta = share / float(torch.linalg.eigvalsh(kernel)[-1])
    start, weights, found = mlp.outputs(mlp.weights, x), mlp.weights.clone().requires_grad_(), []
    for _ in range(steps + 1):
        f = mlp.outputs(weights, x) - start
        found.append(f.detach())
        (slope,) = torch.autograd.grad(0.5 * (f - y).square().sum(), weights)
        weights = (weights - eta * slope).detach().requires_grad_()
    return Trained(kernel, torch.stack(found), linear_outputs(kernel, y, eta, steps))


def linear_outputs(kernel: Tensor, y: Tensor, eta: float, steps: int) -> Tensor:
    """Return f_t = Σ_i (1 − (1 − ηλ_i)ᵗ) (u_iᵀ y) u_i for t = 0 … steps: (steps + 1, m)."""
    eigenvalues, u = torch.linalg.eigh(kernel)
    t = torch.arange(steps + 1, dtype=kernel.dtype)
    left = (1 - eta * eigenvalues) ** t[:, None]  # (steps + 1, m)
    return (1 - left) * (u.T @ y) @ u.T


# Theorem 4.2 of Shu's thesis (2022; Ghadimi & Lan 2013), where its constants are known.
#
# For an L-smooth F ≥ F*, gradients of variance σ² and constant steps η ≤ 1/L, a random one of N iterates has
#
#     E‖∇F(w_R)‖² ≤ 2 (F(w₁) − F*) / (Nη) + L σ² η
#
# F(w) = 1/n Σ_i ½ (s(x_iᵀ w) − y_i)² with the logistic s and y in [0, 1] is not convex, F* ≥ 0, and
# |∂²/∂z² ½ (s(z) − y)²| ≤ 1/16 + 1/(6√3), so that L = (1/16 + 1/(6√3)) λ_max(XᵀX/n).

CURVATURE = 1 / 16 + 1 / (6 * math.sqrt(3))


class Descent(NamedTuple):
    """Results of many runs of stochastic gradient descent.

    Args:
        found: mean of ‖∇F(w_R)‖² over a run's iterates, (runs,).
        bound: bound of the theorem.
    """

    found: Tensor
    bound: float


def smoothness(x: Tensor) -> float:
    """Return L for inputs (n, d)."""
    return CURVATURE * float(torch.linalg.eigvalsh(x.T @ x / len(x))[-1])


def gradients(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return ∇f_i(w) = (s − y_i) s (1 − s) x_i of every image: (runs, d) → (runs, n, d)."""
    s = torch.sigmoid(w @ x.T)
    return ((s - y) * s * (1 - s))[..., None] * x


def descend(
    x: Tensor, y: Tensor, *, share: float, steps: int, runs: int, generator: torch.Generator
) -> Descent:
    """Run steps of η = share / L on one image each from w = 0; σ² is the largest variance on the way."""
    smooth = smoothness(x)
    eta, w, norms, variance = share / smooth, torch.zeros(runs, x.shape[1], dtype=x.dtype), [], 0.0
    start = float(0.5 * (0.5 - y).square().mean())
    for _ in range(steps):
        each = gradients(w, x, y)
        mean = each.mean(dim=1)
        norms.append(mean.square().sum(dim=1))
        variance = max(variance, float((each - mean[:, None]).square().sum(dim=2).mean(dim=1).max()))
        drawn = torch.randint(len(x), (runs,), generator=generator)
        w = w - eta * each[torch.arange(runs), drawn]
    return Descent(torch.stack(norms).mean(dim=0), 2 * start / (steps * eta) + smooth * variance * eta)


# The bounds of Shu's thesis (2022) that have no unknown constants.
#
# Proposition 6.1 for one output, as k → ∞, and the first term of corollary 7.2 for the same loss, where
# e = η/m is what its η is to the former, M² = λ̄ and c = 1:
#
#     1/m ‖f_t − y‖² ≤ m (1 − ηλ̄)^q,  q = 2t where t < ½, and 1 from there on          (6.1)
#     1/m ‖f_t − y‖² ≤ m (1 − eλ̄)^2t                                                   (7.2)
#
# The second uses Σ_i (1 − eλ_i)^2t ≤ m (1 − eλ̄)^2t by Jensen's inequality, which gives the opposite for the
# convex x^2t.
#
# Proposition 6.2, with Z = Σ_x |P(x) − Q(x)|, |σ(x)| ≤ |x| and slopes of at most 1, and lemma D.9, which
# theorem 7.3 uses and which lacks the depth:
#
#     |E_P Θ(x, x) − E_Q Θ(x, x)| ≤ Z L / n₀        and        ≤ Z / n₀
#
# Theorem 7.1, for losses of slope β and curvature γ, θ₀ ~ N(0, 1)^d and R² = d + 2√(d ln 1/δ) + 2 ln 1/δ:
#
#     M_Grad ≤ β M_Trace,   M_SNIP ≤ β R M_Trace,   M_GraSP ≤ β (γρ₁² + βρ₂) R M_Trace,   M_KNAS ≤ M_Trace

BETA, GAMMA = 1.0, 0.25
"""The largest slope and curvature of ℓ(f, y) = ln(1 + e^(−yf))."""


def power_bound(kernel: Tensor, eta: float, t: Tensor) -> Tensor:
    """Return m (1 − ηλ̄)^2t of corollary 7.2 for each t."""
    return len(kernel) * (1 - eta * kernel.diagonal().mean()) ** (2 * t)


def mean_bound(kernel: Tensor, eta: float, t: Tensor) -> Tensor:
    """Return m (1 − ηλ̄)^q of proposition 6.1 for each t.

    >>> kernel = torch.diag(torch.tensor([1.0, 3.0]))
    >>> mean_bound(kernel, 0.25, torch.tensor([0.0, 1.0, 2.0]))
    tensor([2., 1., 1.])
    """
    q = torch.where(t < 0.5, 2 * t, torch.ones_like(t))
    return len(kernel) * (1 - eta * kernel.diagonal().mean()) ** q


def kernel_diagonal(name: str, lengths: Tensor, depth: int) -> Tensor:
    """Return Θ(x, x) of infinitely wide perceptrons for inputs with ‖x‖²/n₀ = lengths, (p,):

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
    """Return R, the bound of ‖θ₀‖ for `count` weights with probability 1 − δ (lemma D.1)."""
    log = math.log(1 / delta)
    return math.sqrt(count + 2 * math.sqrt(count * log) + 2 * log)


def metric_shares(mlp: WideMlp, x: Tensor, y: Tensor, delta: float) -> dict[str, float]:
    """Return the ratio of each metric to its bound of theorem 7.1, for y of −1 and 1.

    ρ₁ and ρ₂ are those of the drawn weights: the largest ‖∇f‖ and norm of ∇²f over the images.
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


# Shu 2022 on perceptrons: theorems 4.2 and 7.1, propositions 6.1 and 6.2, corollary 7.2, lemma D.9.

Depth = Annotated[int, at_least(2), at_most(1000)]
RATE = 0.99
"""η as a share of the largest that the propositions allow."""
DELTA = 0.05
BOUNDS = {"proposition 6.1": mean_bound, "corollary 7.2": power_bound}
ACTIVATIONS = ("relu", "leaky_relu", "tanh")
"""Activations with slopes up to 1 and |σ(x)| ≤ |x|."""
_TRAINING = (
    "Over draws, ± the standard error: the largest ‖f_t − f_lin‖ between the network and the linearized one, "
    "and the share of steps in which each bound is above the loss of either"
)
_DATA = (
    "The largest n₀ |E_P Θ − E_Q Θ| / Z of all drawn P and Q and of the two that differ most, and its bounds"
)
_METRICS = "What share of its bound by M_Trace a metric reaches, and of how many draws it stays below"
_ITERATE = (
    "The mean of ‖∇F‖² over iterates, and what share of its bound that is, ± the standard error over runs"
)


class ThesisBounds(Study):
    """Check the bounds and their tightness where everything in them can be computed.

    Args:
        widths: k of the perceptrons, which have three layers and tanh.
        draws: number of perceptrons of each width, of pairs P and Q, and of perceptrons for the metrics.
        images: m, number of inputs, of norms up to 1.
        inputs: n₀.
        steps: steps of gradient descent.
        depths: L of the infinitely wide perceptrons.
        runs: runs of stochastic gradient descent for each step size.
        seed: seed of inputs and weights.

    >>> findings = ThesisBounds(widths=[8], draws=2, images=4, inputs=3, steps=5, depths=[2], runs=3).run()
    >>> [table.name for table in findings.tables]
    ['training', 'data', 'metrics', 'iterates']
    """

    @checked
    def __init__(
        self,
        *,
        widths: Annotated[Sequence[Channels], entries(1)] = (32, 64, 128, 256, 512),
        draws: Annotated[int, at_least(2)] = 10,
        images: Annotated[int, at_least(2)] = 16,
        inputs: Annotated[int, at_least(2)] = 8,
        steps: Annotated[int, at_least(2)] = 200,
        depths: Annotated[Sequence[Depth], entries(1)] = (2, 3, 5, 8),
        runs: Annotated[int, at_least(2)] = 100,
        seed: Seed = 0,
    ) -> None:
        self.widths, self.draws, self.depths, self.steps = sorted(widths), draws, sorted(depths), steps
        self.inputs, self.runs, self.seed = inputs, runs, seed
        random = generator(seed)
        x = torch.randn(images, inputs, dtype=torch.float64, generator=random)
        lengths = torch.rand(images, 1, dtype=torch.float64, generator=random)
        self.x = x / x.norm(dim=1, keepdim=True) * lengths.sqrt()
        self.y = torch.rand(images, dtype=torch.float64, generator=random)

    def run(self) -> Findings:
        """Draw, train, and compare."""
        training, figure = self._training()
        tables = [training, self._data(), self._metrics(), self._iterates()]
        return Findings(tables, {"losses": figure})

    def _training(self) -> tuple[Table, Figure]:
        """Proposition 6.1, and the first term of corollary 7.2."""
        rows: list[list[Entry]] = []
        for size in follow(self.widths, "widths"):
            drawn = [self._trained(size, number) for number in range(self.draws)]
            apart = [float((one.outputs - one.linear).norm(dim=1).max()) for one in drawn]
            held = [self._held(one, f) for one in drawn for f in (one.outputs, one.linear)]
            shares = [
                mean_estimate([100 * one[name] for one in some])
                for some in (held[::2], held[1::2])
                for name in BOUNDS
            ]
            rows.append([size, mean_estimate(apart), *shares])
        columns = [
            "width",
            "apart",
            *(f"{name} {whose} (%)" for whose in ("holds", "holds, linearized") for name in BOUNDS),
        ]
        title = f"Training of perceptrons, {self.steps} steps of {RATE:g}/λ_max: {len(self.x)} images"
        return Table("training", title, columns, rows, _TRAINING), self._figure(drawn[0])

    def _trained(self, size: int, number: int) -> Trained:
        random = generator(self.seed, size, number)
        mlp = WideMlp(self.inputs, width=size, depth=3, sigma=torch.tanh, generator=random)
        return train(mlp, self.x, self.y, share=RATE, steps=self.steps)

    def _held(self, trained: Trained, outputs: Tensor) -> dict[str, float]:
        """Return the share of steps after the first with a loss below each bound."""
        losses = (outputs - self.y).square().mean(dim=1)[1:]
        return {
            name: float((losses <= bound[1:]).double().mean())
            for name, bound in self._bounds(trained).items()
        }

    def _bounds(self, trained: Trained) -> dict[str, Tensor]:
        eta = RATE / float(torch.linalg.eigvalsh(trained.kernel)[-1])
        t = torch.arange(self.steps + 1, dtype=torch.float64)
        return {name: bound(trained.kernel, eta, t) for name, bound in BOUNDS.items()}

    def _figure(self, trained: Trained) -> Figure:
        losses = {"network": trained.outputs, "linearized": trained.linear}
        curves = {name: (f - self.y).square().mean(dim=1) for name, f in losses.items()} | self._bounds(
            trained
        )
        floor = float(curves["network"].min()) / 100  # lower bounds would flatten the losses
        panel = {name: values.clamp_min(floor).log10().numpy()[1:] for name, values in curves.items()}
        return figures.overlay({f"width {self.widths[-1]}": panel}, "log₁₀ of the loss", "step")

    def _data(self) -> Table:
        """Proposition 6.2, and lemma D.9 of theorem 7.3."""
        rows: list[list[Entry]] = []
        for name in ACTIVATIONS:
            for layers in self.depths:
                random = generator(self.seed, layers)
                reached = max(self._apart(name, layers, random) for _ in range(self.draws))
                ends = torch.tensor([0.0, 1.0], dtype=torch.float64) / self.inputs
                least, most = kernel_diagonal(name, ends, layers)
                reached = max(reached, self.inputs * float(most - least) / 2)
                held = ["yes" if reached <= bound else "no" for bound in (layers, 1)]
                rows.append([name, layers, reached, layers, held[0], 1, held[1]])
        columns = ["activation", "L", "reached", "proposition 6.2", "it holds", "lemma D.9", "that holds"]
        return Table("data", f"Kernels' traces on other data, n₀ = {self.inputs}", columns, rows, _DATA)

    def _apart(self, name: str, depth: int, random: torch.Generator) -> float:
        """Return n₀ |E_P Θ − E_Q Θ| / Z for two random distributions over the images."""
        P, Q = torch.rand(2, len(self.x), dtype=torch.float64, generator=random).pow(4)
        P, Q = P / P.sum(), Q / Q.sum()
        diagonal = kernel_diagonal(name, self.x.square().sum(dim=1) / self.inputs, depth)
        return self.inputs * abs(float((P - Q) @ diagonal)) / float((P - Q).abs().sum())

    def _metrics(self) -> Table:
        """Theorem 7.1."""
        labels = torch.where(self.y > 0.5, 1.0, -1.0).double()
        shares = []
        for number in follow(range(self.draws), "metrics"):
            random = generator(self.seed, 0, number)
            depth = 2 + number % 3
            mlp = WideMlp(self.inputs, width=8, depth=depth, sigma=torch.tanh, generator=random)
            shares.append(metric_shares(mlp, self.x, labels, DELTA))
        rows: list[list[Entry]] = []
        for name in shares[0]:
            reached = [one[name] for one in shares]
            rows.append(
                [name, mean_estimate(reached), max(reached), sum(r <= 1 for r in reached), len(reached)]
            )
        columns = ["metric", "share of the bound", "most", "below", "draws"]
        return Table(
            "metrics",
            "Metrics against M_Trace: theorem 7.1, perceptrons of 2 to 4 layers",
            columns,
            rows,
            _METRICS,
        )

    def _iterates(self) -> Table:
        """Theorem 4.2."""
        rows: list[list[Entry]] = []
        for share in (0.01, 0.1, 0.5, 0.99):
            random = generator(self.seed, round(100 * share))
            found = descend(
                self.x, self.y.round(), share=share, steps=self.steps, runs=self.runs, generator=random
            )
            reached = mean_estimate(found.found / found.bound)
            rows.append([f"{share:g}/L", float(found.found.mean()), found.bound, reached])
        title = f"A random iterate of {self.steps}: theorem 4.2, logistic units, {self.runs} runs"
        return Table("iterates", title, ["step size", "‖∇F‖²", "bound", "share of the bound"], rows, _ITERATE)
