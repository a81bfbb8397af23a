"""The regret of searches in NAS-Bench-201 by 12 epochs' validation accuracy, on random half-pools.

    python -m reproductions.measurements.regret --data ../shared/data [--pools 20] [--seconds 1750 3050]

A pool is a random half of the 15,625 cells. Random search draws from all of it; the others score its tenth
with the most parameters, on networks of 8 channels and two cells a stage and one batch of 32 CIFAR-10 images,
and evaluate until the table's seconds are spent. Scores are computed once, in a file where a second call
continues. Regret is the best test accuracy of all cells minus that of the cell with the best validation
accuracy; every test accuracy is looked up after the search. `--first 1000` takes other pools. `greedy_top`
ranks by params, meco, zen and swap; `greedy`, `robot` and `predictor` know zen and synflow.
"""

from __future__ import annotations

import argparse
import csv
import logging
import statistics
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from benchmarks.timing import quiet_trainer
from nas_lightning.data import Cifar10, Fake, SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.metrics import Metric
from nas_lightning.metrics.pool import score_pool
from nas_lightning.objectives.rankings import AT_THE_TOP, TO_WEIGH
from nas_lightning.objectives.tables import TabularNasBench201
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import Evolution, Greedy, Predictor, Robot
from nas_lightning.strategies.black_box.base import BlackBox, Scores
from nas_lightning.utils.randomness import choose

KEEP = 0.1
SIZES = {"in_channels": 3, "num_classes": 10, "channels": 8, "cells": 2}
METRICS: dict[str, Metric] = {**AT_THE_TOP, **TO_WEIGH}
_ROUNDS = 60  # more than there are seconds for


class ScoredCells(NasBench201):
    """The cells that have scores."""

    genotypes: Sequence[Genotype] = ()

    @classmethod
    def of(cls, notations: Iterable[str]) -> ScoredCells:
        """Return a space of these cells; arguments of a constructor would be settings of genotypes."""
        space = cls()
        space.genotypes = [space.parse(notation) for notation in notations]
        return space

    def sample(self, generator: torch.Generator) -> Genotype:
        return choose(self.genotypes, generator)


class FromFile(BlackBox):
    """Mixin for strategies that looks up scores by the names of their metrics."""

    file: Mapping[str, Scores]

    def measure(self, genotypes: Sequence[Genotype]) -> list[Scores]:
        rows = [self.file[self.space.notation(genotype)] for genotype in genotypes]
        return [{name: row[name] for name in self.metrics} for row in rows]


def from_table(strategy: type[BlackBox]) -> Any:
    return type(f"{strategy.__name__}FromFile", (FromFile, strategy), {})


def main() -> None:
    options = parse()
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    torch.set_num_threads(1)
    folder = options.data / "nasbench201"
    benchmark = TabularNasBench201(
        folder / "test_accuracy.csv", validation=folder / "validation_12_epochs.csv"
    )
    cells, file = score_cells(options)
    print(f"\n{options.pools} pools from {options.first} on\n")
    print("| search | seconds | evaluated | regret | best two |")
    print("|---|---|---|---|---|")
    for seconds in options.seconds:
        for name in options.searches:
            strategy, settings = searches(seconds)[name]
            pools = range(options.first, options.first + options.pools)
            found = [search(strategy, settings, pool, seconds, cells, file, benchmark) for pool in pools]
            report(name, seconds, found, benchmark)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--pool", type=Path, default=Path("outputs/regret/pool.csv"), help="the scores")
    parser.add_argument("--file", type=Path, help="existing scores, with columns arch and the metrics' names")
    parser.add_argument("--pools", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first pool")
    parser.add_argument("--seconds", type=float, nargs="+", default=[1750.0, 3050.0])
    known = list(searches(1.0))
    parser.add_argument("--searches", nargs="+", choices=known, default=known)
    parser.add_argument("--workers", type=int, default=1)
    return parser.parse_args()


def score_cells(options: argparse.Namespace) -> tuple[list[str], dict[str, Scores]]:
    """Return all cells by number of parameters, and the scores of those that can be in a pool's tenth."""
    space = NasBench201()
    cells = sorted(map(space.notation, space.all()), key=lambda notation: -count_weights(notation))
    if options.file is not None:
        return cells, read_scores(options.file)
    # a tenth of a random half is of the largest 12 % but for one pool in millions
    chosen = [space.parse(notation) for notation in cells[: round(0.12 * len(cells))]]
    (batch,) = Cifar10(root=str(options.data / "cifar10"), batch_size=32).train_batches(1)
    network = partial(space.network, **SIZES)
    work = {"path": options.pool, "workers": options.workers}
    scores = score_pool(space, network, chosen, batch, METRICS, **work)
    return cells, {space.notation(genotype): row for genotype, row in zip(chosen, scores, strict=True)}


def count_weights(notation: str) -> int:
    """Return a number in proportion to the parameters: 9 for a 3×3 convolution, 1 for a 1×1 one."""
    return 9 * notation.count("nor_conv_3x3") + notation.count("nor_conv_1x1")


def read_scores(path: Path) -> dict[str, Scores]:
    """Read scores by notation."""
    with path.open(encoding="utf-8") as lines:
        return {row["arch"]: {n: float(row[n]) for n in METRICS} for row in csv.DictReader(lines)}


def searches(seconds: float) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return strategy and settings of each row; `explore` is half of the rounds that fit into the seconds."""
    half = round(seconds / 340)  # the largest cells take 170 seconds
    return {
        "random": (Evolution, {"population": _ROUNDS}),
        "greedy_top": (Greedy, {"metrics": "top"}),
        "greedy": (Greedy, {"metrics": "to_weigh"}),
        "robot": (Robot, {"explore": half}),
        "predictor": (Predictor, {"metrics": "to_weigh", "starts": half}),
    }


def search(
    strategy: Any,
    settings: dict[str, Any],
    number: int,
    seconds: float,
    cells: Sequence[str],
    file: dict[str, Scores],
    benchmark: TabularNasBench201,
) -> tuple[str, int]:
    """Return the result of a search in a half-pool, and its number of evaluations."""
    pl.seed_everything(number, verbose=False)
    order = torch.randperm(len(cells), generator=torch.Generator().manual_seed(number)).tolist()
    half = sorted(order[: len(cells) // 2])  # cells are in the order of their size
    if strategy is not Evolution:
        settings = {**settings, "pool_size": round(KEEP * len(half))}
        half = half[: settings["pool_size"]]
    space = ScoredCells.of(cells[index] for index in half)
    limits = {"evaluation": "table", "seconds": seconds, "agreement": 0, "seed": number}
    data = SearchData(Fake(train_size=8, test_size=4, batch_size=4))
    module = from_table(strategy)(space, space.network, data, benchmark, **limits, **settings)
    module.file = file
    quiet_trainer(_ROUNDS, limit_train_batches=1).fit(module, data)
    (genotype,) = module.derive()
    return space.notation(genotype), len(module.evaluated)


def report(name: str, seconds: float, found: Sequence[tuple[str, int]], table: TabularNasBench201) -> None:
    """Print mean regret, its standard error, and the share of searches that find the two best accuracies."""
    test = table.table[table.dataset]
    best = sorted(set(test.values()), reverse=True)
    regrets = [best[0] - test[arch] for arch, _ in found]
    error = statistics.stdev(regrets) / len(regrets) ** 0.5
    share = statistics.mean(test[arch] >= best[1] for arch, _ in found)
    evaluated = statistics.mean(count for _, count in found)
    regret = f"{statistics.mean(regrets):.3f} ± {error:.3f}"
    print(f"| {name} | {seconds:.0f} | {evaluated:.1f} | {regret} | {share:.0%} |", flush=True)


if __name__ == "__main__":
    main()
