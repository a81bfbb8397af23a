"""Results of the training-free strategies in NAS-Bench-201, and the ranking of its cells by their metrics.

    python -m reproductions.measurements.training_free --data ../shared/data [--pool FILE.csv] [--seeds 5]

The metrics of random cells are computed once, at initialization, on a batch of 64 real CIFAR-10 images, with
16 channels and 5 cells a stage; a second call continues. A file with columns `arch` and the metrics' names,
such as a study's, is used as it is. Every search draws a pool from the file and evaluates candidates by the
table: by validation accuracy after 12 epochs if available, or else by test accuracy after 200, which makes
the search an *oracle*. The table of results comes last. `--also` adds rows of other searches, from the file
that `reproductions.measurements.nasbench201_search` writes.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import statistics
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from scipy.stats import spearmanr

from benchmarks.timing import quiet_trainer
from nas_lightning.data import Cifar10, Fake, SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.metrics import Metric
from nas_lightning.metrics.pool import score_pool
from nas_lightning.objectives.rankings import COMBINED, log_ranks
from nas_lightning.objectives.tables import TabularNasBench201, table_accuracy
from nas_lightning.options import config_folder
from nas_lightning.runs.facts import mean_with_deviation
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import EigenNas, Evolution, Hnas, Knas, MetricSearch
from nas_lightning.strategies.black_box.base import BlackBox, Scores
from nas_lightning.utils.randomness import choose

METRICS = (
    *("grad_norm", "snip", "grasp", "fisher", "synflow", "naswot", "jacov"),
    *(
        "ntk_sqrt_mean_diag",
        "ntk_condition",
        "ntk_lambda_min",
        "ntk_mean_diag",
        "ntk_frobenius",
        "params",
        "flops",
    ),
    *("meco", "expressivity", "trainability", "zen", "swap"),
)


DATASETS = ("cifar10", "cifar100", "imagenet16-120")
COSTS = ("pool", "evaluations", "seconds")
REPORTED = {
    "hnas ntk_sqrt_mean_diag": "94.07 / 72.30 / 45.93",
    "hnas grad_norm": "94.04 / 71.75 / 45.91",
    "hnas snip": "93.94 / 71.49 / 46.07",
    "hnas grasp": "94.13 / 72.59 / 46.24",
    "hnas ntk_frobenius": "94.19 / 72.94 / 46.31",
    "hnas synflow": "94.13 / 72.50 / 45.47",
    "eigen_nas": "93.46 / 71.42 / 45.54",
    "knas": "93.38 / 70.78 / 44.63",
    "nasi": "93.55 / 71.20 / 44.84",
}
"""Of the papers, whose pools, training and numbers of rounds are their own."""


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
    """Mixin for strategies that looks up scores."""

    file: Mapping[str, Scores]
    columns: Mapping[str, str]  # the strategy's name of a metric → the file's

    def measure(self, genotypes: Sequence[Genotype]) -> list[Scores]:
        rows = [self.file[self.space.notation(genotype)] for genotype in genotypes]
        return [{name: row[column] for name, column in self.columns.items()} for row in rows]


def from_table(strategy: type[BlackBox]) -> Any:
    return type(f"{strategy.__name__}FromFile", (FromFile, strategy), {})


def main() -> None:
    options = parse()
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    torch.set_num_threads(1)
    file = score_cells(options)
    benchmark = TabularNasBench201(options.data / "nasbench201" / "test_accuracy.csv")
    benchmarks = {"cifar10": benchmark}
    if options.each:
        for dataset in DATASETS[1:]:
            benchmarks[dataset] = copy(benchmark)
            benchmarks[dataset].dataset = dataset
    correlations(file, benchmark)
    size = options.pool_size or len(file) // 2
    rows = {}
    for name, (strategy, settings) in searches(options, size).items():
        rows[name] = [search(strategy, settings, seed, file, benchmarks) for seed in range(options.seeds)]
    print(f"\nCandidates are evaluated by: {table_accuracy(benchmark).name}")
    print(f"by searches on {' and '.join(benchmarks)}; architectures are scored on CIFAR-10")
    print(f"Pools of {size} of {len(file)} scored cells, {options.seeds} seeds, HNAS with t = {options.t}")
    report({**rows, **read_rows(options.also)}, benchmark)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--pool", type=Path, default=Path("outputs/training_free/pool.csv"))
    parser.add_argument("--architectures", type=int, default=1000, help="architectures of a new pool file")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--pool-size", type=int, help="pool of each search; default: half of the file")
    parser.add_argument("--rounds", type=int, default=20, help="evaluations of each search")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--t", type=float, default=1.0, help="t of HNAS' F(x) = |x|^2t")
    parser.add_argument("--each", action="store_true", help="search separately for each data set")
    parser.add_argument(
        "--also", type=Path, help="results of reproductions.measurements.nasbench201_search, such as NASI's"
    )
    return parser.parse_args()


def metric(name: str) -> Metric:
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        return instantiate(compose(f"metric/{name}").metric)


def score_cells(options: argparse.Namespace) -> dict[str, Scores]:
    """Return the scores by notation, in the order of the file."""
    beside = options.pool.with_name(f"{options.pool.name}.json")
    ours = not options.pool.exists() or set(json.loads(beside.read_text())["metrics"]) == set(METRICS)
    if ours:
        space, generator = NasBench201(), torch.Generator().manual_seed(0)
        genotypes = list(dict.fromkeys(space.sample(generator) for _ in range(options.architectures)))
        network = partial(space.network, in_channels=3, num_classes=10)
        (batch,) = Cifar10(root=str(options.data / "cifar10"), batch_size=64).train_batches(1)
        metrics, start = {name: metric(name) for name in METRICS}, time.time()
        score_pool(space, network, genotypes, batch, metrics, path=options.pool, workers=options.workers)
        print(f"scored {len(genotypes)} cells in {time.time() - start:.0f} s")
    with options.pool.open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if all(row.values())]
    missing = set(METRICS) - set(rows[0] if rows else ())
    if missing:
        raise InputError("expected a pool with all metrics", got=f"no {min(missing)}", where=options.pool)
    return {row["arch"]: {name: float(row[name]) for name in METRICS} for row in rows}


def correlations(file: Mapping[str, Scores], benchmark: TabularNasBench201) -> None:
    """Print Spearman's ρ with the true CIFAR-10 accuracy, including degenerate cells."""
    truth = [benchmark.table["cifar10"][arch] for arch in file]
    rows = list(file.values())
    print(f"\n| ranking | ρ, {len(rows)} cells |\n|---|---|")
    for name in METRICS:
        oriented = metric(name).orient
        print(f"| {name} | {rho([oriented(row[name]) for row in rows], truth)} |")
    print(f"| {' + '.join(COMBINED)} | {rho(log_ranks(rows), truth)} |")


def rho(values: Sequence[float], truth: Sequence[float]) -> str:
    if len(values) < 10:
        return "–"
    value = float(spearmanr(values, truth)[0])
    return f"{value:.3f} ± {(1 - value**2) / (len(values) - 1) ** 0.5:.3f}"


def searches(options: argparse.Namespace, size: int) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return strategy and settings of each row; `columns` are the metrics that it uses."""
    table, pool = {"evaluation": "table"}, {"pool_size": size}
    combined = {name: name for name in COMBINED}
    found: dict[str, tuple[Any, dict[str, Any]]] = {
        "random search": (Evolution, {**table, "columns": {}, "population": options.rounds}),
        "evolution": (Evolution, {**table, "columns": {}, "population": 10, "sample": 3}),
        "metric_search, no evaluation": (MetricSearch, {**pool, "columns": combined, "rounds": 1}),
        "metric_search": (MetricSearch, {**table, **pool, "columns": combined}),
        "eigen_nas": (EigenNas, {**table, **pool, "columns": {"ntk_mean_diag": "ntk_mean_diag"}}),
        "knas": (Knas, {**table, **pool, "columns": {"ntk_frobenius": "ntk_frobenius"}}),
    }
    for name in ("ntk_sqrt_mean_diag", "grad_norm", "snip", "grasp", "ntk_frobenius", "synflow"):
        parts = {"metric": metric(name), "condition": metric("ntk_condition"), "t": options.t}
        columns = {"metric": name, "condition": "ntk_condition"}
        found[f"hnas {name}"] = (Hnas, {**table, **pool, **parts, "columns": columns})
    for _, settings in found.values():
        settings.setdefault("rounds", options.rounds)
    return found


def search(
    strategy: Any,
    settings: Mapping[str, Any],
    seed: int,
    file: Mapping[str, Scores],
    benchmarks: Mapping[str, TabularNasBench201],
) -> dict[str, Any]:
    """Search with each benchmark; return the results and the mean cost."""
    runs = {dataset: fit(strategy, settings, seed, file, table) for dataset, table in benchmarks.items()}
    costs = {key: statistics.mean(run[key] for run in runs.values()) for key in COSTS}
    return {**costs, "arch": runs["cifar10"]["arch"], "of": {name: run["arch"] for name, run in runs.items()}}


def fit(
    strategy: Any,
    settings: Mapping[str, Any],
    seed: int,
    file: Mapping[str, Scores],
    benchmark: TabularNasBench201,
) -> dict[str, Any]:
    """Run one search; Lightning's loop only counts rounds."""
    settings = dict(settings)
    rounds, columns = settings.pop("rounds"), settings.pop("columns")
    pl.seed_everything(seed, verbose=False)
    space = ScoredCells.of(file) if columns else NasBench201()
    data = SearchData(Fake(train_size=8, test_size=4, batch_size=4))
    module = from_table(strategy)(space, space.network, data, benchmark, seed=seed, agreement=0, **settings)
    module.file, module.columns = file, columns
    trainer = quiet_trainer(rounds, limit_train_batches=1)
    start = time.process_time()
    trainer.fit(module, data)
    (genotype,) = module.derive()
    seconds = time.process_time() - start
    evaluations, pool = len(module.evaluated), len(module.scored)
    arch = space.notation(genotype)
    return {"arch": arch, "evaluations": evaluations, "pool": pool, "seconds": seconds}


def report(rows: Mapping[str, Sequence[Mapping[str, Any]]], benchmark: TabularNasBench201) -> None:
    print("\n| strategy | scored | evaluated | " + " | ".join(DATASETS) + " | seconds | reported |")
    print("|---|" + "---|" * (len(DATASETS) + 4))
    for name, runs in rows.items():
        line(name, runs, benchmark)


def line(name: str, runs: Sequence[Mapping[str, Any]], benchmark: TabularNasBench201) -> None:
    archs_of = {
        dataset: [run.get("of", {}).get(dataset, run["arch"]) for run in runs] for dataset in DATASETS
    }
    cells = [
        mean_with_deviation([benchmark.table[name][arch] for arch in archs], 2)
        for name, archs in archs_of.items()
    ]
    mean = {key: statistics.mean(run.get(key, 0) for run in runs) for key in COSTS}
    counts = f"{mean['pool']:.0f} | {mean['evaluations']:.0f}"
    end = f"{mean['seconds']:.1f} | {REPORTED.get(name, '–')}"
    print(f"| {name} | {counts} | {' | '.join(cells)} | {end} |")


def read_rows(path: Path | None) -> dict[str, list[dict[str, Any]]]:
    """Read the runs of other searches, by strategy."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path else []:
        run = json.loads(text)
        rows.setdefault(run["strategy"], []).append(run)
    return rows


if __name__ == "__main__":
    main()
