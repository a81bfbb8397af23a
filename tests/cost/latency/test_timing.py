"""Times of calls: in turn, of a median, by whichever clock."""

import time

import numpy as np
import pytest

from nas_lightning.objectives.latency import medians, time_in_turn


def work(milliseconds):
    """Computes for as long."""
    end = time.process_time() + milliseconds / 1000
    while time.process_time() < end:
        pass


def test_processor_time_does_not_count_what_others_do():
    times = time_in_turn(
        [lambda: work(3), lambda: time.sleep(0.003)], rounds=3, least_ms=1, clock="processor"
    )
    ms, _ = medians(times)
    assert ms[0] == pytest.approx(3, rel=0.3)
    assert ms[1] < 0.5


def test_short_calls_are_called_again_and_again():
    counts = [0, 0]

    def call(index, seconds):
        counts[index] += 1
        time.sleep(seconds)

    time_in_turn([lambda: call(0, 0.001), lambda: call(1, 0.03)], rounds=2, warmup=1, least_ms=20)
    assert counts[0] > 10
    assert counts[1] == 1 + 1 + 2  # to warm up, to see how long it takes, a round each


def test_each_round_has_all_calls_in_an_order_of_its_own():
    order = []
    time_in_turn([lambda i=i: order.append(i) for i in range(5)], rounds=3, warmup=1, least_ms=1e-9)
    rounds = [tuple(order[10 + 5 * n : 15 + 5 * n]) for n in range(3)]
    assert all(sorted(one) == list(range(5)) for one in rounds)
    assert len(set(rounds)) == 3


def test_the_median_has_the_error_of_its_formula():
    """√(π/2) σ/√n for the median of n normal values (its asymptotic deviation)."""
    times = np.random.default_rng(0).normal(5.0, 1.0, size=(40, 101))
    ms, error = medians(times)
    assert ms.std() == pytest.approx(np.sqrt(np.pi / 2 / 101), rel=0.35)
    assert error.mean() == pytest.approx(np.sqrt(np.pi / 2 / 101), rel=0.2)
