"""How every benchmark here measures: alternating runs, medians, one thread, processor time, ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch


def medians(works: Mapping[str, Callable[[], object]], rounds: int = 5, warmup: int = 1) -> dict[str, float]:
    """Median processor seconds of each piece of work, run in turn `rounds` times."""
    torch.set_num_threads(1)
    times: dict[str, list[float]] = {name: [] for name in works}
    for round_ in range(warmup + rounds):
        for name, work in works.items():
            start = time.process_time()
            work()
            if round_ >= warmup:
                times[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def report(seconds: Mapping[str, float]) -> None:
    """One line per piece of work."""
    for name, value in seconds.items():
        print(f"{name:48s} {1000 * value:10.1f} ms")
