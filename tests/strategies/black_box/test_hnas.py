"""HNAS: its objective in closed form, its choice by brute force, and a Gaussian process without state."""

import math
import sys
from functools import partial

import numpy as np
import pytest
import torch

from nas_lightning.data import Fake, SearchData
from nas_lightning.metrics import GradNorm, Jacov, NTKCondition, NTKSqrtMeanDiagonal, Params
from nas_lightning.metrics.pool import score_pool
from nas_lightning.objectives.rankings import trade_off
from nas_lightning.objectives.short_training import ShortTraining
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import Hnas
from nas_lightning.strategies.black_box.hnas import BOX, in_units, propose
from reproductions.hnas import KnownPool, hnas_search

SPACE = NasBench201()
NETWORK = partial(SPACE.network, in_channels=1, num_classes=3, channels=2, cells=1)


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def plain(M, kappa, mu, nu, t):
    """(7.7) in Python's numbers; what has no kernel or no metric never wins."""
    if not (math.isfinite(M) and math.isfinite(kappa) and M > 0):
        return math.inf
    return kappa / M + mu * abs(M**2 - nu) ** (2 * t)


@pytest.mark.parametrize("t", [0.5, 1.0, 2.0])
def test_the_objective_against_the_formula(t):
    M = tensor(0.5, 2.0, 7.0, 0.0, -1.0, math.inf, -math.inf, 3.0)
    kappa = tensor(10.0, 3.0, 900.0, 2.0, 2.0, 2.0, math.inf, math.inf)
    for mu, nu in ((1e-4, 0.0), (0.3, 4.0), (10.0, 30.0)):
        expected = [plain(m, k, mu, nu, t) for m, k in zip(M.tolist(), kappa.tolist(), strict=True)]
        assert trade_off(kappa, M, mu, nu, 2 * t).tolist() == pytest.approx(expected)
        assert expected[3:] == [math.inf] * 5


def test_the_terms_have_the_same_median():
    generator = torch.Generator().manual_seed(0)
    M, kappa = torch.rand(2, 101, generator=generator, dtype=torch.float64) * 50 + 1
    mu, nu = in_units(M, kappa, 1.0, 0.25, 1.0)
    assert nu == pytest.approx(float(sorted(M.tolist())[25]) ** 2)
    assert float((mu * (M**2 - nu) ** 2).median()) == pytest.approx(float((kappa / M).median()))
    assert in_units(M, kappa, 100.0, 0.25, 1.0)[0] == pytest.approx(100 * mu)


@pytest.mark.parametrize("scale", [1e-6, 1e36])
def test_choice_does_not_depend_on_units(scale):
    generator = torch.Generator().manual_seed(1)
    M, kappa = torch.rand(2, 60, generator=generator, dtype=torch.float64) + 0.1
    for relative in (0.1, 1.0, 1e4):
        for quantile in (0.0, 0.3, 1.0):
            orders = []
            for m, k in ((M, kappa), (scale * M, 7 * kappa)):
                mu, nu = in_units(m, k, relative, quantile, 0.5)
                orders.append(trade_off(k, m, mu, nu, 1.0).argsort().tolist())
            assert orders[0] == orders[1]


def test_a_pool_without_a_regular_kernel(refusal):
    message = refusal(lambda: in_units(tensor(1.0, 0.0), tensor(math.inf, 1.0), 1.0, 0.5, 1.0))
    assert message.startswith("No architecture of the pool has a regular kernel")


def test_the_first_rounds_cover_the_metric():
    seen, starts = [], 5
    for _ in range(starts):
        seen.append((propose(seen, starts, 0), 0.0))
    assert [parameters["quantile"] for parameters, _ in seen] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert {parameters["log10_mu"] for parameters, _ in seen} == {1.5}


def peak(parameters):
    return 90 - (parameters["log10_mu"] - 3) ** 2 - 30 * (parameters["quantile"] - 0.2) ** 2


def test_the_process_finds_a_peak():
    """Of a paraboloid whose best value is 90; the starts alone come to 87.7."""
    seen = []
    for number in range(15):
        parameters = propose(seen, 5, number)
        assert all(BOX[name][0] <= value <= BOX[name][1] for name, value in parameters.items())
        seen.append((parameters, peak(parameters)))
    values = [value for _, value in seen]
    assert max(values[:5]) < 87.8
    assert max(values) > 89.8


def test_proposal_depends_only_on_observations_and_seed():
    seen = [({"log10_mu": c, "quantile": q}, peak({"log10_mu": c, "quantile": q})) for c, q in GRID]
    first = propose(seen, 3, 7)
    torch.manual_seed(5)
    torch.rand(3)
    assert propose(seen, 3, 7) == first
    assert propose(seen, 3, 8) != first


GRID = [(-1.0, 0.0), (0.5, 0.9), (2.0, 0.4), (3.5, 0.7)]


@pytest.fixture
def search(data, trainer, monkeypatch):
    """`search(rounds, accuracy, …)`: HNAS whose short training is `accuracy(notation)`."""

    def run(rounds, accuracy, **options):
        def evaluate(self, genotype):
            return accuracy(SPACE.notation(genotype))

        monkeypatch.setattr(ShortTraining, "__call__", evaluate)
        options = {"metric": NTKSqrtMeanDiagonal(), "condition": NTKCondition(), "pool_size": 16} | options
        module = Hnas(SPACE, NETWORK, data(), evaluation="training", images=4, **options)
        fit = trainer(rounds, limit_train_batches=1)
        fit.fit(module, module.data)
        return module, fit

    return run


def by_length(notation):
    return float(len(notation))


def test_every_round_takes_the_minimizer_of_its_proposal(search):
    """By brute force over the pool, round by round, without those that were evaluated before."""
    module, _ = search(8, by_length, t=0.5)
    rows = {arch: (row["metric"], row["condition"]) for arch, row in module.scored.items()}
    M, kappa = (tensor(*column) for column in zip(*rows.values(), strict=True))
    taken = []
    for parameters, chosen in module.proposals:
        mu, nu = in_units(M, kappa, 10 ** parameters["log10_mu"], parameters["quantile"], 0.5)
        values = {arch: plain(m, k, mu, nu, 0.5) for arch, (m, k) in rows.items() if arch not in taken}
        assert values[chosen] == min(values.values()) < math.inf
        taken.append(chosen)
    assert list(module.evaluated) == taken
    assert SPACE.notation(module.derive()[0]) == max(taken, key=by_length)


def test_the_study_searches_as_the_strategy_does(search):
    """Past the starts, in the same pool by the same evaluations."""
    module, _ = search(9, by_length, starts=3)
    names = list(module.scored)
    rows = module.scored.values()
    metric, kappa = (np.array([row[name] for row in rows]) for name in ("metric", "condition"))
    pool = KnownPool(metric, kappa, np.array([by_length(name) for name in names]))
    trace = hnas_search(pool, 9, t=1.0, starts=3, seed=module.seed)
    found = [(one, names[cell]) for one, cell in zip(trace.parameters, trace.chosen, strict=True)]
    assert found == module.proposals


def test_singular_kernels_are_never_evaluated(search):
    module, fit = search(16, by_length)
    singular = {arch for arch, row in module.scored.items() if not math.isfinite(row["condition"])}
    assert singular  # the pool has some
    assert len(module.evaluated) == 16 - len(singular)  # more rounds than architectures
    assert not singular & set(module.evaluated)
    assert set(fit.callback_metrics) >= {"log10_mu", "quantile", "valid_accuracy", "num_scored"}


def test_the_pool_grows(search):
    module, _ = search(3, by_length, pool_per_round=4)
    assert len(module.scored) == 16 + 2 * 4
    small, _ = search(1, by_length)
    assert list(small.scored) == list(module.scored)[:16]


def test_stopped_in_the_middle_it_makes_the_same_proposals(search, trainer, tmp_path):
    """Past the starts, where the Gaussian process proposes."""
    whole, _ = search(9, by_length, starts=3)
    half, fit = search(6, by_length, starts=3)
    assert half.proposals == whole.proposals[:6]
    fit.save_checkpoint(tmp_path / "half.ckpt")
    resumed, _ = search(0, by_length, starts=3)
    trainer(9, limit_train_batches=1).fit(resumed, resumed.data, ckpt_path=tmp_path / "half.ckpt")
    assert resumed.proposals == whole.proposals
    assert resumed.evaluated == whole.evaluated
    assert len({tuple(parameters.values()) for parameters, _ in whole.proposals[3:]}) > 1


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"metric": NTKCondition()}, "strategy.metric"),
        ({"metric": Jacov()}, "`metric` must be one that can be above 0"),
        ({"condition": GradNorm()}, "strategy.condition"),
        ({"t": 0.0}, "Hnas.t"),
        ({"starts": 0}, "Hnas.starts"),
    ],
)
def test_invalid_hnas_options_are_rejected(search, refusal, options, where):
    assert where in refusal(lambda: search(1, by_length, **options))


def test_hnas_needs_an_evaluation(data, refusal):
    message = refusal(lambda: Hnas(SPACE, NETWORK, data(), evaluation="none"))
    assert "The Gaussian process needs an evaluation (training or table)" in message


class Below(Params):
    """Below 0 for all networks, without saying so."""

    def compute(self, passes):
        return -super().compute(passes)


def test_a_metric_below_zero_never_wins(search, refusal):
    """Ratios by it mean nothing."""
    assert "a metric above 0" in refusal(lambda: search(1, by_length, metric=Below()))
    assert len(search(1, by_length, metric=Params())[0].evaluated) == 1


def test_optuna_is_quiet(search, capfd):
    search(7, by_length, starts=3)
    captured = capfd.readouterr()
    assert captured.err == ""
    assert "optuna" in sys.modules


def test_scores_may_be_of_other_images_than_evaluations(data, trainer):
    """Three channels and five classes are scored on, one channel and three classes evaluated on."""
    other = Fake(shape=(3, 8, 8), num_classes=5, train_size=16, test_size=8, batch_size=4)
    options = {"pool_size": 3, "images": 4, "seed": 2, "epochs": 1}
    searches = [Hnas(SPACE, NETWORK, data(), score_data=images, **options) for images in (other, None)]
    for search in searches:
        trainer(1, limit_train_batches=1).fit(search, search.data)
    found, own = (list(search.scored.values()) for search in searches)
    genotypes = [SPACE.parse(notation) for notation in searches[0].scored]
    network = partial(SPACE.network, in_channels=3, num_classes=5, channels=2, cells=1)
    batch, metrics = SearchData(other).train.plain_images(4, 2), searches[0].metrics
    assert found == score_pool(SPACE, network, genotypes, batch, metrics, seed=2, progress=False)
    assert found != own
    assert len(searches[0].evaluated) == 1  # of one channel and three classes
