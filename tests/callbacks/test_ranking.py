"""The ranking callback says what a plain computation says, and refuses what it cannot rank."""

import pytest
import pytorch_lightning as pl
import torch
from scipy import stats

from nas_lightning.callbacks.monitors import SharedWeightRanking
from nas_lightning.data import Fake, SearchData
from nas_lightning.objectives.inherited import judge_genotype, kendall_tau
from nas_lightning.spaces import NasBench201, TwoLayer
from nas_lightning.strategies import Darts, RandomWS

REFUSED = "expected a one-shot strategy with architecture parameters that is fitted with SearchData"


@pytest.fixture
def data():
    return SearchData(Fake(shape=(1, 8, 8), num_classes=3, train_size=24, test_size=3, batch_size=4))


@pytest.fixture
def supernet():
    return NasBench201().supernet(in_channels=1, num_classes=3, channels=2, cells=1)


@pytest.fixture
def fit(data):
    def run(strategy, epochs, *callbacks, search_data=data, **options):
        quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
        quiet |= {"enable_model_summary": False, "accelerator": "cpu"}
        trainer = pl.Trainer(max_epochs=epochs, callbacks=list(callbacks), **quiet, **options)
        trainer.fit(strategy, search_data)
        return trainer

    return run


@pytest.mark.parametrize("precision", ["32-true", "64-true"])
def test_logs_the_agreement_of_both_orders(fit, data, supernet, precision):
    space = NasBench201()
    darts = Darts(space, supernet, arch_lr=0.1)
    ranking = SharedWeightRanking(every_n_epochs=2, architectures=12, valid_batches=1, seed=5)
    logged = fit(darts, 2, ranking, precision=precision).callback_metrics
    draw = torch.Generator().manual_seed(5)
    drawn = [space.sample(draw) for _ in range(12)]
    shares, group = darts.scores()["cell"].log(), space.groups["cell"]
    likelihood = [
        sum(float(shares[group.edges.index((s, t)), group.column(op)]) for op, s, t in genotype["cell"].edges)
        for genotype in drawn
    ]
    dtype = next(supernet.parameters()).dtype
    batches = [(x.to(dtype), y) for x, y in data.valid_batches(1)]
    losses = [judge_genotype(space, supernet, genotype, batches).loss for genotype in drawn]
    expected = stats.kendalltau(likelihood, [-loss for loss in losses]).statistic
    assert float(logged["ranking/kendall_tau"]) == pytest.approx(expected, abs=1e-6)
    assert float(logged["ranking/seconds"]) > 0


@pytest.mark.parametrize(
    ("exchanged", "tau"),
    [(("relu", "leaky_relu"), 0.93), (("tanh", "sigmoid"), 0.81), (("swish", "tanh"), 0.53)],
)
def test_what_one_exchange_of_two_activations_takes(exchanged, tau):
    """Twenty draws of five activations repeat them, so that it depends on which two change places."""
    space, draw = TwoLayer(), torch.Generator().manual_seed(0)
    drawn = [op for _ in range(20) for op, _, _ in space.sample(draw)["layers"].edges]
    order = ["relu", "leaky_relu", "swish", "tanh", "sigmoid"]
    other = dict(zip(exchanged, reversed(exchanged), strict=True))
    found = [-order.index(op) for op in drawn], [order.index(other.get(op, op)) for op in drawn]
    assert kendall_tau(*found) == pytest.approx(tau, abs=0.005)


def test_only_every_so_often(fit, supernet):
    darts = Darts(NasBench201(), supernet)
    ranking = SharedWeightRanking(every_n_epochs=3, architectures=3, valid_batches=1)
    assert "ranking/kendall_tau" not in fit(darts, 2, ranking).callback_metrics
    assert "ranking/kendall_tau" in fit(Darts(NasBench201(), supernet), 3, ranking).callback_metrics


def test_it_changes_nothing(fit):
    ends = []
    for callbacks in ([], [SharedWeightRanking(every_n_epochs=1, architectures=4, valid_batches=1)]):
        torch.manual_seed(2)
        space = NasBench201()
        darts = Darts(space, space.supernet(in_channels=1, num_classes=3, channels=2, cells=1))
        fit(darts, 2, *callbacks)
        ends.append(darts.state_dict())
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())


def test_what_it_cannot_rank_is_said_before_the_search(fit, data, supernet, refusal):
    strategy = RandomWS(NasBench201(), supernet, data)
    before = supernet.head.weight.detach().clone()
    message = refusal(lambda: fit(strategy, 1, SharedWeightRanking()))
    assert message.startswith(f"{REFUSED}, got 'RandomWS'")
    assert torch.equal(supernet.head.weight, before)


def test_other_data_is_refused(fit, data, supernet, refusal):
    class Other(pl.LightningDataModule):
        def train_dataloader(self):
            return data.train_dataloader()

    darts = Darts(NasBench201(), supernet)
    message = refusal(lambda: fit(darts, 1, SharedWeightRanking(), search_data=Other()))
    assert message.startswith(
        "expected a one-shot strategy with architecture parameters that is fitted with SearchData"
    )
