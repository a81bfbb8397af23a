"""Which ranking to trust: rankings of metrics, and what their picks are worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nas_lightning.backends import Backend, check_backend
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.metrics import Params
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.pool import score_pool
from nas_lightning.objectives.rankings import COMBINED, MetricsChoice, log_ranks, named_metrics
from nas_lightning.objectives.short_training import ShortTraining
from nas_lightning.objectives.table_formats import READERS
from nas_lightning.objectives.tables import TabularBenchmark
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces.base import SearchSpace, draw_distinct
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.studies.base import Study
from nas_lightning.studies.scoring import (
    Pool,
    Scorer,
    Setting,
    Values,
    draw_known,
    mean_estimate,
    named_sets,
    orient,
    second_scores,
    seconds_of,
    whole_sample,
)
from nas_lightning.studies.training import FILE, train_all
from nas_lightning.utils.machine import Processes
from nas_lightning.utils.tables import Entry, Estimate, Table
from nas_lightning.validation import NonNegativeInt, PositiveFloat, PositiveInt, Seed, at_least, checked

# Which metrics to rank by: sets that are chosen on one half of a space's cells and judged on the other.
#
# A set's score is the sum of its log-ranks (`nas_lightning.objectives.rankings`). Every table of scores is a
# space; a set is as good as the mean over spaces of its Spearman correlation with the accuracies, so that no
# space is given up for another. What is printed of a set is of halves that it was not chosen on.

BASELINE = "params"
VALUE = "accuracy"
Matrix = NDArray[np.float64]


@checked
class Ranking(Study):
    """The sets of metrics that rank best in all spaces at once, and the default one beside them.

    The space of the command is scored first, and its scores and accuracies written to `scores/<space>.csv`;
    `others` are such files of other spaces.

    Args:
        metrics: that sets are made of; `params` among them, which every set has to beat.
        others: files that earlier runs left, of other spaces.
        most: the size of the largest set.
        cells: of the space.
        splits: random halves.
        agreement: how many of the cells are scored again with other weights; 0: none.
        resamples: of the bootstrap.
        workers: processes that score.
        backend: whose processes, see `nas_lightning.backends.spread`.
        seed: of cells and halves.

    >>> from nas_lightning.metrics import Meco, Params
    >>> metrics = {"params": Params(), "meco": Meco()}
    >>> study = Ranking(metrics=metrics, others=["other_run/scores/darts.csv"], most=2)
    >>> [path.name for path in study.others]
    ['darts.csv']
    """

    def __init__(
        self,
        *,
        metrics: Mapping[str, Metric],
        others: Sequence[str] = (),
        most: PositiveInt = 6,
        cells: Annotated[int, at_least(8)] = 100,
        splits: PositiveInt = 20,
        agreement: NonNegativeInt = 24,
        resamples: PositiveInt = 200,
        workers: Processes = 1,
        backend: Backend = "processes",
        seed: Seed = 0,
    ) -> None:
        if BASELINE not in metrics:
            where = "study.metrics"
            raise InputError(f"expected {BASELINE} among the metrics", got=list(metrics), where=where)
        self.metrics, self.others = dict(metrics), [Path(path) for path in others]
        self.most, self.cells, self.splits, self.seed = most, cells, splits, seed
        self.scorer = Scorer(self.metrics, workers, backend)
        self.agreement, self.resamples = min(agreement, cells), resamples

    def run(
        self,
        space: SearchSpace,
        network: Callable[..., nn.Module],
        data: SearchData,
        benchmark: TabularBenchmark,
        folder: Path,
    ) -> Findings:
        """Score the space's cells, choose on halves of all spaces, judge on the others."""
        files = [read_scores(path, self.metrics) for path in self.others]
        genotypes, accuracies = draw_known(benchmark, space, self.cells, self.seed)
        target = benchmark.dataset
        pool = self.scorer.pool(space, genotypes, folder)
        setting = Setting(network, data.train_batches(1)[0])
        values = pool.score_main(setting)
        own = {**orient(self.metrics, values), VALUE: accuracies[target]}
        write_scores(folder / "scores" / f"{space.name}.csv", own)
        spaces = {space.name: own} | {path.stem: file for path, file in zip(self.others, files, strict=True)}
        if len(spaces) <= len(files):
            raise InputError("expected files of different spaces", got=[*spaces], where="study.others")
        known = {target: accuracies[target], **accuracies}
        return Findings([self._whole(pool, setting, values, known), self._table(spaces)])

    def _whole(
        self, pool: Pool, setting: Setting, values: Mapping[str, Values], accuracies: Mapping[str, Values]
    ) -> Table:
        sets = named_sets(self.metrics)
        second = second_scores(pool, setting, self.agreement) if self.agreement else {}
        seconds = seconds_of(pool, setting, sets)
        options = {"resamples": self.resamples, "seed": self.seed}
        return whole_sample(sets, values, second, accuracies, seconds, baseline=BASELINE, **options)

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


def subsets(names: Sequence[str], most: int) -> list[tuple[str, ...]]:
    """All sets of up to `most` names, in the names' order.

    >>> subsets(["a", "b", "c"], 2)
    [('a',), ('b',), ('c',), ('a', 'b'), ('a', 'c'), ('b', 'c')]
    """
    return [chosen for size in range(1, most + 1) for chosen in combinations(names, size)]


def correlations(
    scores: Mapping[str, Values], rows: NDArray[np.int64], sets: Sequence[tuple[str, ...]]
) -> Matrix:
    """(sets,): Spearman's ρ of each set's sum of log-ranks among those rows with their accuracies."""
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
    """Oriented scores and accuracies, a cell a row."""
    from nas_lightning.utils.files import write_whole

    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    lines = [",".join(columns), *(",".join(map(repr, row)) for row in rows)]
    write_whole(path, "\n".join([*lines, ""]))


def read_scores(path: Path, metrics: Mapping[str, Metric]) -> dict[str, Values]:
    """The inverse; raises where a metric or the accuracies are missing."""
    if path.suffix not in READERS or not path.is_file():
        raise InputError("expected a file of scores that study=ranking wrote", got=path, where="study.others")
    columns = READERS[path.suffix](path)
    for name in (*metrics, VALUE):
        if name not in columns:
            raise InputError(f"expected a column {name}", got=", ".join(columns), where=path)
    try:
        return {name: np.array([float(entry) for entry in columns[name]]) for name in (*metrics, VALUE)}
    except ValueError as error:
        raise InputError(f"expected numbers: {error}", where=path) from None


# Whether a ranking finds better networks: its pick of a pool against a random one and the largest.
#
# Each seed draws a pool and scores it untrained, as `strategy=metric_search` does; what is picked is trained
# alike, for some epochs, and compared pool by pool.

KINDS = ("ranking", "largest", "random")


@checked
class Picks(Study):
    """Accuracies of what the ranking picks, of the largest and of the first, which is a random one.

    Args:
        metrics: what a pool is ranked by; a word or metrics by name.
        pools: one a seed, from 0 on.
        pool_size: architectures of each.
        images: that they are scored on.
        epochs: of each training, on the weights' side.
        lr: learning rate of the first.
        workers: processes that score and train.
        backend: whose processes, see `nas_lightning.backends.spread`.

    >>> study = Picks(metrics="top", pools=3)
    >>> list(study.ranked)
    ['params', 'meco', 'zen', 'swap']
    """

    def __init__(
        self,
        *,
        metrics: MetricsChoice = "default",
        pools: Annotated[int, at_least(2)] = 5,
        pool_size: PositiveInt = 100,
        images: Annotated[int, at_least(2)] = 32,
        epochs: PositiveInt = 10,
        lr: PositiveFloat = 0.1,
        workers: Processes = 1,
        backend: Backend = "processes",
    ) -> None:
        self.metrics: Mapping[str, Metric] = {**named_metrics(metrics), "size": Params()}
        self.ranked = named_metrics(metrics)
        self.pools, self.pool_size, self.images, self.workers = pools, pool_size, images, workers
        check_backend(backend, "study.backend")
        self.backend = backend
        self.epochs, self.lr = epochs, lr

    def run(self, space: SearchSpace, network: NetworkFactory, data: SearchData, folder: Path) -> Findings:
        """Score the pools, train what is picked, compare."""
        training = ShortTraining(space, network, data, epochs=self.epochs, lr=self.lr)
        picks = [self._picks(space, network, data, folder, seed) for seed in range(self.pools)]
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
        self, space: SearchSpace, network: NetworkFactory, data: SearchData, folder: Path, seed: int
    ) -> list[Genotype]:
        pool = draw_distinct(space, self.pool_size, torch.Generator().manual_seed(seed))
        (batch,) = data.train_batches(1)
        batch = batch[0][: self.images], batch[1][: self.images]
        options: dict[str, Any] = {
            "path": folder / "scores" / f"{seed}.csv",
            "workers": self.workers,
            "backend": self.backend,
            "seed": seed,
        }
        scores = score_pool(space, network, pool, batch, self.metrics, **options)
        ranking, sizes = log_ranks(scores, self.ranked), [row["size"] for row in scores]
        return [pool[int(np.argmax(ranking))], pool[int(np.argmax(sizes))], pool[0]]


def compare(kind: str, ours: np.ndarray, others: np.ndarray) -> list[Entry]:
    """Name, mean difference, Student's t and its p; without a test where all differences are the same."""
    from scipy.stats import ttest_rel

    difference = mean_estimate(ours - others)
    if difference.error == 0:
        return [kind, difference, None, None]
    test = ttest_rel(ours, others)
    return [kind, difference, float(test.statistic), float(test.pvalue)]
