"""What rules for fronts choose, and what it is worth: on made-up devices whose truth is known."""

import numpy as np
import pytest
import torch

from nas_lightning.errors import InputError
from nas_lightning.metrics import Params, Zen
from nas_lightning.objectives.counts import cost
from nas_lightning.objectives.fronts import front_ranks
from nas_lightning.objectives.tables import GenotypeTable
from nas_lightning.spaces import NasBench201
from nas_lightning.spaces.base import draw_distinct
from nas_lightning.studies.front import Bench, Front, Look, count_by_table, front_rows, leading

METRICS = {"params": Params(), "zen": Zen()}


@pytest.fixture(scope="module")
def made():
    """Cells whose error falls with their convolutions, scores that know half of it, and latencies."""
    space, random = NasBench201(), np.random.default_rng(0)
    cells = draw_distinct(space, 400, torch.Generator().manual_seed(0))
    worth = np.array([sum("conv" in op for op in cell.ops) for cell in cells])
    errors = 40 - 5.0 * worth + random.random(400)
    ms = 1.0 + worth + 3 * random.random(400)
    scores = [
        {"params": float(w + 2 * random.random()), "zen": float(w + 2 * random.random())} for w in worth
    ]
    return cells, Bench(ms, errors, 35.0), scores


def test_share_counts_measured_cells_below_the_reference():
    bench = Bench(np.array([1.0, 2.0, np.nan, 4.0]), np.array([30.0, 10.0, 0.0, 5.0]), reference=40.0)
    # below 40 % and 4 ms: (4 − 1)(40 − 30) + (4 − 2)(30 − 10) of all, (4 − 2)(40 − 10) of the second alone
    assert bench.share(np.array([1])) == pytest.approx(60 / 70)
    assert bench.share(np.array([0, 1, 2])) == 1.0
    assert bench.share(np.array([2])) == 0.0


def test_front_is_not_dominated_and_leading_cells_are_whole_fronts(made):
    _, bench, scores = made
    pair = [np.array([row[name] for row in scores]) for name in METRICS]
    ranks = front_ranks(np.stack([bench.ms, *(-score for score in pair)], axis=1))
    assert sorted(front_rows(bench.ms, *pair).tolist()) == np.flatnonzero(ranks == 0).tolist()
    some = leading(bench.ms, pair, 60)
    last = ranks[some].max()
    assert sorted(some.tolist()) == np.flatnonzero(ranks <= last).tolist()
    assert (ranks < last).sum() < 60 <= len(some)


def test_unmeasured_cells_and_dead_networks_are_not_chosen():
    assert front_rows(np.array([np.nan, 1.0, 2.0]), np.array([9.0, 1.0, -np.inf])).tolist() == [1]


def test_only_the_accuracies_that_are_evaluated_are_read(made, monkeypatch):
    cells, bench, scores = made
    monkeypatch.setattr("nas_lightning.studies.front.LAYERS", 50)
    look = Look(np.arange(400), cells, scores, METRICS, METRICS)
    accuracies = 100 - bench.errors
    chosen = look.learn(bench, list(METRICS), accuracies, 20, seed=1)
    ranks = [look.ranks[name] for name in METRICS]
    evaluated = np.random.default_rng(1).permutation(leading(bench.ms, ranks, 50))[:20]
    unread = np.full(400, np.nan)
    unread[evaluated] = accuracies[evaluated]
    assert look.learn(bench, list(METRICS), unread, 20, seed=1).tolist() == chosen.tolist()
    assert set(evaluated.tolist()) <= set(chosen.tolist())


def test_evaluations_add_to_what_scores_find(made, monkeypatch):
    cells, bench, scores = made
    monkeypatch.setattr("nas_lightning.studies.front.LAYERS", 50)
    look = Look(np.arange(400), cells, scores, METRICS, METRICS)
    without = bench.share(look.front(bench, list(METRICS)))
    shares = [
        bench.share(look.learn(bench, list(METRICS), 100 - bench.errors, 20, seed)) for seed in range(3)
    ]
    assert min(shares) >= without
    assert np.mean(shares) > without


def test_multiply_adds_by_the_table_are_those_that_are_counted(monkeypatch):
    monkeypatch.setattr("nas_lightning.studies.front.COUNTED", 40)
    monkeypatch.setattr("nas_lightning.studies.front.HELD_OUT", 8)
    space = NasBench201()
    cells = draw_distinct(space, 60, torch.Generator().manual_seed(3))

    def network(cell):
        return space.network(cell, in_channels=3, num_classes=4, channels=4, cells=1)

    found = count_by_table(space, network, (3, 8, 8), cells)
    assert found[:20].tolist() == pytest.approx([cost(network(cell), (3, 8, 8)).macs for cell in cells[:20]])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tables": {}}, "`tables` must have tables of latencies"),
        ({"tables": {"cifar100": "a.csv"}}, "Each table needs an error"),
        ({"unseen": ["a"]}, "Devices must be in one part only, got 'a'"),
        ({"draws": 1}, "`draws` must be at least 2"),
        ({"together": 7}, "There are only 6 metrics, got 7"),
    ],
)
def test_bad_settings_are_refused(changed, message):
    usual = {
        "tables": {"cifar10": "a.csv"},
        "chosen_on": ["a"],
        "unseen": ["b"],
        "reference": {"cifar10": 20.0},
    }
    with pytest.raises(InputError, match=message):
        Front(**{**usual, **changed})


def test_impossible_fronts_are_refused_before_scoring(tmp_path, monkeypatch):
    """A device that has not all, errors that no cell is below, latencies that are all the same."""
    space = NasBench201()
    names = [space.notation(cell) for cell in draw_distinct(space, 8, torch.Generator().manual_seed(0))]
    rows = [f"{name},{number + 1},5" for number, name in enumerate(names)]
    (tmp_path / "ms.csv").write_text("\n".join(["arch,phone,board", *rows, ""]))
    errors = [f"{name},{50 + number},{50 + number}" for number, name in enumerate(names)]
    (tmp_path / "cells.csv").write_text("\n".join(["arch,a,b_valid", *errors, ""]))
    table = GenotypeTable(tmp_path / "cells.csv", space)
    monkeypatch.setattr(Front, "_score", lambda *_: pytest.fail("scored"))

    def run(phone="phone", board="board", reference=60.0):
        study = Front(
            tables={"a": str(tmp_path / "ms.csv")},
            chosen_on=[phone],
            unseen=[board],
            reference={"a": reference},
            candidates=4,
            evaluations=[],
        )
        study.run(space, lambda _: None, None, table, tmp_path)

    with pytest.raises(InputError, match="none on board"):
        run()
    with pytest.raises(InputError, match=r"errors below 3, got 'none on phone' \(in study.reference.a\)"):
        run(reference=3.0)
    with pytest.raises(InputError, match="Unknown device"):
        run(board="nope")
