"""Which ranking to trust: sets of metrics judged on held-out cells, and networks that a ranking picks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.metrics import Params
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.pool import score_pool
from nas_lightning.objectives.rankings import COMBINED, NAMED, MetricsChoice, log_ranks, named_metrics
from nas_lightning.objectives.short_training import ShortTraining
from nas_lightning.objectives.table_formats import READERS
from nas_lightning.objectives.tables import TabularBenchmark
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces.base import SearchSpace, draw_distinct
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.studies.scoring import (
    EstimatedStudy,
    ParallelStudy,
    Setting,
    Values,
    mean_estimate,
    orient,
    scores_of,
    second_scores,
    seconds_of,
    spearman,
    top_mean,
)
from nas_lightning.studies.training import FILE, train_all
from nas_lightning.utils.devices import CPU
from nas_lightning.utils.files import write_whole
from nas_lightning.utils.tables import Entry, Estimate, Table
from nas_lightning.validation import NonNegativeInt, PositiveFloat, PositiveInt, at_least, checked

# Which metrics to rank by: sets that are chosen on one half of a space's cells and judged on the other.
#
# The score of a set is the sum of its log-ranks (`nas_lightning.objectives.rankings`); each table of scores
# is one space. The value of a set is the mean over spaces of its Spearman correlation with the accuracies, so
# that no space is sacrificed for another. Reported correlations are of halves that a set was not chosen on.

BASELINE = "params"
VALUE = "accuracy"
Matrix = NDArray[np.float64]
_TOP = 0.05


@checked
@dataclass(frozen=True, kw_only=True)
class Ranking(EstimatedStudy):
    """Find the sets of metrics that rank best in all spaces at once, and compare them with the default set.

    The scores and accuracies of the command's space are written to `scores/<space>.csv`; `others` are such
    files of other spaces.

    Args:
        others: files from earlier runs in other spaces.
        most: size of the largest set.
        splits: number of random halves.
        agreement: number of cells that are scored again with other weights; 0: none.
        metrics, cells, resamples, scores, seed, workers, backend: see `EstimatedStudy`; the baseline `params`
            must be among the metrics.

    >>> from nas_lightning.metrics import Meco, Params
    >>> metrics = {"params": Params(), "meco": Meco()}
    >>> Ranking(metrics=metrics, others=["other_run/scores/darts.csv"], most=2).cells
    100
    """

    others: Sequence[str] = ()
    most: PositiveInt = 6
    cells: Annotated[int, at_least(8)] = 100
    splits: PositiveInt = 20
    agreement: NonNegativeInt = 24

    def __post_init__(self) -> None:
        super().__post_init__()
        if BASELINE not in self.metrics:
            where = "study.metrics"
            raise InputError(f"The metrics must include {BASELINE}", got=list(self.metrics), where=where)

    def run(
        self,
        space: SearchSpace,
        network: Callable[..., nn.Module],
        data: SearchData,
        benchmark: TabularBenchmark,
        folder: Path,
        accelerator: torch.device = CPU,
    ) -> Findings:
        """Score the space's cells, choose sets on halves of all spaces, and judge them on the others."""
        others = [Path(path) for path in self.others]
        files = [read_scores(path, self.metrics) for path in others]
        genotypes, accuracies = self.draw_known(benchmark, space)
        target = benchmark.dataset
        pool = self.scored_pool(space, genotypes, folder, accelerator)
        setting = Setting(network, data.train_batches(1)[0])
        values = pool.score_main(setting)
        own = {**orient(self.metrics, values), VALUE: accuracies[target]}
        write_scores(folder / "scores" / f"{space.name}.csv", own)
        spaces = {space.name: own} | {path.stem: file for path, file in zip(others, files, strict=True)}
        if len(spaces) <= len(files):
            raise InputError(
                "The files must be those of different spaces", got=[*spaces], where="study.others"
            )
        known = {target: accuracies[target], **accuracies}
        count = min(self.agreement, self.cells)
        second = second_scores(pool, setting, count) if count else {}
        seconds = seconds_of(pool, setting, named_sets(self.metrics))
        return Findings([self._all_cells(values, second, known, seconds), self._table(spaces)])

    def _all_cells(
        self,
        values: Mapping[str, Values],
        second: Mapping[str, Values],
        accuracies: Mapping[str, Values],
        seconds: Mapping[str, float],
    ) -> Table:
        """Return a row for each set: correlations, their difference from the baseline, and the cost.

        Args:
            values: values of each metric, (n,).
            second: values of the first cells with other weights; empty: unknown.
            accuracies: accuracies by data set, (n,), the target first.
            seconds: seconds of each set per architecture.
        """
        sets, count = named_sets(self.metrics), len(next(iter(second.values()), ()))
        scores = {name: scores_of(values, chosen) for name, chosen in sets.items()}
        again = {name: scores_of(second, chosen) for name, chosen in sets.items()} if second else {}
        first = {name: scores_of({m: values[m][:count] for m in sets[name]}, sets[name]) for name in again}
        target = next(iter(accuracies.values()))
        rows: list[Sequence[Entry]] = []
        for name, x in scores.items():
            row: list[Entry] = [name]
            pair = np.stack([x, scores[BASELINE]], axis=1)
            for accuracy in accuracies.values():
                row += [self.estimate(spearman, x, accuracy), self.estimate(_gain, pair, accuracy)]
            itself = self.estimate(spearman, first[name], again[name]) if again else None
            rows.append([*row, itself, top_mean(x, target, _TOP) - float(target.mean()), seconds[name]])
        columns = [column for name in accuracies for column in (f"ρ {name}", f"{name}: above {BASELINE}")]
        return Table(
            "all_cells",
            f"Metrics and sets by their log-ranks on all {len(target):,} cells",
            ["set", *columns, "ρ with itself", f"best {_TOP:.0%} above the mean", "seconds"],
            rows,
            f"ρ: Spearman, ± the bootstrap's standard error; above {BASELINE}: paired. With itself: two "
            f"draws of weights, {count} cells. Seconds of one processor for a cell and a batch, the set "
            "alone",
        )

    def _table(self, spaces: Mapping[str, Mapping[str, Values]]) -> Table:
        sets = subsets(list(self.metrics), self.most)
        default = tuple(name for name in self.metrics if name in COMBINED)
        random = np.random.default_rng(self.seed)
        chosen: Counter[int] = Counter()
        judged: list[Matrix] = []
        for _ in range(self.splits):
            halves = [_split(len(scores[VALUE]), random) for scores in spaces.values()]
            pairs = list(zip(spaces.values(), halves, strict=True))
            first = np.stack([correlations(scores, half, sets) for scores, (half, _) in pairs])
            second = np.stack([correlations(scores, half, sets) for scores, (_, half) in pairs])
            chosen[int(first.mean(axis=0).argmax())] += 1
            judged.append(second)
        held_out = np.stack(judged)  # (splits, spaces, sets)
        shown = dict.fromkeys([sets.index((BASELINE,)), *([sets.index(default)] if default in sets else [])])
        shown |= dict.fromkeys(index for index, _ in chosen.most_common(8))
        rows = [_row(sets, index, held_out, chosen[index], sets.index((BASELINE,))) for index in shown]
        names = [column for name in spaces for column in (f"ρ {name}", f"{name}: above {BASELINE}")]
        return Table(
            "sets",
            f"Sets of metrics by their log-ranks, {self.splits} random halves of {', '.join(spaces)}",
            ["set", "chosen", *names],
            rows,
            "Chosen: in how many halves it was the best on average over the spaces. ρ: Spearman on the other "
            "halves, ± its deviation from half to half; above: paired",
        )


def _row(sets: Sequence[tuple[str, ...]], index: int, rho: Matrix, times: int, baseline: int) -> list[Entry]:
    row: list[Entry] = [" + ".join(sets[index]), times]
    for space in range(rho.shape[1]):
        values, gain = rho[:, space, index], rho[:, space, index] - rho[:, space, baseline]
        row += [Estimate(float(x.mean()), float(x.std())) for x in (values, gain)]
    return row


def _gain(pair: NDArray[np.float64], accuracy: Values) -> float:
    return spearman(pair[:, 0], accuracy) - spearman(pair[:, 1], accuracy)


def named_sets(metrics: Mapping[str, Metric]) -> dict[str, Mapping[str, Metric]]:
    """Return each metric alone, and the package's sets whose metrics are all available, by name.

    >>> from nas_lightning.metrics import Params, Synflow, Zen
    >>> list(named_sets({"params": Params(), "zen": Zen(), "synflow": Synflow()}))
    ['params', 'zen', 'synflow', 'to_weigh']
    """
    alone = {name: {name: metric} for name, metric in metrics.items()}
    whole = {name: chosen for name, chosen in NAMED.items() if chosen.items() <= metrics.items()}
    return {**alone, **whole}


def subsets(names: Sequence[str], most: int) -> list[tuple[str, ...]]:
    """Return all sets of up to `most` names, in the order of the names.

    >>> subsets(["a", "b", "c"], 2)
    [('a',), ('b',), ('c',), ('a', 'b'), ('a', 'c'), ('b', 'c')]
    """
    return [chosen for size in range(1, most + 1) for chosen in combinations(names, size)]


def correlations(
    scores: Mapping[str, Values], rows: NDArray[np.int64], sets: Sequence[tuple[str, ...]]
) -> Matrix:
    """Return Spearman's ρ of each set's sum of log-ranks with the accuracies, on these rows: (sets,)."""
    from scipy.stats import rankdata

    names = sorted({name for chosen in sets for name in chosen})
    logs = np.stack([np.log(rankdata(scores[name][rows])) for name in names])
    members = np.array([[float(name in chosen) for name in names] for chosen in sets])
    ranks = rankdata((members @ logs).round(9), axis=1)  # products of ranks may be equal
    truth = rankdata(scores[VALUE][rows])
    ranks, truth = ranks - ranks.mean(axis=1, keepdims=True), truth - truth.mean()
    return ranks @ truth / np.sqrt((ranks**2).sum(axis=1).clip(1e-12) * (truth @ truth))


def _split(count: int, random: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = random.permutation(count)
    return order[: count // 2], order[count // 2 :]


def write_scores(path: Path, columns: Mapping[str, Values]) -> None:
    """Write oriented scores and accuracies, one cell per row."""
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    lines = [",".join(columns), *(",".join(map(repr, row)) for row in rows)]
    write_whole(path, "\n".join([*lines, ""]))


def read_scores(path: Path, metrics: Mapping[str, Metric]) -> dict[str, Values]:
    """Read such a file; raise `InputError` if a metric or the accuracies are missing."""
    if path.suffix not in READERS or not path.is_file():
        raise InputError("The file must be one that study=ranking wrote", got=path, where="study.others")
    columns = READERS[path.suffix](path)
    for name in (*metrics, VALUE):
        if name not in columns:
            raise InputError(f"There must be a column {name}", got=", ".join(columns), where=path)
    try:
        return {name: np.array([float(entry) for entry in columns[name]]) for name in (*metrics, VALUE)}
    except ValueError as error:
        raise InputError(f"The file must contain numbers: {error}", where=path) from None


# Whether a ranking finds better networks: its pick of a pool against the largest network and a random one.
#
# Each seed draws a pool and scores it untrained, as `strategy=metric_search` does. The picks are trained
# alike for some epochs, and compared pool by pool.

KINDS = ("ranking", "largest", "random")


@checked
@dataclass(frozen=True, kw_only=True)
class Picks(ParallelStudy):
    """Train the pick of a ranking, the largest network, and a random one, from several pools.

    Args:
        metrics: the ranking, the name of a set or metrics by name.
        pools: number of pools, one for each seed from 0.
        pool_size: architectures of each pool.
        images: number of images that they are scored on.
        epochs: epochs of each training, on the images of the weights' side.
        lr: initial learning rate.
        workers, backend: processes that score and train, see `ParallelStudy`.

    >>> list(Picks(metrics="top", pools=3).ranking)
    ['params', 'meco', 'zen', 'swap']
    """

    metrics: MetricsChoice = "default"
    pools: Annotated[int, at_least(2)] = 5
    pool_size: PositiveInt = 100
    images: Annotated[int, at_least(2)] = 32
    epochs: PositiveInt = 10
    lr: PositiveFloat = 0.1

    @property
    def ranking(self) -> Mapping[str, Metric]:
        """The metrics of the ranking, by name."""
        return named_metrics(self.metrics)

    def run(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        data: SearchData,
        folder: Path,
        accelerator: torch.device = CPU,
    ) -> Findings:
        """Score the pools, train the picks, and compare them."""
        training = ShortTraining(space, network, data, epochs=self.epochs, lr=self.lr, device=accelerator)
        picks = [self._picks(space, network, data, folder, accelerator, seed) for seed in range(self.pools)]
        order = [genotype for pool in picks for genotype in pool]
        accuracies = np.array(train_all(training, order, folder / FILE, self.workers, self.backend)).reshape(
            self.pools, len(KINDS)
        )
        rows: list[Sequence[Entry]] = [[number, *row] for number, row in enumerate(accuracies.tolist())]
        rows.append(["mean", *map(mean_estimate, accuracies.T)])
        what = f"{space.name}, pools of {self.pool_size}, {self.epochs} epochs on {data.name}"
        return Findings(
            [
                Table("picks", f"Accuracies (%) of what is picked: {what}", ["pool", *KINDS], rows),
                Table(
                    "differences",
                    f"The ranking's pick less the others: {what}",
                    ["against", "difference", "t", "p"],
                    [compare(kind, accuracies[:, 0], accuracies[:, i]) for i, kind in enumerate(KINDS) if i],
                    "Paired by pools, ± the standard error; p of Student's two-sided test",
                ),
            ]
        )

    def _picks(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        data: SearchData,
        folder: Path,
        device: torch.device,
        seed: int,
    ) -> list[Genotype]:
        pool = draw_distinct(space, self.pool_size, torch.Generator().manual_seed(seed))
        (batch,) = data.train_batches(1)
        batch = batch[0][: self.images], batch[1][: self.images]
        options: dict[str, Any] = {
            "path": folder / "scores" / f"{seed}.csv",
            "workers": self.workers,
            "backend": self.backend,
            "seed": seed,
            "device": device,
        }
        scores = score_pool(space, network, pool, batch, {**self.ranking, "size": Params()}, **options)
        ranking, sizes = log_ranks(scores, self.ranking), [row["size"] for row in scores]
        return [pool[int(np.argmax(ranking))], pool[int(np.argmax(sizes))], pool[0]]


def compare(kind: str, ours: np.ndarray, others: np.ndarray) -> list[Entry]:
    """Return the name, the mean difference, Student's t, and its p; no test if all differences are equal."""
    from scipy.stats import ttest_rel

    difference = mean_estimate(ours - others)
    if difference.error == 0:
        return [kind, difference, None, None]
    test = ttest_rel(ours, others)
    return [kind, difference, float(test.statistic), float(test.pvalue)]
