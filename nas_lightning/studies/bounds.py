"""Shu 2022 on perceptrons: theorems 4.2 and 7.1, propositions 6.1 and 6.2, corollary 7.2, lemma D.9."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from matplotlib.figure import Figure
from torch import Tensor

from nas_lightning.checks import Channels, Seed, at_least, at_most, checked, entries
from nas_lightning.progress import follow
from nas_lightning.randomness import generator
from nas_lightning.runs.findings import Findings
from nas_lightning.studies.base import Study
from nas_lightning.studies.figures import overlay
from nas_lightning.studies.statistics import mean_estimate
from nas_lightning.studies.theory.random_iterate import descend
from nas_lightning.studies.theory.shu_bounds import kernel_diagonal, mean_bound, metric_shares, power_bound
from nas_lightning.studies.theory.wide_mlp import Trained, WideMlp, train
from nas_lightning.tables import Entry, Table

Depth = Annotated[int, at_least(2), at_most(1000)]
RATE = 0.99
"""η as a share of the largest that the propositions allow."""
DELTA = 0.05
BOUNDS = {"proposition 6.1": mean_bound, "corollary 7.2": power_bound}
ACTIVATIONS = ("relu", "leaky_relu", "tanh")
"""Of slopes up to 1, and |σ(x)| ≤ |x|."""
_TRAINING = (
    "Over draws, ± the standard error: the largest ‖f_t − f_lin‖ between the network and the linearised one, "
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
    """Do they hold, and how tight are they, where everything in them can be computed?

    Args:
        widths: k of the perceptrons, which have tanh and three layers.
        draws: of perceptrons for each width, of P and Q, and of perceptrons whose metrics are compared.
        images: m, of norms up to 1.
        inputs: n₀.
        steps: of gradient descent.
        depths: L of the infinitely wide perceptrons.
        runs: of stochastic gradient descent, for each of its step sizes.
        seed: of all that is drawn.

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
        """Draw, train and compare."""
        training, figure = self._training()
        tables = [training, self._data(), self._metrics(), self._iterates()]
        return Findings(tables, {"losses": figure})

    def _training(self) -> tuple[Table, Figure]:
        """Proposition 6.1, and the first term of corollary 7.2."""
        rows: list[list[Entry]] = []
        for width in follow(self.widths, "widths"):
            drawn = [self._trained(width, number) for number in range(self.draws)]
            apart = [float((one.outputs - one.linear).norm(dim=1).max()) for one in drawn]
            held = [self._held(one, f) for one in drawn for f in (one.outputs, one.linear)]
            shares = [
                mean_estimate([100 * one[name] for one in some])
                for some in (held[::2], held[1::2])
                for name in BOUNDS
            ]
            rows.append([width, mean_estimate(apart), *shares])
        columns = [
            "width",
            "apart",
            *(f"{name} {whose} (%)" for whose in ("holds", "holds, linearised") for name in BOUNDS),
        ]
        title = f"Training of perceptrons, {self.steps} steps of {RATE:g}/λ_max: {len(self.x)} images"
        return Table("training", title, columns, rows, _TRAINING), self._figure(drawn[0])

    def _trained(self, width: int, number: int) -> Trained:
        random = generator(self.seed, width, number)
        mlp = WideMlp(self.inputs, width=width, depth=3, sigma=torch.tanh, generator=random)
        return train(mlp, self.x, self.y, share=RATE, steps=self.steps)

    def _held(self, trained: Trained, outputs: Tensor) -> dict[str, float]:
        """The share of steps after the first whose loss each bound is above."""
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
        losses = {"network": trained.outputs, "linearised": trained.linear}
        curves = {name: (f - self.y).square().mean(dim=1) for name, f in losses.items()} | self._bounds(
            trained
        )
        floor = float(curves["network"].min()) / 100  # what falls further would leave the losses one line
        panel = {name: values.clamp_min(floor).log10().numpy()[1:] for name, values in curves.items()}
        return overlay({f"width {self.widths[-1]}": panel}, "log₁₀ of the loss", "step")

    def _data(self) -> Table:
        """Proposition 6.2, and lemma D.9 of theorem 7.3."""
        rows: list[list[Entry]] = []
        for name in ACTIVATIONS:
            for depth in self.depths:
                random = generator(self.seed, depth)
                reached = max(self._apart(name, depth, random) for _ in range(self.draws))
                ends = torch.tensor([0.0, 1.0], dtype=torch.float64) / self.inputs
                least, most = kernel_diagonal(name, ends, depth)
                reached = max(reached, self.inputs * float(most - least) / 2)
                held = ["yes" if reached <= bound else "no" for bound in (depth, 1)]
                rows.append([name, depth, reached, depth, held[0], 1, held[1]])
        columns = ["activation", "L", "reached", "proposition 6.2", "it holds", "lemma D.9", "that holds"]
        return Table("data", f"Kernels' traces on other data, n₀ = {self.inputs}", columns, rows, _DATA)

    def _apart(self, name: str, depth: int, random: torch.Generator) -> float:
        """n₀ |E_P Θ − E_Q Θ| / Z for two distributions over the images."""
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
