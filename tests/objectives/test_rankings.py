"""Several metrics as one ranking, against plain counting."""

import math
import random

import pytest

from nas_lightning.errors import InputError
from nas_lightning.metrics import Flops, GradNorm, NTKCondition, Params, Synflow
from nas_lightning.objectives.rankings import COMBINED, log_ranks, named_metrics

METRICS = {"norm": GradNorm(), "kappa": NTKCondition(), "flops": Flops()}


def pool(count, seed=0):
    draw = random.Random(seed)
    return [
        {"norm": draw.choice([1.0, 2.0, 3.0]), "kappa": draw.uniform(1, 9), "flops": draw.gauss(0, 1)}
        for _ in range(count)
    ]


def by_counting(rows):
    """The rank is 1 + the number of worse ones + half the number of other equal ones."""
    total = [0.0] * len(rows)
    for name, sign in (("norm", 1), ("kappa", -1), ("flops", 1)):
        for index, row in enumerate(rows):
            worse = sum(sign * other[name] < sign * row[name] for other in rows)
            equal = sum(other[name] == row[name] for other in rows)
            total[index] += math.log((worse + (equal + 1) / 2) / len(rows))
    return total


def test_against_counting():
    rows = pool(25)
    assert log_ranks(rows, METRICS) == pytest.approx(by_counting(rows))


def test_degenerate_architectures_are_not_ranked():
    rows = pool(12)
    bad = [
        {"norm": -math.inf, "kappa": math.inf, "flops": 100.0},
        {"norm": 50.0, "kappa": math.inf, "flops": 1.0},
    ]
    scores = log_ranks([bad[0], *rows, bad[1]], METRICS)
    assert scores[0] == scores[-1] == -math.inf
    assert scores[1:-1] == pytest.approx(by_counting(rows))
    assert log_ranks(bad, METRICS) == [-math.inf] * 2
    assert log_ranks([], METRICS) == []


def test_neither_units_nor_order_matter():
    rows = pool(20)
    scaled = [{"norm": math.exp(r["norm"]), "kappa": 1e9 * r["kappa"], "flops": r["flops"]} for r in rows]
    assert log_ranks(scaled, METRICS) == log_ranks(rows, METRICS)
    assert log_ranks(rows[::-1], METRICS) == log_ranks(rows, METRICS)[::-1]


def test_one_metric_keeps_its_order():
    rows = [{"synflow": value} for value in (1e36, 1.0, 1e-9, 40.0)]
    scores = log_ranks(rows, {"synflow": Synflow()})
    assert sorted(range(4), key=lambda i: scores[i]) == [2, 1, 3, 0]


def test_worst_in_one_costs_more_than_best_in_another_earns():
    """Ranks 1 and 3 of 3 against 2 and 2: log(1 · 3) < log(2 · 2)."""
    rows = [{"norm": 1.0, "flops": 3.0}, {"norm": 2.0, "flops": 2.0}, {"norm": 3.0, "flops": 1.0}]
    uneven, even, _ = log_ranks(rows, {"norm": GradNorm(), "flops": Flops()})
    assert even > uneven


@pytest.mark.slow
def test_default_ranking_of_real_cells(shared_data):
    """40 random cells at a quarter of the width: far less than the measured 0.9, far more than chance."""
    from functools import partial

    import torch
    from scipy.stats import spearmanr

    from nas_lightning.data import Cifar10
    from nas_lightning.metrics.pool import score_pool
    from nas_lightning.objectives.tables import TabularNasBench201
    from nas_lightning.spaces import NasBench201

    space, generator = NasBench201(), torch.Generator().manual_seed(1)
    cells = [space.sample(generator) for _ in range(40)]
    network = partial(space.network, in_channels=3, num_classes=10, channels=4, cells=2)
    (batch,) = Cifar10(root=str(shared_data / "cifar10"), batch_size=32, subset=64).train_batches(1)
    table = TabularNasBench201(shared_data / "nasbench201" / "test_accuracy.csv")
    truth = [table.column("cifar10", cell) for cell in cells]
    scores = log_ranks(score_pool(space, network, cells, batch, COMBINED, progress=False))
    assert spearmanr(scores, truth)[0] > 0.7


@pytest.mark.parametrize("thing", [None, 3, "synflow", Params])
def test_unknown_metric_raises(thing):
    with pytest.raises(InputError, match=r"The value must be a metric"):
        named_metrics({"params": Params(), "mine": thing})
