"""What metrics and sets of them are worth on all cells of a sample, beside counting parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from nas_lightning.metrics.base import Metric
from nas_lightning.objectives.log_ranks import NAMED, log_ranks
from nas_lightning.studies.reliability import top_mean
from nas_lightning.studies.statistics import Values, estimate, spearman
from nas_lightning.tables import Entry, Table

Sets = Mapping[str, Mapping[str, Metric]]
_TOP = 0.05


def named_sets(metrics: Mapping[str, Metric]) -> dict[str, Mapping[str, Metric]]:
    """Each metric alone, and the suite's sets of which all metrics are there, by name.

    >>> from nas_lightning.metrics import Params, Synflow, Zen
    >>> list(named_sets({"params": Params(), "zen": Zen(), "synflow": Synflow()}))
    ['params', 'zen', 'synflow', 'to_weigh']
    """
    alone = {name: {name: metric} for name, metric in metrics.items()}
    whole = {name: chosen for name, chosen in NAMED.items() if chosen.items() <= metrics.items()}
    return {**alone, **whole}


def scores_of(values: Mapping[str, Values], chosen: Mapping[str, Metric]) -> Values:
    """(n,): the sum of log-ranks by these metrics, of values as the metrics give them."""
    rows = [
        dict(zip(chosen, row, strict=True)) for row in zip(*(values[n].tolist() for n in chosen), strict=True)
    ]
    return np.array(log_ranks(rows, chosen))


def whole_sample(
    sets: Sets,
    values: Mapping[str, Values],
    second: Mapping[str, Values],
    accuracies: Mapping[str, Values],
    seconds: Mapping[str, float],
    *,
    baseline: str,
    resamples: int,
    seed: int,
) -> Table:
    """A row a set: its correlations, what they are above the baseline's, and what else there is to know.

    Args:
        sets: by name.
        values: of each metric, (n,).
        second: the same with other weights, of the first architectures; empty: not known.
        accuracies: by data set, (n,), the most important one first.
        seconds: that a set takes on an architecture.
        baseline: the set that others are compared to.
        resamples: of the bootstrap.
        seed: of its draws.
    """
    scores = {name: scores_of(values, chosen) for name, chosen in sets.items()}
    again = {name: scores_of(second, chosen) for name, chosen in sets.items()} if second else {}
    count = len(next(iter(second.values()))) if second else 0
    first = {name: scores_of({m: values[m][:count] for m in sets[name]}, sets[name]) for name in again}
    rows: list[Sequence[Entry]] = []
    for name, x in scores.items():
        row: list[Entry] = [name]
        for accuracy in accuracies.values():
            pair = np.stack([x, scores[baseline]], axis=1)
            row += [estimate(spearman, x, accuracy, resamples=resamples, seed=seed)]
            row += [estimate(_gain, pair, accuracy, resamples=resamples, seed=seed)]
        itself = (
            estimate(spearman, first[name], again[name], resamples=resamples, seed=seed) if again else None
        )
        target = next(iter(accuracies.values()))
        rows.append([*row, itself, top_mean(x, target, _TOP) - float(target.mean()), seconds[name]])
    columns = [column for name in accuracies for column in (f"ρ {name}", f"{name}: above {baseline}")]
    return Table(
        "all_cells",
        f"Metrics and sets by their log-ranks on all {len(x):,} cells",
        ["set", *columns, "ρ with itself", f"best {_TOP:.0%} above the mean", "seconds"],
        rows,
        f"ρ: Spearman, ± the bootstrap's standard error; above {baseline}: paired. With itself: two draws of "
        f"weights, {count} cells. Seconds of one processor for a cell and a batch, the set alone",
    )


def _gain(pair: NDArray[np.float64], accuracy: Values) -> float:
    return spearman(pair[:, 0], accuracy) - spearman(pair[:, 1], accuracy)
