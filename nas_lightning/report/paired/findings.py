"""The comparison of arms by their outcomes: means over search seeds, differences to one of them, ranks."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nas_lightning.errors import InputError, near_match
from nas_lightning.report.paired.outcomes import Outcome
from nas_lightning.report.paired.ranks import RankComparison, compare_ranks
from nas_lightning.report.paired.significance import (
    MOST_ENUMERATED,
    TESTS,
    holm,
    least_p,
    needed_pairs,
    t_interval,
)
from nas_lightning.tables import Entry, Table

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
            raise InputError(f"expected at least two values of {self.by} to compare", got=" ".join(self.arms))
        if self.baseline not in self.arms:
            hint = near_match(self.baseline, self.arms)
            raise InputError(
                f"expected runs of what is compared to ({hint})", got=self.baseline, where="--baseline"
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
                rows.append([arm, data, *counts, _rounded(statistics.fmean(values)), _rounded(deviation)])
        title = f"{self.metric}: mean and standard deviation over search seeds"
        columns = [self.by, "data", "seeds", "trainings", "mean", "sd"]
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
            expected = (
                f"expected at most {MOST_ENUMERATED} seeds beside --test permutation, or --test wilcoxon"
            )
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
    """To what no measurement of ours goes beyond, so that 0.1 + 0.2 reads 0.3."""
    return None if value is None else round(value, 12)
