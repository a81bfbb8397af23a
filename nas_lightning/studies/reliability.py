"""What else there is to know of a metric: whether it agrees with itself, what its best are, its cost."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from nas_lightning.files import json_text, read_records, write_whole
from nas_lightning.metrics.base import Metric, score
from nas_lightning.studies.pools import Pool, Setting
from nas_lightning.studies.statistics import Values

_TIMED = 3  # architectures


def second_scores(pool: Pool, setting: Setting, count: int) -> dict[str, Values]:
    """The first `count` architectures with weights of another seed."""
    first = replace(pool, genotypes=pool.genotypes[:count])
    return first.score({"second": replace(setting, seed=setting.seed + 1)})["second"]


def seconds_of(pool: Pool, setting: Setting, metrics: Mapping[str, Mapping[str, Metric]]) -> dict[str, float]:
    """Processor seconds that each set of metrics takes on an architecture, alone; measured once a folder.

    The median over a few, on one batch, with as many threads as the process has.
    """
    path = pool.folder / "seconds.json"
    known = read_records(path)
    known |= {name: _seconds(pool, setting, chosen) for name, chosen in metrics.items() if name not in known}
    write_whole(path, json_text(known, 2) + "\n")
    return {name: float(known[name]) for name in metrics}


def _seconds(pool: Pool, setting: Setting, metrics: Mapping[str, Metric]) -> float:
    seconds = []
    for genotype in pool.genotypes[:_TIMED]:
        network = setting.network(genotype)
        start = time.process_time()
        score(network, setting.batch, metrics)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def top_mean(scores: Values, accuracy: Values, share: float = 0.1) -> float:
    """The mean accuracy of the architectures with the largest scores.

    >>> top_mean(np.array([3.0, 1.0, 2.0, -np.inf]), np.array([90.0, 70.0, 80.0, 10.0]), share=0.5)
    85.0
    """
    count = max(1, round(share * len(scores)))
    return float(accuracy[np.argsort(-scores, kind="stable")[:count]].mean())
