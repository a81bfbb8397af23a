"""How long calls take, measured so that a busy machine does little harm.

All are called in turn, round after round, each round in another order, so that what slows the machine for a
while slows all of them alike; what is taken is the median over rounds. Its error is the deviation of medians
of rounds that are drawn again (the bootstrap, Efron 1979).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from nas_lightning.cost.latency.gaussian import Array
from nas_lightning.progress import follow

Clock = Literal["wall", "processor"]
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}
"""What passes, or what this process computes, which is the latency of one thread that nothing interrupts."""
RESAMPLES = 200


def time_in_turn(
    calls: Sequence[Callable[[], object]],
    rounds: int,
    *,
    warmup: int = 2,
    least_ms: float = 10.0,
    clock: Clock = "wall",
    seed: int = 0,
) -> Array:
    """Milliseconds of each call in each round: (calls, rounds).

    Args:
        calls: what is measured.
        rounds: that all are called in.
        warmup: calls before the first.
        least_ms: that the calls of a round take together; short ones are called again and again.
        clock: what time is read from.
        seed: of the orders.

    >>> time_in_turn([lambda: sum(range(100)), lambda: sum(range(20_000))], rounds=3).shape
    (2, 3)
    """
    now = CLOCKS[clock]
    counts = [_count_calls(call, warmup, least_ms) for call in calls]
    found = np.empty((len(calls), rounds))
    generator = np.random.default_rng(seed)
    for number in follow(range(rounds), "rounds"):
        for index in generator.permutation(len(calls)):
            call, start = calls[index], now()
            for _ in range(counts[index]):
                call()
            found[index, number] = 1000 * (now() - start) / counts[index]
    return found


def _count_calls(call: Callable[[], object], warmup: int, least_ms: float) -> int:
    for _ in range(warmup):
        call()
    start = time.perf_counter()
    call()
    return max(1, int(np.ceil(least_ms / 1000 / max(time.perf_counter() - start, 1e-7))))


def medians(times: Array, seed: int = 0) -> tuple[Array, Array]:
    """The median over rounds and its error, of (calls, rounds): (calls,), (calls,).

    >>> ms, error = medians(np.array([[1.0, 1.0, 9.0], [2.0, 2.0, 2.0]]))
    >>> ms, bool(error[0] > 0 == error[1])
    (array([1., 2.]), True)
    """
    rounds = times.shape[1]
    drawn = np.random.default_rng(seed).integers(rounds, size=(RESAMPLES, rounds))
    again = np.median(times[:, drawn], axis=2)  # (calls, resamples)
    return np.median(times, axis=1), again.std(axis=1)
