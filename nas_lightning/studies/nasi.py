"""What NASI's search depends on (Shu et al. 2022, arXiv:2109.00817; Y. Shu's thesis, 2022, section 6.6).

Figure 6.3 and the conditioned row of table 6.5: t(A) against accuracies. Figures 6.2, 6.4 and 6.6 and tables
6.4, 6.6 and 6.8: searches over budgets, ν and μ, widths, batch sizes, random labels and inputs. ν is a
quantile of the t that a search has sampled, so that it means the same at every width and batch size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from torch import nn

from nas_lightning.backends import Backend
from nas_lightning.benchmarks.base import TabularBenchmark
from nas_lightning.checks import (
    DISTINCT,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Seed,
    at_least,
    at_most,
    checked,
    entries,
)
from nas_lightning.data import SearchData
from nas_lightning.machine import Processes
from nas_lightning.progress import follow
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.nasi.batches import Inputs, Labels
from nas_lightning.strategies.nasi.strategy import Computed, Nasi
from nas_lightning.studies.base import Study
from nas_lightning.studies.nasi_findings import Found, Rule, budget_tables, grid_table, settings_table
from nas_lightning.studies.pools import Scorer, Setting, draw_known
from nas_lightning.studies.theory.trace_samples import TraceSamples, draw_samples
from nas_lightning.studies.trace_bins import TRACE, bins_of

Quantile = Annotated[float, at_least(0), at_most(1)]


class SearchSetting(NamedTuple):
    """What samples are drawn in.

    Args:
        sizes: of the supernet, where they are not its own.
        batch_size: images of a step.
        labels: true or random.
        inputs: true or Gaussian.
    """

    sizes: dict[str, int]
    batch_size: int
    labels: Labels = "true"
    inputs: Inputs = "true"


@checked
class NasiAblation(Study):
    """NASI's trace against accuracies, and what becomes of its search when one thing varies.

    A search's samples serve for all ν, μ and budgets, which are computed from them exactly.

    Args:
        cells: random architectures whose t stands against accuracies.
        bins: of as many architectures each.
        steps: T, of each search.
        searches: of each setting, with other weights, samples and order of images; 0: cells are binned, and
            that is all, which needs no supernet.
        nus: ν as quantiles of the t that were sampled; 1 is a search without constraint.
        mus: μ.
        nu, mu: where they do not vary.
        budgets: of steps; those above T are left out.
        channels: widths of the supernet beside its own.
        batch_sizes: beside that of the data set.
        agnostic: whether to search with random labels, and with Gaussian inputs.
        computed: as of `Nasi`.
        resamples: of the bootstrap.
        workers: processes that score the cells.
        backend: whose processes, see `nas_lightning.backends.spread`.
        seed: of cells and searches.

    >>> study = NasiAblation(steps=4, channels=[2], batch_sizes=[], agnostic=False)
    >>> list(study.settings(16))
    ['main', '2 channels']
    """

    def __init__(
        self,
        *,
        cells: Annotated[int, at_least(4)] = 300,
        bins: Annotated[int, at_least(2)] = 10,
        steps: PositiveInt = 100,
        searches: NonNegativeInt = 5,
        nus: Annotated[Sequence[Quantile], entries(1), DISTINCT] = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0),
        mus: Annotated[Sequence[NonNegativeFloat], entries(1), DISTINCT] = (0.5, 1.0, 2.0, 4.0, 8.0),
        nu: Quantile = 0.5,
        mu: NonNegativeFloat = 1.0,
        budgets: Annotated[Sequence[PositiveInt], DISTINCT] = (1, 2, 5, 10, 20, 50, 100, 200, 500),
        channels: Annotated[Sequence[PositiveInt], DISTINCT] = (2, 4, 16),
        batch_sizes: Annotated[Sequence[Annotated[int, at_least(2)]], DISTINCT] = (8, 16, 64),
        agnostic: bool = True,
        computed: Computed = "sampled",
        resamples: PositiveInt = 200,
        workers: Processes = 1,
        backend: Backend = "processes",
        seed: Seed = 0,
    ) -> None:
        self.cells, self.bins, self.steps, self.searches = cells, bins, steps, searches
        self.nus, self.mus, self.rule = sorted(nus), sorted(mus), Rule(nu, mu)
        self.budgets = sorted({b for b in budgets if b < steps} | {steps})
        self.channels, self.batch_sizes, self.agnostic = list(channels), list(batch_sizes), agnostic
        self.computed, self.resamples, self.seed = computed, resamples, seed
        self.scorer = Scorer(TRACE, workers, backend)

    def settings(self, batch_size: int) -> dict[str, SearchSetting]:
        """By name, the main one first."""
        found = {"main": SearchSetting({}, batch_size)}
        for channels in self.channels:
            found[f"{channels} channels"] = SearchSetting({"channels": channels}, batch_size)
        for size in self.batch_sizes:
            found[f"batches of {size}"] = SearchSetting({}, size)
        if self.agnostic:
            found["random labels"] = SearchSetting({}, batch_size, labels="random")
            found["gaussian inputs"] = SearchSetting({}, batch_size, inputs="gaussian")
        return found

    def run(
        self,
        space: SearchSpace,
        network: Callable[..., nn.Module],
        supernet: Callable[..., Supernet],
        data: SearchData,
        benchmark: TabularBenchmark,
        folder: Path,
    ) -> Findings:
        """Score cells, draw the samples that are not in files yet, and look accuracies up."""
        if self.searches:
            with torch.device("meta"):
                supernet()  # raises in a space without one, before anything is scored
        genotypes, accuracies = draw_known(benchmark, space, self.cells, self.seed)
        pool = self.scorer.pool(space, genotypes, folder)
        norms = pool.score_main(Setting(network, data.train_batches(1)[0]))["norm"]
        what = f"{self.cells:,} cells scored on {data.name}"
        options = {"bins": self.bins, "resamples": self.resamples, "seed": self.seed}
        tables, figures = bins_of(norms, accuracies[benchmark.dataset], what=what, **options)
        if not self.searches:
            return Findings(tables, figures)

        settings = self.settings(data.batch_size)
        cases = [(name, seed) for name in settings for seed in range(self.seed, self.seed + self.searches)]
        samples: dict[str, list[TraceSamples]] = {name: [] for name in settings}
        for name, seed in follow(cases, "searches"):
            path = folder / "samples" / f"{name.replace(' ', '_')}_{seed}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            samples[name].append(self._search(settings[name], space, supernet, data, path, seed))
        found = Found(space, benchmark, samples, {k: float(v.mean()) for k, v in accuracies.items()})
        what = f"{self.searches} searches of {space.name} on {data.name}"
        grid, picture = grid_table(found, self.nus, self.mus, what)
        budget, lines = budget_tables(found, self.budgets, self.rule, what)
        tables += [grid, budget, settings_table(found, self.rule, what)]
        return Findings(tables, {**figures, "grid": picture, "budgets": lines})

    def _search(
        self,
        setting: SearchSetting,
        space: SearchSpace,
        supernet: Callable[..., Supernet],
        data: SearchData,
        path: Path,
        seed: int,
    ) -> TraceSamples:
        options: dict[str, Any] = {"labels": setting.labels, "inputs": setting.inputs, "seed": seed}
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            net = supernet(**setting.sizes)
            strategy = Nasi(space, net, data, nu=1.0, computed=self.computed, **options)
        facts = {**setting._asdict(), "parameters": sum(p.numel() for p in strategy.theta)}
        sizes = {"steps": self.steps, "batch_size": setting.batch_size}
        return draw_samples(strategy, data, path, settings=facts, **sizes)
