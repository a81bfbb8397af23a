"""Temperatures of a posterior: what is divided, what is selected, and what is not computed again."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from nas_lightning.data import Fake, SearchData
from nas_lightning.objectives.inherited import InheritedWeights
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies.nesbs.samplers import Sampling
from nas_lightning.strategies.nesbs.strategy import Nesbs
from reproductions.nesbs import SetJudges, Temperature, over_budget
from tests.cli.conftest import TINY_DATA

SMALL = (
    *(*TINY_DATA, "study=temperature", "study.taus=[0.5,2]", "study.deltas=[0]", "study.size=2"),
    *("study.rounds=2", "study.trials=2", "study.svgd_steps=5", "study.delta=grid"),
    *("supernet.channels=4", "supernet.cells=1", "trainer.max_epochs=2"),
)


@pytest.fixture
def parts(generator):
    """A search's strategy with some α, and judges on two batches each."""
    torch.manual_seed(0)
    space = NasBench201()
    data = SearchData(Fake(shape=(1, 8, 8), train_size=64, test_size=16, batch_size=8), train_fraction=0.5)
    supernet = space.supernet(in_channels=1, num_classes=4, channels=4, cells=1)
    strategy = Nesbs(space, supernet, data)
    for alpha in strategy.arch_list:
        alpha.data = 2 * torch.randn(alpha.shape, generator=generator)
    judges = (InheritedWeights(space, supernet, data.valid_batches(2, seed)) for seed in (0, 1))
    return strategy, *judges


@pytest.mark.parametrize("sampler", ["svgd_rd", "monte_carlo"])
def test_the_temperature_divides_alpha(parts, sampler):
    strategy, valid, test = parts
    judges, sampling = SetJudges(valid, test), Sampling(sampler, size=2, rounds=2, delta=0.5, svgd_steps=20)
    warm = list(over_budget(strategy, judges, sampling, tau=4.0, seed=0))
    for alpha in strategy.arch_list:
        alpha.data /= 4
    assert list(over_budget(strategy, judges, sampling, seed=0)) == warm
    assert list(over_budget(strategy, judges, sampling, tau=0.1, seed=0)) != warm


@pytest.mark.parametrize("sampler", ["uniform", "nes_rs"])
def test_what_is_selected_within_a_budget(parts, sampler):
    """The best set so far by validation loss, judged on the other images; NES-RS' pool grows."""
    strategy, valid, test = parts
    sampling = Sampling(sampler, size=2, rounds=3)
    found = list(over_budget(strategy, SetJudges(valid, test), sampling, seed=1))
    assert len(found) == 3
    for count, numbers in enumerate(found, 1):
        generator = torch.Generator().manual_seed(1)
        tried = list(
            replace(sampling, rounds=count).judge_sets(
                valid, strategy.distribution, strategy.logits(), generator, 1
            )
        )
        best = min(tried, key=lambda done: done.loss)
        loss, accuracy = test.scores(best.members)
        assert numbers["nll"] == pytest.approx(loss)
        assert numbers["error"] == pytest.approx(1 - accuracy)


def test_tables_are_means_over_trials_and_what_is_there_is_not_computed_again(command, tmp_path):
    assert command("analyze", *SMALL, "run=a").code == 0
    path = tmp_path / "a" / "trials.json"
    done = json.loads(path.read_text())
    rows = list(csv.DictReader((tmp_path / "a" / "tables" / "samplers.csv").read_text().splitlines()))
    assert [(row["τ"], row[""]) for row in rows[:4]] == [
        ("0.5", name) for name in ("SVGD-RD", "Monte Carlo", "URS", "NES-RS")
    ]
    last = [done[f"Monte Carlo, τ 0.5, trial {trial}"][-1]["error"] for trial in (1, 2)]
    assert float(rows[1]["error"]) == pytest.approx(np.mean(last))
    assert float(rows[1]["error s.e."]) == pytest.approx(abs(last[0] - last[1]) / 2)
    assert {**rows[2], "τ": ""} == {**rows[6], "τ": ""}  # URS knows no posterior
    removed = "SVGD-RD, τ 2, trial 2"
    path.write_text(json.dumps({key: value for key, value in done.items() if key != removed}))
    out = command("analyze", "resume=a").out
    assert json.loads(path.read_text()) == done
    assert out.count(": error ") == 1
    assert removed in out


def test_what_cannot_be(refusal):
    assert "Temperature.taus" in refusal(lambda: Temperature(taus=[0.0]))
    assert "Temperature.taus" in refusal(lambda: Temperature(taus=[]))
    assert "Temperature.deltas" in refusal(lambda: Temperature(deltas=[1.0, 1.0]))
    assert "Temperature.trials" in refusal(lambda: Temperature(trials=1))
    assert "Temperature.size" in refusal(lambda: Temperature(size=1))
    assert "'grid' or 'optuna'" in refusal(lambda: Temperature(delta="random"))
