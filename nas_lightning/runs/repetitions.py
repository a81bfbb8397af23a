"""Runs that differ in their seed only, as one row: mean ± standard deviation."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nas_lightning.text import format_error

Job = Mapping[str, Any]
"""What a run's `summary.json` says."""

_OF_ONE_RUN = ("seed=", "dataset.seed=", "run=", "resume=", "launcher=", "hydra.")


def settings(job: Job) -> tuple[str, ...]:
    """What was typed for a run, without what tells it from its repetitions."""
    return tuple(sorted(line for line in job["overrides"] if not line.startswith(_OF_ONE_RUN)))


def group_by_settings(jobs: Iterable[Job]) -> list[list[Job]]:
    """Runs of the same settings together, in the order in which they first appear.

    >>> one, two, other = ({"overrides": ["lr=1", f"seed={seed}"]} for seed in (0, 1, 0))
    >>> [len(group) for group in group_by_settings([one, {"overrides": ["lr=2"]}, two])]
    [2, 1]
    """
    groups: dict[tuple[str, ...], list[Job]] = {}
    for job in jobs:
        groups.setdefault(settings(job), []).append(job)
    return list(groups.values())


def differing_settings(groups: Sequence[Sequence[Job]]) -> list[str]:
    """What of the settings tells each group from the others; a dash where nothing does."""
    each = [settings(group[0]) for group in groups]
    shared = set(each[0]).intersection(*each[1:])
    return [" ".join(line for line in lines if line not in shared) or "–" for lines in each]


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean and the standard deviation of the sample, which a single value has not."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def mean_with_deviation(values: Sequence[float], decimals: int) -> str:
    """Both in one cell; nothing where there are no values.

    >>> mean_with_deviation([2.7, 2.9, 2.8], 2), mean_with_deviation([2.7], 2), mean_with_deviation([], 2)
    ('2.80 ± 0.10', '2.70', '')
    """
    return format_error(*mean_and_deviation(values), decimals) if values else ""
