"""λ_min of infinitely wide networks over depth, and theorem 1 (Zhu et al. 2022, arXiv:2209.07238, F.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from matplotlib.figure import Figure
from torch import Tensor

from nas_lightning.checks import at_least, at_most, checked, entries
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.metrics.infinite.ntk import infinite_ntk
from nas_lightning.plots.activations import COLOURS
from nas_lightning.plots.style import INK, tidy
from nas_lightning.progress import follow
from nas_lightning.randomness import generator
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.activations.layers import ACTIVATIONS
from nas_lightning.studies.base import Study
from nas_lightning.studies.theory.ntk_bounds import bounds
from nas_lightning.tables import Entry, Table

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
    """Every activation, without skips and with all of them, at several depths; no network is built.

    Args:
        depths: L, the last layer included.
        inputs: images, the first of the weights' side; each divided by its norm.
        activations: of which each is in all layers.
        counts: N of a second table, of isotropic inputs: uniform on a sphere, at the smallest depth.
        dimension: d of these; the theorem asks for N in the order of d⁴.

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
        """λ_min, exact, by lemma 1, and between its bounds."""
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
        """Whether any constant makes theorem 1's lower bound one: λ_min beside it over N."""
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
    """Different images as vectors of norm 1, in float64: (count, d)."""
    batches = data.train_batches(-(-count // data.batch_size))
    x = torch.cat([images for images, _ in batches]).flatten(1).double()
    x = torch.unique(x / x.norm(dim=1, keepdim=True), dim=0)  # the same one twice, and λ_min is 0
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
                axes.semilogy(depths, values, marker="o", markersize=3, color=COLOURS[name], label=name)
        title = "a skip round each layer" if skip else "no skips"
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK)
        axes.set_xlabel("depth L", fontsize=8, color=INK)
    panels[0].set_ylabel("λ_min", fontsize=8, color=INK)
    panels[0].legend(frameon=False, fontsize=7, labelcolor=INK)
    return figure
