"""Searches in which several things count: what they end in is the front of what they looked at."""

import csv
import json
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from nas_lightning.data import Digits, SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import read_genotypes
from nas_lightning.jobs.limits import limit_parts
from nas_lightning.jobs.parts import Parts
from nas_lightning.jobs.search import build_strategy
from nas_lightning.metrics import Swap
from nas_lightning.objectives.fronts import front_ranks, hypervolume
from nas_lightning.objectives.limits import Limits
from nas_lightning.report import comparison
from nas_lightning.spaces import DartsSpace, NasBench101, NasBench201
from nas_lightning.spaces.base import draw_distinct
from nas_lightning.strategies import Evolution, MetricSearch, RandomSearch
from nas_lightning.strategies.black_box.optuna import OptunaSearch
from tests.cli.conftest import TINY_SEARCH, command  # noqa: F401

SIZES = {"channels": 2, "cells": 1}
BOTH = ["params", "memory_mb"]
QUIET = {f"enable_{what}": False for what in ("progress_bar", "model_summary", "checkpointing")}


def parts(objectives=BOTH, limits=None, space=None, sizes=SIZES, folder=".", **options) -> Parts:
    space = space or NasBench201()
    made = Parts(space, SearchData(Digits(subset=64, batch_size=8)), folder, network_sizes=sizes)
    return limit_parts(made, limits or Limits(), objectives, **options)


def build_of(kind, made, **options):
    """With the parts that its constructor names."""
    defaults = {
        Evolution: {"population": 6, "sample": 2, "images": 4},
        MetricSearch: {"pool_size": 6, "pool_per_round": 2, "images": 4},
        OptunaSearch: {"starts": 4, "images": 4},
        RandomSearch: {"count": 12},
    }[kind]
    return build_strategy(partial(kind, **{**defaults, **options}), made)


def fit(strategy, data, rounds, **options):
    trainer = pl.Trainer(max_steps=rounds, accelerator="cpu", logger=False, **{**QUIET, **options})
    trainer.fit(strategy, data)
    return trainer


def looked_at(strategy) -> int:
    front = strategy.front()
    return len(next(iter(front.looked_at.values())))


@pytest.mark.parametrize("kind", [Evolution, MetricSearch, RandomSearch])
def test_result_is_the_pareto_front(kind):
    made = parts()
    strategy = build_of(kind, made)
    fit(strategy, made.data, 0 if kind is RandomSearch else 14)
    front = strategy.front()
    values = made.objectives.minimized(front.looked_at)
    best = {tuple(row) for row in values[front_ranks(values) == 0].tolist()}
    found = made.objectives.minimized(front.columns).tolist()
    assert sorted(best) == sorted(map(tuple, found))
    costs = [made.objectives.costs(genotype) for genotype in front.genotypes]
    assert costs == [dict(zip(BOTH, row, strict=True)) for row in zip(*front.columns.values(), strict=True)]
    assert strategy.derive() == front.genotypes


def test_the_front_is_of_networks_within_the_limits():
    free = build_of(RandomSearch, parts(), count=30).front()
    middle = sorted(free.looked_at["params"])[10]
    made = parts(limits=Limits(params=middle))
    for kind in (Evolution, MetricSearch, RandomSearch):
        strategy = build_of(kind, made)
        fit(strategy, made.data, 0 if kind is RandomSearch else 12)
        assert max(strategy.front().looked_at["params"]) <= middle


WORTH = {
    "none": (0, 9),
    "skip_connect": (1, 7),
    "nor_conv_1x1": (4, 3),
    "nor_conv_3x3": (9, 0),
    "avg_pool_3x3": (6, 6),
}


def conflicting(genotype) -> dict[str, float]:
    """What is won in one cost is lost in the other, but for pooling, which only costs."""
    pairs = [WORTH[edge.op] for edge in genotype["cell"].edges]
    return {"params": float(sum(a for a, _ in pairs)), "macs": float(sum(b for _, b in pairs))}


def test_evolution_beats_random_sampling_on_fronts():
    worst = np.array([40.0, 40.0])
    true = hypervolume(np.array([np.sum(ops, axis=0) for ops in product(WORTH.values(), repeat=6)]), worst)
    left = {Evolution: 0.0, RandomSearch: 0.0}
    for seed in range(2):
        for kind, options in ((Evolution, {"population": 20}), (RandomSearch, {"count": 300})):
            made = parts(["params", "macs"], reference=worst.tolist())
            made = replace(made, objectives=replace(made.objectives, costs=conflicting))
            strategy = build_of(kind, made, seed=seed, **options)
            fit(strategy, made.data, 0 if kind is RandomSearch else 300)
            assert looked_at(strategy) <= 300
            left[kind] += true - strategy.front().hypervolume
    assert 0 <= left[Evolution] < left[RandomSearch] / 2


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("nsga2", "gp")]


@pytest.mark.parametrize("sampler", ["tpe", *SLOW])
def test_optuna_fronts_within_limits_resume(sampler, tmp_path):
    free = build_of(RandomSearch, parts(), count=30).front()
    limit = sorted(free.looked_at["params"])[15]

    def made():
        return parts(limits=Limits(params=limit))

    whole, half, second = (build_of(OptunaSearch, made(), sampler=sampler) for _ in range(3))
    fit(whole, made().data, 9)
    fit(half, made().data, 6).save_checkpoint(tmp_path / "half.ckpt")
    trainer = pl.Trainer(max_steps=9, accelerator="cpu", logger=False, **QUIET)
    trainer.fit(second, made().data, ckpt_path=tmp_path / "half.ckpt")
    assert [trial["notation"] for trial in second.trials] == [trial["notation"] for trial in whole.trials]
    assert second.front() == whole.front()
    assert max(whole.front().looked_at["params"]) <= limit
    assert any(trial["excess"] > 0 for trial in whole.trials)


def test_tpe_beats_random_sampling():
    """TPE comes nearer to the front than random rounds do, of which it is told nothing."""
    made = parts(["params", "macs"])
    made = replace(made, objectives=replace(made.objectives, costs=conflicting))
    found = {}
    for starts in (10, 80):  # of 80 rounds: the second is random all along
        strategy = build_of(OptunaSearch, made, sampler="tpe", starts=starts)
        fit(strategy, made.data, 80)
        found[starts] = hypervolume(
            made.objectives.minimized(strategy.front().columns), np.array([40.0, 40.0])
        )
    assert found[10] > found[80]


def test_a_space_without_groups_is_refused_by_samplers():
    with pytest.raises(
        InputError, match="strategy=optuna needs a space with groups of decisions, got 'nasbench101'"
    ):
        build_of(OptunaSearch, parts(space=NasBench101(), sizes={"channels": 4, "cells": 1}))


@pytest.mark.parametrize("kind", [Evolution, pytest.param(MetricSearch, marks=pytest.mark.slow)])
def test_front_search_resumes_to_the_same_bits(kind, tmp_path):
    def made():
        return parts(["swap", "macs", "ranking"], metrics={"swap": Swap(samples=4)})

    whole = build_of(kind, made())
    fit(whole, made().data, 16)
    first = build_of(kind, made())
    trainer = fit(first, made().data, 7)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    second, given = build_of(kind, made()), made()
    trainer = pl.Trainer(max_steps=16, accelerator="cpu", logger=False, **QUIET)
    trainer.fit(second, given.data, ckpt_path=tmp_path / "half.ckpt")
    assert second.front() == whole.front()


def test_accuracies_of_the_most_promising_candidates():
    made = parts(["accuracy", "params"])
    strategy = build_of(MetricSearch, made, evaluation="training", epochs=1, pool_per_round=0)
    fit(strategy, made.data, 3)
    assert len(strategy.evaluated) == 3
    assert looked_at(strategy) == 3
    ranking = strategy.ranking()
    points = torch.tensor([[-ranking[name], strategy.costs[name]["params"]] for name in ranking])
    ranks = dict(zip(ranking, front_ranks(points.numpy()).tolist(), strict=True))
    assert ranks[next(iter(strategy.evaluated))] == 0


def test_evolution_evaluates_every_architecture():
    made = parts(["accuracy", "params"])
    strategy = build_of(Evolution, made, evaluation="training", epochs=1, population=2)
    fit(strategy, made.data, 3)
    assert set(strategy.front().columns) == {"accuracy", "params"}
    assert not strategy.scored


@pytest.mark.parametrize(
    ("space", "sizes"),
    [(NasBench101(), {"channels": 4, "cells": 1}), (DartsSpace(nodes=2), {"channels": 4, "cells": 2})],
    ids=["nasbench101", "darts"],
)
def test_other_spaces_have_fronts_too(space, sizes):
    made = parts(["params", "macs"], space=space, sizes=sizes)
    strategy = build_of(Evolution, made, population=3)
    fit(strategy, made.data, 9)
    assert strategy.front().genotypes
    assert looked_at(strategy) <= 9


# The command


@pytest.fixture
def device(tmp_path):
    space = NasBench201()
    cells = draw_distinct(space, 30, torch.Generator().manual_seed(0))
    rows = [f"{space.notation(cell)},{1 + 0.01 * n}" for n, cell in enumerate(cells)]
    (tmp_path / "phone.csv").write_text("\n".join(["genotype,phone", *rows, ""]))
    return "phone.csv"


FRONT = (
    *TINY_SEARCH,
    "strategy=evolution",
    "strategy.population=3",
    "strategy.sample=2",
    "strategy.images=4",
)


@pytest.mark.slow
def test_run_saves_its_front_and_trains_any_member(command, device, tmp_path, capsys):  # noqa: F811
    words = ("objectives=[swap,latency_ms]", f"limits.device={device}", "trainer.max_epochs=6")
    for seed in (0, 1):
        code, out, err = command("search", *FRONT, *words, f"seed={seed}", f"run=run_{seed}")
        assert (code, err) == (0, "")
    run = tmp_path / "run_1"
    rows = list(csv.DictReader((run / "front.csv").read_text().splitlines()))
    summary = json.loads((run / "summary.json").read_text())
    assert [row["genotype"] for row in rows] == summary["notation"]
    assert [row["index"] for row in rows if row["knee"]] == [str(summary["knee"])]
    assert len(read_genotypes(run)) == len(rows)
    assert summary["metrics"]["hypervolume"] >= 0
    assert "<h2>Front</h2>" in (run / "report.html").read_text()
    assert (run / "figures" / "front.png").is_file()
    assert "genotype.index=knee" in out
    comparison.main([str(tmp_path / "run_0"), str(tmp_path / "run_1")])
    table, said = capsys.readouterr()
    (row,) = [line for line in table.splitlines() if line.startswith("| Evolution")]
    assert [cell.strip() for cell in row.split("|")][3] == "2"
    assert said == ""
    train = ("genotype=file", "genotype.path=run_1", "trainer.max_epochs=1", "dataset.subset=32")
    tiny = ("network.channels=2", "network.cells=1", "logger=none")
    code, out, err = command("train", *train, *tiny, "genotype.index=knee", "run=trained")
    assert (code, err) == (0, "")
    trained = json.loads((tmp_path / "trained" / "summary.json").read_text())
    assert trained["notation"] == [summary["notation"][summary["knee"]]]
    for index in (9, "ankle"):
        code, out, err = command("train", *train, *tiny, f"genotype.index={index}", "run=other")
        assert (code, len(err.splitlines())) == (1, 1)
        expected = f"`genotype.index` must be an integer from 0 to {len(rows) - 1}, or knee for a front"
        assert f"{expected}, got {index!r}" in err


def test_a_run_without_a_front_has_no_knee(command, tmp_path):  # noqa: F811
    assert command("search", *TINY_SEARCH, "strategy=random", "run=plain").code == 0
    words = ("genotype=file", "genotype.path=plain", "genotype.index=knee")
    assert (
        "`genotype.index=knee` needs a search with objectives=[…]; pass a number."
        in command("train", *words).err
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["objectives=[params]"], "`objectives` must have at least two entries"),
        (["objectives=[params,params]"], "`objectives` must be distinct, got 'params'"),
        (["objectives=[params,latency_ms]"], "A latency needs a device"),
        (["objectives=[params,parms]"], "Unknown objective (did you mean 'params'?)"),
        (["objectives=params"], "`objectives` must be a valid list, got 'params'"),
        (["objectives=[params,macs]", "reference=[1]"], "There must be 2 numbers, one per objective"),
        (
            ["objectives=[params,macs]", "reference=[1,nan]"],
            "`reference[1]` must be a finite number",
        ),
        (
            ["objectives=[params,macs]", "strategy=darts"],
            "`objectives` needs a multi-objective strategy, such as strategy=evolution",
        ),
        (
            ["objectives=[params,macs]", "strategy=greedy"],
            "`objectives` needs a multi-objective strategy, such as strategy=evolution",
        ),
        (["objectives=[params,accuracy]"], "The objective accuracy and an evaluation"),
        (
            ["objectives=[params,macs]", "strategy.evaluation=training"],
            "The objective accuracy and an evaluation",
        ),
        (
            ["objectives=[params,accuracy]", "strategy=random"],
            "This objective needs a benchmark with accuracies: pass benchmark=nasbench201 benchmark.path=…",
        ),
        (
            ["objectives=[params,macs]", "strategy.metrics=top"],
            "`strategy.metrics` needs the objective",
        ),
        (["objectives=[params,macs]", "limits.device=a.csv"], "`limits.device` needs limits.latency_ms"),
    ],
)
def test_invalid_objectives_are_rejected_early(command, words, line, tmp_path):  # noqa: F811
    code, _, err = command("search", *TINY_SEARCH, "strategy=evolution", *words, "run=bad")
    assert (code, len(err.splitlines())) == (1, 1)
    assert line in err
    assert not (tmp_path / "bad").exists()
