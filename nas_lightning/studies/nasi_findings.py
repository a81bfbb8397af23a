"""What searches by NASI end in over ν, μ, budgets and settings, as tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from nas_lightning.benchmarks.base import TabularBenchmark
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.studies import figures
from nas_lightning.studies.statistics import mean_estimate
from nas_lightning.studies.surfaces import heat_map
from nas_lightning.studies.theory.trace_samples import TraceSamples, trace_step
from nas_lightning.tables import Entry, Estimate, Table

MAIN = "main"
_GRID = "ν is a quantile of the t sampled by a search; means over searches ± their standard errors"
_BUDGETS = "ν at a quantile of t, at their mean (equation 6.14), at the running mean (6.15); μ = {mu:g}"
_SETTINGS = "ν at the {nu:.0%} quantile of the t sampled, μ = {mu:g}"
_EMPTY = "Empty where a search ended in an architecture that the table lacks"


class Rule(NamedTuple):
    """The constraint of a search.

    Args:
        nu: a quantile of the t that were sampled.
        mu: weight of the penalty.
    """

    nu: float
    mu: float


class Found(NamedTuple):
    """Samples, and what looks up what they lead to.

    Args:
        space: that was searched.
        benchmark: with the accuracies.
        samples: of each setting's searches.
        random: the mean accuracy of random cells, by data set.
    """

    space: SearchSpace
    benchmark: TabularBenchmark
    samples: Mapping[str, Sequence[TraceSamples]]
    random: Mapping[str, float]

    def genotype(self, step: torch.Tensor) -> Genotype:
        """The mode of p_{α*}, α* = Δ*."""
        groups = self.space.groups
        parts = step.split([prod(group.shape) for group in groups.values()])
        pairs = zip(groups.items(), parts, strict=True)
        return self.space.discretise({name: p.view(group.shape).softmax(-1) for (name, group), p in pairs})

    def accuracies(
        self, samples: Sequence[TraceSamples], rule: Rule, kind: str = "quantile"
    ) -> list[Estimate | None]:
        """Of each data set, the mean over searches; None where the table lacks what one of them ended in."""
        ends = [self.genotype(step_of(one, rule, kind)) for one in samples]
        if not all(map(self.benchmark.knows, ends)):
            return [None] * len(self.random)
        return [mean_estimate([self.benchmark.column(name, end) for end in ends]) for name in self.random]


def step_of(samples: TraceSamples, rule: Rule, kind: str = "quantile") -> torch.Tensor:
    """Δ* with ν by the rule (`quantile`), by equation 6.14 (`mean`) or by 6.15 (`adaptive`)."""
    mean = float(samples.traces.mean())
    nu = float(samples.traces.quantile(rule.nu)) if kind == "quantile" else mean
    return trace_step(samples, rule.mu, nu, adaptive=kind == "adaptive")


def grid_table(found: Found, nus: Sequence[float], mus: Sequence[float], what: str) -> tuple[Table, Figure]:
    """Accuracies over ν and μ."""
    main, place = found.samples[MAIN], list(found.random).index(found.benchmark.dataset)
    cells = [[found.accuracies(main, Rule(nu, mu))[place] for mu in mus] for nu in nus]
    rows: list[list[Entry]] = []
    for nu, line in zip(nus, cells, strict=True):
        rows.append([f"{nu:.0%}", mean_estimate([float(one.traces.quantile(nu)) for one in main]), *line])
    columns = ["quantile", "ν", *(f"μ = {mu:g}" for mu in mus)]
    table = Table("grid", f"Accuracy over ν and μ: {what}", columns, rows, _note(_GRID, rows))
    values = np.array([[np.nan if cell is None else cell.value for cell in line] for line in cells])
    names = [[f"{nu:.0%}" for nu in nus], [f"{mu:g}" for mu in mus]]
    return table, heat_map(values, *names, row="ν, quantile of t", column="μ", label="accuracy (%)")


def budget_tables(found: Found, budgets: Sequence[int], rule: Rule, what: str) -> tuple[Table, Figure]:
    """Accuracies over the number of samples, for three ways to ν."""
    main, place = found.samples[MAIN], list(found.random).index(found.benchmark.dataset)
    names = {"quantile": f"ν at {rule.nu:.0%}", "mean": "ν by 6.14", "adaptive": "ν by 6.15"}
    curves: dict[str, dict[str, Estimate | None]] = {name: {} for name in names.values()}
    for budget in budgets:
        some = [one.first(budget) for one in main]
        for kind, name in names.items():
            curves[name][str(budget)] = found.accuracies(some, rule, kind)[place]
    rows: list[list[Entry]] = [
        [budget, *(curve[str(budget)] for curve in curves.values())] for budget in budgets
    ]
    random = found.random[found.benchmark.dataset]
    note = _note(f"{_BUDGETS.format(mu=rule.mu)}. Random cells have {random:.2f} in the mean", rows)
    table = Table("budgets", f"Accuracy over T: {what}", ["T", *names.values()], rows, note)
    return table, figures.lines({"T": curves}, "accuracy (%)", "samples")


def settings_table(found: Found, rule: Rule, what: str) -> Table:
    """Accuracies of what searches end in, by setting, beside random cells'."""
    rows: list[list[Entry]] = []
    for name, samples in found.samples.items():
        rows.append([name, *found.accuracies(samples, rule)])
    rows.append(["random cells", *found.random.values()])
    note = _note(_SETTINGS.format(nu=rule.nu, mu=rule.mu), rows)
    return Table("settings", f"Accuracy by setting: {what}", ["setting", *found.random], rows, note)


def _note(text: str, rows: Sequence[Sequence[Entry]]) -> str:
    """The note of a table, and why cells of it are empty."""
    return f"{text}. {_EMPTY}" if any(None in row for row in rows) else text
