"""Paired comparisons of strategies over seeds."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nas_lightning.errors import InputError, near_match
from nas_lightning.flags import FlagParser, command, place_to_write
from nas_lightning.genotype import FILE_NAME, read_genotypes
from nas_lightning.report.comparison import flatten
from nas_lightning.report.record import RunRecord, read_summary
from nas_lightning.runs.facts import Findings
from nas_lightning.runs.folder import job_folders
from nas_lightning.runs.record import look_up
from nas_lightning.utils.tables import Entry, Spread, Table
from nas_lightning.utils.text import short_path

# A training and its search


@dataclass(frozen=True)
class Joined:
    """A search and a training of its result; None if the search itself is compared.

    Args:
        search: the search.
        training: the training.
        arm: the value that is compared, such as a strategy.
        data: the data set.
    """

    search: RunRecord
    training: RunRecord | None
    arm: str
    data: str

    @property
    def judged(self) -> RunRecord:
        """The run whose metric counts."""
        return self.training or self.search


def search_of(training: RunRecord, searches: Sequence[RunRecord]) -> RunRecord:
    """Return the search of a training: at its `genotype.path`, or a moved one among `searches`."""
    path = look_up(training.config, "genotype", "path")
    if training.choices.get("genotype") != "file" or not isinstance(path, str):
        raise InputError("The training must have genotype.path=SEARCH")
    there = RunRecord(Path(path).parent if Path(path).name == FILE_NAME else Path(path))
    if there.kind == "search" and there.facts.get("metrics") is not None:
        return there
    trained = read_genotypes(training.run)
    moved = [s for s in searches if s.run.name == there.run.name and trained[0] in read_genotypes(s.run)]
    if len(moved) != 1:
        raise InputError("Cannot find the search of this training: pass its folder, too", got=path)
    return moved[0]


def setting_of(key: str, first: RunRecord | None, second: RunRecord | None) -> str:
    """Return the option of a config group or the value of a setting, of the first run that has it."""
    names: set[str] = set()
    for record in filter(None, (first, second)):
        value = record.choices.get(key, look_up(record.config, *key.split(".")))
        if value is not None and not isinstance(value, Mapping):
            return str(value)
        names |= {*map(str, record.choices), *map(str, record.config)}
    where = first.run if first else None
    hint = near_match(key, [name for name in names if "/" not in name])
    raise InputError(f"Unknown setting ({hint})", got=key, where=where)


# Mean ranks over data sets: Friedman's test and Nemenyi's critical difference
#
# Demšar, Statistical comparisons of classifiers over multiple data sets (JMLR 7, 2006), §3.2.


@dataclass(frozen=True)
class RankComparison:
    """Mean ranks of methods over data sets; 1 is the best.

    Args:
        ranks: the mean rank of each.
        sets: how many data sets they are of.
        p: of Friedman's χ², that all rank alike.
        critical_difference: of mean ranks, at a level of 5 %, between any two.

    >>> ranked = RankComparison({"a": 1.0, "b": 2.4, "c": 2.6}, sets=5, p=0.02, critical_difference=1.48)
    >>> ranked.cliques()
    [('a', 'b'), ('b', 'c')]
    """

    ranks: Mapping[str, float]
    sets: int
    p: float
    critical_difference: float

    def cliques(self) -> list[tuple[str, ...]]:
        """Return the largest groups of neighbors without a significant difference."""
        names = sorted(self.ranks, key=lambda name: self.ranks[name])
        ends = [
            max(j for j in range(i, len(names)) if self._is_near(names[i], names[j]))
            for i in range(len(names))
        ]
        spans = [(i, end) for i, end in enumerate(ends) if end > i and (i == 0 or end > ends[i - 1])]
        return [tuple(names[i : end + 1]) for i, end in spans]

    def _is_near(self, one: str, other: str) -> bool:
        return abs(self.ranks[one] - self.ranks[other]) < self.critical_difference


def compare_ranks(scores: Mapping[str, Sequence[float]]) -> RankComparison:
    """The comparison of at least two ways by their scores, one a data set; larger is better.

    χ²_F = 12N / (k(k+1)) · (Σ_j R_j² − k(k+1)²/4),   divided by 1 − Σ(t³−t) / (N k (k²−1)) for ties
    CD = q_α √(k(k+1) / 6N)

    >>> ranked = compare_ranks({"a": [0.9, 0.8, 0.7], "b": [0.8, 0.7, 0.6]})
    >>> dict(ranked.ranks), round(ranked.p, 4), round(ranked.critical_difference, 3)
    ({'a': 1.0, 'b': 2.0}, 0.0833, 1.132)
    """
    from scipy.special import chdtrc
    from scipy.stats import rankdata

    table = np.array([*scores.values()], dtype=np.float64).T  # (data sets, ways)
    N, k = table.shape
    ranks = rankdata(-table, axis=1)
    R = ranks.mean(axis=0)
    ties = sum(int(t**3 - t) for row in table for t in np.unique(row, return_counts=True)[1])
    spread = 1 - ties / (N * k * (k**2 - 1))
    chi2 = 12 * N / (k * (k + 1)) * (float((R**2).sum()) - k * (k + 1) ** 2 / 4)
    p = float(chdtrc(k - 1, max(chi2, 0.0) / spread)) if spread else 1.0
    names = [*scores]
    return RankComparison(dict(zip(names, map(float, R), strict=True)), N, p, critical_difference(k, N))


def critical_difference(ways: int, sets: int, level: float = 0.05) -> float:
    """Nemenyi's: q_α is the quantile of the studentized range of infinitely many degrees, divided by √2.

    >>> round(critical_difference(4, 14), 2)  # of Demšar's example
    1.25
    """
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - level, ways, math.inf)) / math.sqrt(2)
    return q * math.sqrt(ways * (ways + 1) / (6 * sets))


# Compared runs must have equal settings, except for the compared ones, seeds, data, and paths

_FREE = (  # settings of where and how often something ran
    *("run", "resume", "seed", "logger", "callbacks", "launcher", "objective", "genotype.path", "experiment"),
    *("dataset.seed", "dataset.root", "dataset.download", "dataset.num_workers", "dataset.in_memory"),
    *("trainer.devices", "trainer.accelerator", "trainer.num_nodes", "trainer.strategy", "benchmark.path"),
)


def check_alike(joined: Sequence[Joined], by: Iterable[str]) -> None:
    """Raise an `InputError` for the first other setting that differs.

    Searches of one arm must have equal settings, and all trainings on a data set.
    """
    searches: dict[tuple[str, str], list[RunRecord]] = {}
    trainings: dict[str, list[RunRecord]] = {}
    for one in joined:
        searches.setdefault((one.arm, one.data), []).append(one.search)
        if one.training is not None:
            trainings.setdefault(one.data, []).append(one.training)
    free = (*_FREE, *by)
    for (arm, _), runs in searches.items():
        _check_same(runs, f"The searches of {arm} must differ in their seeds only", free)
    for runs in trainings.values():
        _check_same(runs, "The trainings must differ in their seeds and architectures only", free)


def _check_same(runs: Sequence[RunRecord], expected: str, free: Sequence[str]) -> None:
    first, kept = runs[0], _kept(runs[0], free)
    for run in runs[1:]:
        other = _kept(run, free)
        for key in dict.fromkeys([*kept, *other]):
            if kept.get(key) != other.get(key):
                values = f"{key}={kept.get(key)} and {key}={other.get(key)}"
                where = f"{short_path(first.run)}, {short_path(run.run)}"
                raise InputError(expected, got=values, where=where)


def _kept(run: RunRecord, free: Sequence[str]) -> dict[str, str]:
    chosen = {group: str(option) for group, option in run.choices.items() if "/" not in group}
    settings = {**chosen, **dict(flatten(run.config))}
    return {k: v for k, v in settings.items() if not any(k == f or k.startswith(f"{f}.") for f in free)}


# Outcomes of searches, joined with the trainings of their results

FROM_TABLE, OF_TABLE, RANK = "true_accuracy", "table/", "table/rank"
"""What a published benchmark says of an architecture, and what a table of one's own says."""


@dataclass(frozen=True)
class Question:
    """A comparison to make.

    Args:
        by: settings or groups of the search, or else of the training, whose values are the arms.
        over: the setting that tells data sets apart; None: the images, or a table's data set.
        metric: None: the task's score of test images, or what a table says of the architecture.
    """

    by: tuple[str, ...] = ("strategy",)
    over: str | None = None
    metric: str | None = None


@dataclass(frozen=True)
class Outcome:
    """The outcome of a search on a data set.

    Args:
        arm: what is compared, such as the strategy.
        data: the data set.
        seed: of the search.
        value: the metric, as the mean over trainings.
        trainings: how many; 0 where the search's own metric is compared.
    """

    arm: str
    data: str
    seed: int
    value: float
    trainings: int


def read_outcomes(folders: Sequence[str | Path], question: Question) -> tuple[list[Outcome], str, list[str]]:
    """Return the outcomes of runs and sweeps, the name of the metric, and omitted runs with reasons."""
    records, left_out = _finished(folders)
    searches = [record for record in records if record.kind == "search"]
    trainings = [record for record in records if record.kind == "training"]
    left_out += [
        f"{r.run} (neither a search nor a training)" for r in records if r.kind in ("study", "ensemble")
    ]
    pairs: list[tuple[RunRecord, RunRecord | None]] = []
    for training in trainings:
        try:
            pairs.append((search_of(training, searches), training))
        except InputError as error:
            left_out.append(f"{training.run} ({error})")
    if trainings:
        judged = {search.run.resolve() for search, _ in pairs}
        untrained = [search for search in searches if search.run.resolve() not in judged]
        left_out += [f"{search.run} (none of the trainings is of its architecture)" for search in untrained]
    else:
        pairs = [(search, None) for search in searches]
    if not pairs:
        raise InputError(
            "There must be finished searches, or trainings of their architectures", got=_several(left_out)
        )
    joined = [Joined(*pair, _arm(question.by, *pair), _data(question.over, *pair)) for pair in pairs]
    check_alike(joined, question.by)
    metric = _usual_metric(joined) if question.metric is None else question.metric
    if question.metric is None and not trainings:
        unknown = [one for one in joined if metric not in one.search.metrics]
        left_out += [f"{one.search.run} (its architecture is not in the table)" for one in unknown]
        joined = [one for one in joined if metric in one.search.metrics]
    return _mean_over_trainings(joined, metric), metric, left_out


def _finished(folders: Sequence[str | Path]) -> tuple[list[RunRecord], list[str]]:
    runs: dict[Path, Path] = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise InputError("The path must be the folder of a sweep or a run", got=str(folder))
        runs.update({run.resolve(): run for run in job_folders(folder) or [folder]})
    found, left_out = [], []
    for run in runs.values():
        try:
            summary = read_summary(run)
        except InputError as error:
            left_out.append(f"{run} ({error})")
            continue
        if "error" in summary:
            left_out.append(f"{run} (failed: {summary['error']})")
        else:
            found.append(RunRecord(run))
    return found, left_out


def _arm(by: Sequence[str], search: RunRecord, training: RunRecord | None) -> str:
    return " ".join(setting_of(key, search, training) for key in by)


def _data(over: str | None, search: RunRecord, training: RunRecord | None) -> str:
    if over is not None:
        return setting_of(over, *((training, search) if training else (search, None)))
    table = look_up(search.config, "benchmark", "dataset") if training is None else None
    return str(table or (training or search).facts.get("dataset", ""))


def _usual_metric(joined: Sequence[Joined]) -> str:
    """Return the score of the trainings on test images, or else what a table says of the architectures."""
    if joined[0].training is not None:
        return f"test_{joined[0].training.score}"
    names = (name for one in joined for name in one.search.metrics)
    found = next((n for n in names if n == FROM_TABLE or (n.startswith(OF_TABLE) and n != RANK)), None)
    if found is None:
        raise InputError(
            "Pass trainings of the architectures, a table (benchmark=…), or --metric NAME: the numbers "
            "that searches end in are not measured alike",
            where=joined[0].search.run,
        )
    return found


def _mean_over_trainings(joined: Sequence[Joined], metric: str) -> list[Outcome]:
    """Return one outcome per search: its trainings repeat one measurement."""
    groups: dict[tuple[str, str, int], list[Joined]] = {}
    for one in joined:
        groups.setdefault((one.arm, one.data, _seed(one.search)), []).append(one)
    return list(_outcomes(groups, metric))


def _outcomes(groups: Mapping[tuple[str, str, int], Sequence[Joined]], metric: str) -> Iterator[Outcome]:
    for (arm, data, seed), group in groups.items():
        runs = list(dict.fromkeys(one.search.run.resolve() for one in group))
        if len(runs) > 1:
            got = " and ".join(map(short_path, runs[:2]))
            raise InputError(f"There must be one search of {arm} on {data} with seed {seed}", got=got)
        trainings = sum(one.training is not None for one in group)
        yield Outcome(
            arm, data, seed, statistics.fmean(_value(one.judged, metric) for one in group), trainings
        )


def _seed(search: RunRecord) -> int:
    seed = search.facts.get("seed", 0)
    if not isinstance(seed, int):
        raise InputError("`seed` must be an integer", got=seed, where=search.run)
    return seed


def _value(run: RunRecord, metric: str) -> float:
    if metric not in run.metrics:
        hint = near_match(metric, run.metrics) if run.metrics else "it has none"
        raise InputError(f"Unknown metric ({hint})", got=metric, where=run.run)
    value = float(run.metrics[metric])
    if value - value != 0:
        raise InputError(f"`{metric}` must be finite", got=value, where=run.run)
    return value


def _several(reasons: Sequence[str]) -> str:
    return f"{reasons[0]} and {len(reasons) - 1} more" if len(reasons) > 1 else "".join(reasons) or "none"


# Tests of paired differences, intervals, and Holm's correction
#
# Wilcoxon, Individual comparisons by ranking methods (1945); Fisher, The design of experiments (1935), §21;
# Holm, A simple sequentially rejective multiple test procedure (1979).

MOST_ENUMERATED = 20  # pairs, whose signs are a million


def wilcoxon(differences: Sequence[float]) -> float:
    """Return the exact two-sided p of W⁺ = Σ_{d_i > 0} rank |d_i|, if both signs are equally likely.

    Equal sizes share their mean rank; differences of zero are omitted.

    >>> wilcoxon([1.0, 2.0, 3.0]), wilcoxon([1.0, -2.0, 3.0]), wilcoxon([0.0])
    (0.25, 0.75, 1.0)
    """
    from scipy.stats import rankdata

    kept = [d for d in differences if d]
    if not kept:
        return 1.0
    ranks = [round(2 * rank) for rank in rankdata(np.abs(kept))]  # whole numbers, with shared ones, too
    ways = np.ones(1, dtype=object)  # ways[w]: of how many choices of signs W⁺ is w / 2
    for rank in ranks:
        longer = np.zeros(len(ways) + rank, dtype=object)
        longer[: len(ways)] += ways
        longer[rank:] += ways
        ways = longer
    above = sum(rank for rank, d in zip(ranks, kept, strict=True) if d > 0)
    tail = min(above, sum(ranks) - above)  # the distribution is symmetric
    return float(min(1.0, 2 * int(sum(ways[: tail + 1])) / 2 ** len(kept)))


def permutation(differences: Sequence[float]) -> float:
    """Return the exact two-sided p of |Σ d_i| among all 2ⁿ choices of signs.

    >>> permutation([1.0, 2.0, 3.0]), permutation([1.0, -2.0, 3.0])
    (0.25, 0.75)
    """
    sums = np.zeros(1)
    for d in differences:
        sums = np.concatenate([sums + d, sums - d])
    seen = abs(math.fsum(differences))
    margin = 1e-9 * math.fsum(map(abs, differences))  # sums that are equal but for their rounding
    return float(np.mean(np.abs(sums) >= seen - margin))


def t_test(differences: Sequence[float]) -> float:
    """Return the two-sided p of t = d̄ / (s / √n) for normal differences.

    >>> round(t_test([1.0, 2.0, 3.0]), 4)
    0.0742
    """
    from scipy.special import stdtr

    mean, error = _mean_and_error(differences)
    if not error:
        return 1.0 if not mean else 0.0
    return float(2 * stdtr(len(differences) - 1, -abs(mean / error)))


TESTS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "wilcoxon": wilcoxon,
    "permutation": permutation,
    "t": t_test,
}


def t_interval(differences: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Return d̄ ± t_{n−1, (1+level)/2} s / √n of at least two differences.

    >>> [round(end, 3) for end in t_interval([1.0, 2.0, 3.0])]
    [-0.484, 4.484]
    """
    from scipy.special import stdtrit

    mean, error = _mean_and_error(differences)
    half = float(stdtrit(len(differences) - 1, (1 + level) / 2)) * error
    return mean - half, mean + half


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the adjusted p: in increasing order, the i-th of m times m − i + 1, kept monotone.

    >>> holm([0.04, 0.01, 0.03])
    [0.06, 0.03, 0.06]
    """
    adjusted, least = [0.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = least
    return adjusted


def least_p(pairs: int) -> float:
    """Return the smallest two-sided p of an exact test of n pairs: 2 of the 2ⁿ choices of signs.

    >>> least_p(3), least_p(6)
    (0.25, 0.03125)
    """
    return min(1.0, 2.0 ** (1 - pairs))


def needed_pairs(level: float, comparisons: int = 1) -> int:
    """Return how many pairs an exact test needs for a p below a level after Holm's correction.

    >>> needed_pairs(0.05), needed_pairs(0.05, comparisons=4)
    (6, 8)
    """
    return next(n for n in range(1, 2000) if comparisons * least_p(n) <= level)


def _mean_and_error(differences: Sequence[float]) -> tuple[float, float]:
    return statistics.fmean(differences), statistics.stdev(differences) / math.sqrt(len(differences))


# Comparison of arms: means over search seeds, differences from a baseline, and ranks

LEVEL = 0.05
Values = Mapping[str, Mapping[str, Mapping[int, float]]]
"""data → arm → search seed → value."""


@dataclass(frozen=True)
class Comparison:
    """Arms against one of them.

    Args:
        outcomes: one a search and data set.
        metric: that they are values of.
        baseline: the arm that the others are compared to.
        less: whether less of the metric is better.
        test: wilcoxon, permutation or t.
        by: what the arms are values of.

    >>> outcomes = [Outcome(arm, "digits", seed, value + seed / 10, 1)
    ...             for arm, value in (("random", 0.5), ("darts", 0.6)) for seed in range(3)]
    >>> compared = Comparison(outcomes, "test_accuracy", "random")
    >>> [row[:4] for row in compared.differences().rows]
    [['darts', 'digits', 3, 0.1]]
    """

    outcomes: Sequence[Outcome]
    metric: str
    baseline: str
    less: bool = False
    test: str = "wilcoxon"
    by: str = "strategy"

    def __post_init__(self) -> None:
        if len(self.arms) < 2:
            raise InputError(f"A comparison needs at least two values of {self.by}", got=" ".join(self.arms))
        if self.baseline not in self.arms:
            hint = near_match(self.baseline, self.arms)
            raise InputError(
                f"There are no runs of the baseline ({hint})", got=self.baseline, where="--baseline"
            )

    @property
    def arms(self) -> list[str]:
        """What is compared, in the order in which it was given."""
        return list(dict.fromkeys(outcome.arm for outcome in self.outcomes))

    @property
    def values(self) -> Values:
        """The outcomes by data set, arm and seed."""
        values: dict[str, dict[str, dict[int, float]]] = {}
        for one in self.outcomes:
            values.setdefault(one.data, {}).setdefault(one.arm, {})[one.seed] = one.value
        return values

    def means(self) -> Table:
        """A row an arm and data set."""
        rows: list[list[Entry]] = []
        for data, arms in self.values.items():
            for arm in self._by_mean(arms):
                values = [*arms[arm].values()]
                deviation = statistics.stdev(values) if len(values) > 1 else None
                trained = sum(o.trainings for o in self.outcomes if (o.arm, o.data) == (arm, data))
                counts: list[Entry] = [len(values), trained]
                mean = round(statistics.fmean(values), 12)
                rows.append(
                    [arm, data, *counts, mean if deviation is None else Spread(mean, round(deviation, 12))]
                )
        title = f"{self.metric}: mean ± standard deviation over search seeds"
        columns = [self.by, "data", "seeds", "trainings", "mean"]
        trained = any(outcome.trainings for outcome in self.outcomes)
        note = "Trainings of one search are averaged first." if trained else ""
        return Table("means", title, columns, rows, note)

    def differences(self) -> Table:
        """A row an arm but the baseline, and data set: paired by search seeds."""
        rows: list[list[Entry]] = []
        fewest, most_arms = None, 1
        for data, arms in self.values.items():
            tested = {arm: self.paired(arms, arm) for arm in self._by_mean(arms) if arm != self.baseline}
            testable = {arm: d for arm, d in tested.items() if len(d) > 1}
            p_values = [self._p(d) for d in testable.values()]
            corrected = dict(zip(testable, zip(p_values, holm(p_values), strict=True), strict=True))
            for arm, d in tested.items():
                mean = _rounded(statistics.fmean(d)) if d else None
                ends = map(_rounded, t_interval(d)) if len(d) > 1 else (None, None)
                rows.append([arm, data, len(d), mean, *ends, *corrected.get(arm, (None, None))])
            counts = [len(d) for d in testable.values()]
            fewest = min([*counts, *([] if fewest is None else [fewest])], default=None)
            most_arms = max(most_arms, len(testable))
        columns = [self.by, "data", "pairs", "difference", "95 % from", "to", "p", "p (Holm)"]
        title = f"{self.metric}: differences to {self.baseline}, paired by search seeds"
        return Table("differences", title, columns, rows, note=self._note(fewest, most_arms))

    def ranks(self) -> RankComparison | None:
        """Mean ranks over the data sets that all arms have; None where there are not two."""
        sign = -1 if self.less else 1
        whole = [arms for arms in self.values.values() if len(arms) == len(self.arms)]
        if len(whole) < 2:
            return None
        scores = {a: [sign * statistics.fmean(arms[a].values()) for arms in whole] for a in self.arms}
        return compare_ranks(scores)

    def paired(self, arms: Mapping[str, Mapping[int, float]], arm: str) -> list[float]:
        """The differences to the baseline, of the seeds that both have."""
        base = arms.get(self.baseline, {})
        return [value - base[seed] for seed, value in arms[arm].items() if seed in base]

    def tables(self) -> list[Table]:
        """All of them."""
        ranked = self.ranks()
        return [
            self.means(),
            self.differences(),
            *([] if ranked is None else [tabulate_ranks(ranked, self.by)]),
        ]

    def _by_mean(self, arms: Mapping[str, Mapping[int, float]]) -> list[str]:
        sign = 1 if self.less else -1
        return sorted(arms, key=lambda arm: sign * statistics.fmean(arms[arm].values()))

    def _p(self, differences: Sequence[float]) -> float:
        if self.test == "permutation" and len(differences) > MOST_ENUMERATED:
            expected = f"--test permutation takes at most {MOST_ENUMERATED} seeds: use --test wilcoxon"
            raise InputError(expected, got=len(differences))
        return TESTS[self.test](differences)

    def _note(self, pairs: int | None, comparisons: int) -> str:
        """How it was tested, and what the number of seeds cannot show."""
        if pairs is None:
            return "Fewer than two seeds that both have: nothing can be tested."
        lines = [
            f"95 % intervals of Student's t; two-sided p of {_NAMES[self.test]}; Holm over {comparisons}."
        ]
        if self.test != "t":
            lines.append(
                f"With {pairs} pairs no p is below {least_p(pairs):.3g}, and none of Holm's below "
                f"{min(1.0, comparisons * least_p(pairs)):.3g}; for {LEVEL:g} it takes "
                f"{needed_pairs(LEVEL)} pairs, and {needed_pairs(LEVEL, comparisons)} with the correction."
            )
        return " ".join(lines)


_NAMES = {
    "wilcoxon": "Wilcoxon's exact signed-rank test",
    "permutation": "the exact permutation test of signs",
    "t": "Student's paired t-test",
}


def tabulate_ranks(ranked: RankComparison, by: str) -> Table:
    """A row an arm, the best first."""
    rows: list[list[Entry]] = [
        [arm, rank] for arm, rank in sorted(ranked.ranks.items(), key=lambda item: item[1])
    ]
    note = (
        f"Over {ranked.sets} data sets. Friedman's test: p = {ranked.p:.3g}. Nemenyi's critical difference "
        f"at {LEVEL:g}: {ranked.critical_difference:.3g}."
    )
    return Table("ranks", "Mean ranks over data sets, 1 is the best", [by, "mean rank"], rows, note)


def _rounded(value: float | None) -> float | None:
    """Round to 12 digits, so that 0.1 + 0.2 is 0.3."""
    return None if value is None else round(value, 12)


# The command `nas-compare`

_BASELINE = "random"
_LESS = ("_loss", "_error", "_rank", "_nll", "_mae", "_mse")


def compare_folders(
    folders: Sequence[str | Path],
    question: Question,
    *,
    baseline: str | None = None,
    less: bool = False,
    test: str = "wilcoxon",
) -> tuple[Comparison, list[str]]:
    """The comparison of the runs in there, and what was left out with the reason.

    Args:
        folders: of sweeps and runs, of searches and of trainings.
        question: what is compared.
        baseline: the arm that the others are compared to; None: random, where that is among them.
        less: whether less of the metric is better, whatever its name.
        test: wilcoxon, permutation or t.
    """
    outcomes, metric, left_out = read_outcomes(folders, question)
    arms = dict.fromkeys(outcome.arm for outcome in outcomes)
    if baseline is None and _BASELINE not in arms and len(arms) > 1:
        raise InputError(f"Pass --baseline, one of {', '.join(arms)}", got="none")
    less = less or metric.endswith(_LESS)
    by = " ".join(question.by)
    return Comparison(outcomes, metric, baseline or _BASELINE, less, test, by), left_out


def draw(comparison: Comparison) -> Findings:
    """The tables with their figures."""
    from nas_lightning.plots.comparisons import (  # --help need not wait for it
        draw_critical_difference,
        draw_seeds,
    )

    seeds = {
        data: {arm: [*of_seeds.values()] for arm, of_seeds in arms.items()}
        for data, arms in comparison.values.items()
    }
    figures = {"seeds": draw_seeds(seeds, comparison.metric)}
    if (ranked := comparison.ranks()) is not None:
        figures["critical_difference"] = draw_critical_difference(
            ranked.ranks, ranked.critical_difference, ranked.cliques()
        )
    return Findings(comparison.tables(), figures)


@command
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command: print the tables and the paths of all files, and the omitted runs to stderr."""
    parser = FlagParser(prog="nas-compare", description=__doc__)
    add = parser.add_argument
    add("folders", nargs="+", help="sweeps and runs: of searches, and of trainings of what they found")
    add("--by", default="strategy", help="what is compared: settings or groups, with commas between them")
    add("--over", help="what tells data sets apart: a setting or group, such as space")
    add("--metric", help="the default is the task's score of test images, or a table's accuracy")
    add("--less-is-better", action="store_true", help="of a metric whose name does not end in loss, error, …")
    add("--baseline", help=f"what the others are compared to; {_BASELINE}, where that is among them")
    add("--test", choices=tuple(TESTS), default="wilcoxon")
    add("--out", type=place_to_write, help="the default is `comparison` in the last folder")
    options = parser.parse_args(arguments)
    question = Question(tuple(options.by.split(",")), options.over, options.metric)
    compared, left_out = compare_folders(
        options.folders, question, baseline=options.baseline, less=options.less_is_better, test=options.test
    )
    written = draw(compared).write(options.out or Path(options.folders[-1]) / "comparison")
    print("\n\n".join(table.markdown() for table in compared.tables()), end="\n\n")
    for path in written:
        print(short_path(path))
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
