"""Studies of NESBS: the mode by brute force, subsets, budgets, temperatures, and widths of particles."""

import csv
import json
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
import torch

from nas_lightning.data import Fake, SearchData
from nas_lightning.objectives.inherited import InheritedWeights, averaged_loss
from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.strategies.nesbs.posterior import Architectures
from nas_lightning.strategies.nesbs.samplers import Sampling
from nas_lightning.strategies.nesbs.strategy import Nesbs
from reproductions.nesbs import (
    Inherited,
    ParticleWidths,
    SetJudges,
    Temperature,
    agreement,
    describe_posterior,
    over_budget,
    over_subsets,
    posterior_draws,
)
from tests.cli.conftest import TINY_DATA
from tests.reproductions.conftest import WITH_CONF

POSTERIOR_WORDS = (
    *TINY_DATA,
    "supernet.channels=4",
    "supernet.cells=1",
    "study.svgd_steps=5",
    "dataset.batch_size=8",
)


def table(run, name):
    return list(csv.DictReader((run / "tables" / f"{name}.csv").read_text().splitlines()))


def probability_of_pair(p, one, other):
    """That draws without repetition of an edge end in this pair, in either order."""
    rest = [1 - sum(p[edge]) for edge in range(len(p))]  # without an edge
    (i, a), (j, b) = one, other
    return p[i][a] * p[j][b] * (1 / rest[i] + 1 / rest[j])


def test_the_mode_is_the_likeliest_of_all_pairs(generator):
    """Of the three edges into DARTS' second node."""
    space = DartsSpace(nodes=2, ops=["sep_conv_3x3", "skip_connect"])
    distribution = Architectures(space)
    for _ in range(40):
        logits = {
            name: 3 * torch.randn(g.shape, generator=generator).double() for name, g in space.groups.items()
        }
        found = {tuple(place) for place in distribution.mode(logits)["normal"][2:5].nonzero().tolist()}
        p = logits["normal"][2:5].flatten().softmax(dim=0).view(3, 2).tolist()
        pairs = [
            ((i, a), (j, b)) for i, j in combinations(range(3), 2) for a, b in product(range(2), repeat=2)
        ]
        values = {pair: probability_of_pair(p, *pair) for pair in pairs}
        assert sum(values.values()) == pytest.approx(1)
        assert found == set(max(values, key=values.__getitem__))


@pytest.fixture
def parts(generator):
    """A strategy with some α, and its judges."""
    torch.manual_seed(0)
    space = NasBench201()
    data = SearchData(Fake(shape=(1, 8, 8), train_size=64, test_size=16, batch_size=8), train_fraction=0.5)
    strategy = Nesbs(space, space.supernet(in_channels=1, num_classes=4, channels=4, cells=1), data)
    for alpha in strategy.arch_list:
        alpha.data = 2 * torch.randn(alpha.shape, generator=generator)
    return strategy, SetJudges.of(strategy, data)


def test_description_of_a_posterior(parts):
    """The best is of all that were looked at, the most probable the largest α on every edge."""
    strategy, judges = parts
    found = describe_posterior(strategy, judges, pool=6, seed=0)
    probable = strategy.space.discretize(strategy.scores())
    assert found["probable"] == judges.evaluate([probable])["error"]
    errors = [judges.evaluate([one])["error"] for one in judges.test.predictions]
    assert 7 <= len(errors) <= 13
    assert found["best"] == min(errors)
    assert -1 <= found["rho"] <= 1


def test_draws_of_the_posterior_differ(parts):
    """A posterior with a single architecture has no other."""
    strategy, judges = parts
    drawn = posterior_draws(strategy, 20, torch.Generator().manual_seed(0))
    assert 2 <= len(set(drawn)) == len(drawn) <= 20
    for alpha in strategy.arch_list:
        alpha.data *= 1e4
    probable = strategy.space.discretize(strategy.scores())
    assert posterior_draws(strategy, 20, torch.Generator().manual_seed(0)) == [probable]
    assert (
        describe_posterior(strategy, judges, pool=50, seed=0)["best"] <= judges.evaluate([probable])["error"]
    )


@pytest.mark.slow
def test_tables_of_posteriors_are_those_of_the_trials(command, tmp_path):
    """What the tables say is what the trials came to; a trial that is there is not trained again."""
    words = [
        *POSTERIOR_WORDS,
        "study=posterior",
        "study.supernet_epochs=1",
        "study.posterior_epochs=1",
        "study.pool=3",
    ]
    words += ["study.size=2", "study.rounds=1", "study.trials=2", "network.channels=2", "network.cells=1"]
    assert command("analyze", *WITH_CONF, *words, "trainer.max_epochs=1", "run=a").code == 0
    records = json.loads((tmp_path / "a" / "trials.json").read_text())
    assert set(records) == {f"{kind}_{n}" for kind in ("post-training", "best-response") for n in (1, 2)}
    for row in table(tmp_path / "a", "posteriors"):
        gaps = [
            records[f"{row['posterior']}_{n}"]["probable"] - records[f"{row['posterior']}_{n}"]["best"]
            for n in (1, 2)
        ]
        assert float(row["gap"]) == pytest.approx(100 * np.mean(gaps))
        assert float(row["gap s.e."]) == pytest.approx(50 * abs(gaps[0] - gaps[1]))
        assert min(gaps) >= 0
    rows = table(tmp_path / "a", "ensembles")
    assert [(row["sampler"], row["weights"]) for row in rows] == [
        (sampler, weights) for sampler in ("Monte Carlo", "SVGD-RD") for weights in ("inherited", "trained")
    ]
    for row in rows:
        best, post = (
            np.mean([records[f"{kind}_{n}"]["ensembles"][row["sampler"]][row["weights"]] for n in (1, 2)])
            for kind in ("best-response", "post-training")
        )
        assert float(row["difference"]) == pytest.approx(100 * (best - post))
    out = command("analyze", *WITH_CONF, "resume=a").out
    assert "trained the supernet" not in out
    assert "trained network" not in out


@pytest.mark.slow
def test_every_size_is_compared_with_the_same_single_architecture(command, tmp_path):
    words = [
        *POSTERIOR_WORDS,
        "study=ensemble_search",
        "study.sizes=[2,3]",
        "study.rounds=2",
        "study.trials=2",
    ]
    assert (
        command("analyze", *WITH_CONF, *words, "study.singles=3", "trainer.max_epochs=2", "run=a").code == 0
    )
    done = json.loads((tmp_path / "a" / "trials.json").read_text())
    *rows, single = table(tmp_path / "a", "budgets")
    assert (single["members"], single["sampler"]) == ("1", "best single")
    assert float(single["test error"]) == pytest.approx(100 * done["best single"][0]["error"])
    places = [(row["members"], row["sampler"], row["architectures judged"]) for row in rows]
    assert len(set(places)) == len(places) == 2 * 4 * 2
    for row in rows:
        count = int(row["architectures judged"]) // int(row["members"]) - 1
        keys = [f"{row['sampler']}, n {row['members']}, trial {trial}" for trial in (1, 2)]
        assert float(row["test error"]) == pytest.approx(50 * sum(done[key][count]["error"] for key in keys))


def test_every_ensemble_once(generator):
    probabilities = torch.randn(5, 20, 3, generator=generator, dtype=torch.float64).softmax(dim=-1)
    labels = torch.randint(3, (20,), generator=generator)
    found = over_subsets(averaged_loss, probabilities, labels, 3)
    expected = []
    for a, b, c in combinations(range(5), 3):
        mean = (probabilities[a] + probabilities[b] + probabilities[c]) / 3
        expected.append(-np.mean([np.log(float(mean[i, labels[i]])) for i in range(20)]))
    np.testing.assert_allclose(found, expected)


def test_agreement_by_hand():
    x, y = np.arange(10.0), np.arange(10.0)[::-1].copy()
    assert agreement(x, x, 0.3) == 1
    assert agreement(x, y, 0.3) == 0
    assert agreement(x, np.array([5, 6, 0, 1, 2, 9, 9, 9, 9, 9.0]), 0.3) == pytest.approx(1 / 3)
    assert agreement(x, x, 0.01) == 1  # one at least


def test_bad_options_of_inherited(refusal):
    def made(**options):
        return refusal(lambda: Inherited(**options))

    assert "sizes below 10" in made(sizes=[10])
    assert "`sizes` must have distinct entries" in made(sizes=[1, 1])
    assert "study.pool" in made(pool=5)
    assert "Inherited.top" in made(top=1.0)


TEMPERATURE_WORDS = (
    *(*TINY_DATA, "study=temperature", "study.taus=[0.5,2]", "study.deltas=[0]", "study.size=2"),
    *("study.rounds=2", "study.trials=2", "study.svgd_steps=5", "study.delta=grid"),
    *("supernet.channels=4", "supernet.cells=1", "trainer.max_epochs=2"),
)


@pytest.fixture
def two_judges(generator):
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
def test_the_temperature_divides_alpha(two_judges, sampler):
    strategy, valid, test = two_judges
    judges, sampling = SetJudges(valid, test), Sampling(sampler, size=2, rounds=2, delta=0.5, svgd_steps=20)
    warm = list(over_budget(strategy, judges, sampling, tau=4.0, seed=0))
    for alpha in strategy.arch_list:
        alpha.data /= 4
    assert list(over_budget(strategy, judges, sampling, seed=0)) == warm
    assert list(over_budget(strategy, judges, sampling, tau=0.1, seed=0)) != warm


@pytest.mark.parametrize("sampler", ["uniform", "nes_rs"])
def test_selection_within_a_budget(two_judges, sampler):
    """The best set so far by validation loss, judged on the other images; NES-RS' pool grows."""
    strategy, valid, test = two_judges
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


def test_temperature_tables_are_means_and_resume_computes_missing_trials(command, tmp_path):
    assert command("analyze", *WITH_CONF, *TEMPERATURE_WORDS, "run=a").code == 0
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
    out = command("analyze", *WITH_CONF, "resume=a").out
    assert json.loads(path.read_text()) == done
    assert out.count(": error ") == 1
    assert removed in out


def test_bad_options_of_temperature(refusal):
    assert "Temperature.taus" in refusal(lambda: Temperature(taus=[0.0]))
    assert "Temperature.taus" in refusal(lambda: Temperature(taus=[]))
    assert "Temperature.deltas" in refusal(lambda: Temperature(deltas=[1.0, 1.0]))
    assert "Temperature.trials" in refusal(lambda: Temperature(trials=1))
    assert "Temperature.size" in refusal(lambda: Temperature(size=1))
    assert "'grid' or 'optuna'" in refusal(lambda: Temperature(delta="random"))


def test_a_single_particle_is_the_most_probable_architecture():
    """Proposition 5.2, for either width and any δ."""
    study = ParticleWidths(spreads=[2.0], deltas=[-1.0, 1.0], size=1, posteriors=2, steps=500)
    for row in (
        row for space in (NasBench201(), DartsSpace(nodes=2)) for row in study.run(space).tables[0].rows
    ):
        mode, *found, fall = row[2:]
        assert all(one.value == pytest.approx(mode.value) for one in found)
        assert fall.value == pytest.approx(0, abs=1e-5)


def test_wider_gaussians_and_larger_deltas_find_less_probable_sets():
    """Where logits are far apart, as with a trained posterior."""
    study = ParticleWidths(spreads=[5.0], deltas=[0.0, 1.0], size=5, posteriors=4, steps=300)
    narrow, wide = study.run(DartsSpace(nodes=3)).tables[0].rows
    assert (narrow[1], wide[1]) == ("operations", "candidates")
    assert narrow[2] == wide[2]
    for row in (narrow, wide):
        assert row[2].value > row[3].value  # of distinct members most are not the mode
    assert narrow[3].value > wide[3].value
    assert narrow[5].value == pytest.approx(narrow[3].value - narrow[4].value, abs=1e-4)
    assert narrow[5].value > 0
