"""Finite networks and their test errors against theorems 2 and 3 (Zhu et al. 2022, arXiv:2209.07238)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nas_lightning.checks import Between0And1, PositiveFloat, PositiveInt, Seed, at_least, checked, entries
from nas_lightning.metrics.infinite.ntk import infinite_ntk
from nas_lightning.progress import follow
from nas_lightning.randomness import generator
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.activations.layers import ACTIVATIONS
from nas_lightning.studies.base import Study
from nas_lightning.studies.statistics import estimate, mean_estimate, spearman
from nas_lightning.studies.theory.ntk_bounds import error_bound, finite_bounds, step_size
from nas_lightning.studies.theory.plain_network import PlainNetwork, descend
from nas_lightning.tables import Entry, Table

_FINITE = "Means over draws of weights ± their standard errors; the bounds have unknown constants"
_ERRORS = (
    "K of infinite width; the bound with all constants as 1. Errors of algorithm 1's random iterate on other "
    "inputs, in percent, means over draws ± their standard errors; 50 % is chance. Empty where K is singular"
)
_ORDER = "Over all rows of the errors, ± the bootstrap's standard error"


class Images(NamedTuple):
    """Inputs on a sphere, and the side of a hyperplane through its centre.

    Args:
        x: of norm 1, (n, d).
        y: −1 or 1, (n,).
    """

    x: Tensor
    y: Tensor


def draw_images(count: int, dimension: int, random: torch.Generator) -> Images:
    """Uniform on the sphere, which is isotropic; the hyperplane is that of the first coordinate.

    >>> draw_images(2, 3, torch.Generator().manual_seed(0)).x.norm(dim=1)
    tensor([1., 1.], dtype=torch.float64)
    """
    x = F.normalize(torch.randn(count, dimension, dtype=torch.float64, generator=random), dim=1)
    return Images(x, x[:, 0].sign())


class FiniteNTK(Study):
    """Every activation, without skips and with all of them, at several numbers of inputs.

    Args:
        activations: of which each is in all layers.
        layers: L.
        width: m.
        counts: N, of training inputs.
        dimension: d of them.
        kappas: κ of algorithm 1's step.
        draws: of weights.
        tested: inputs that errors are measured on.
        delta: of theorem 3, which holds with probability 1 − δ.
        seed: of all that is drawn.

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
        """Draw, compare kernels with theorem 2 and errors with theorem 3."""
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
        if kernel.is_singular:  # which the theorem says nothing of
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
