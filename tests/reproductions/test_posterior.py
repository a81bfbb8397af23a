"""Studies of NESBS' posteriors and ensembles: the mode by brute force, what is picked, what is kept."""

import csv
import json
from itertools import combinations, product

import numpy as np
import pytest
import torch

from nas_lightning.data import Fake, SearchData
from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.strategies.nesbs.posterior import Architectures
from nas_lightning.strategies.nesbs.strategy import Nesbs
from reproductions.nesbs import EnsembleSearch, SetJudges, describe_posterior, posterior_draws
from tests.cli.conftest import TINY_DATA

SMALL = (*TINY_DATA, "supernet.channels=4", "supernet.cells=1", "study.svgd_steps=5", "dataset.batch_size=8")


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


def test_what_a_posterior_says_of_architectures(parts):
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
def test_either_posterior_is_compared(command, tmp_path):
    """What the tables say is what the trials came to; a trial that is there is not trained again."""
    words = [*SMALL, "study=posterior", "study.supernet_epochs=1", "study.posterior_epochs=1", "study.pool=3"]
    words += ["study.size=2", "study.rounds=1", "study.trials=2", "network.channels=2", "network.cells=1"]
    assert command("analyze", *words, "trainer.max_epochs=1", "run=a").code == 0
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
    out = command("analyze", "resume=a").out
    assert "trained the supernet" not in out
    assert "trained network" not in out


@pytest.mark.slow
def test_every_size_has_the_same_single_architecture_beside_it(command, tmp_path):
    words = [*SMALL, "study=ensemble_search", "study.sizes=[2,3]", "study.rounds=2", "study.trials=2"]
    assert command("analyze", *words, "study.singles=3", "trainer.max_epochs=2", "run=a").code == 0
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


@pytest.mark.slow
def test_ensembles_are_compared_on_the_same_images(command, tmp_path):
    words = [*TINY_DATA, "study=ensembles", "study.members=2", "network.channels=2", "network.cells=1"]
    assert command("analyze", *words, "trainer.max_epochs=1", "run=a").code == 0
    rows = table(tmp_path / "a", "ensembles")
    assert [(row["ensemble"], row["members"]) for row in rows] == [
        ("one architecture", "2"),
        ("random architectures", "2"),
    ]
    for row in rows:
        assert float(row["best member's"]) <= float(row["ATE"])
        assert float(row["all wrong"]) <= float(row["error"])
        assert float(row["PPD"]) > 0


@pytest.mark.slow
def test_runs_of_ensembles_are_compared(command, tmp_path):
    """What their own page says of them stands in one table."""
    train = [
        *TINY_DATA,
        "genotype=nasbench201_best",
        "network.channels=2",
        "network.cells=1",
        "trainer.max_epochs=1",
    ]
    assert command("train", *train, "ensemble=deep", "ensemble.count=2", "run=deep").code == 0
    code, _, err = command("analyze", *TINY_DATA, "study=ensembles", "study.runs={mine: deep}", "run=a")
    assert (code, err) == (0, "")
    (row,) = table(tmp_path / "a", "ensembles")
    summary = json.loads((tmp_path / "deep" / "summary.json").read_text())["metrics"]
    for column, name in (("error", "test_error"), ("ATE", "ate"), ("PPD", "ppd")):
        assert float(row[column]) == pytest.approx(100 * summary[name])
    code, _, err = command("analyze", *TINY_DATA, "study=ensembles", "study.runs={mine: nowhere}", "run=b")
    assert code == 1
    assert err.startswith("error: expected a folder with an ensemble.json")


def test_what_cannot_be(refusal):
    assert "EnsembleSearch.sizes" in refusal(lambda: EnsembleSearch(sizes=[1]))
    assert "EnsembleSearch.trials" in refusal(lambda: EnsembleSearch(trials=1))
