"""NESBS: fair training of the supernet, the posterior's steps, and the ensemble that it ends with."""

import json
import re
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nas_lightning.callbacks.monitors import SaveRounds
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.inherited import InheritedWeights
from nas_lightning.spaces import DartsSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies import Darts
from nas_lightning.strategies.nesbs.strategy import Nesbs

QUICK = {"svgd_steps": 30, "lr_min": 0.0}


@pytest.fixture
def nesbs(cell_space, supernet, data):
    """`nesbs(**options)`: a search with 4 + 4 batches of 4 images an epoch."""

    def make(space=cell_space, **options):
        its_data = options.pop("data", None) or data()
        return Nesbs(space, supernet(space), its_data, **{**QUICK, "seed": 4, **options})

    return make


def fitted(strategy, trainer, epochs=3, *callbacks, **options):
    trainer(epochs, *callbacks, **options).fit(strategy, strategy.data)
    return strategy


# Stage 1


def test_every_architecture_is_trained_equally_often(nesbs):
    """χ² over all 81 pairs of cells of a space with one node and three operations."""
    space = DartsSpace(nodes=1, ops=("none", "max_pool_3x3", "skip_connect", "sep_conv_3x3"))
    strategy, counts, draws = nesbs(space), Counter(), 8100
    for _ in range(draws):
        counts[tuple(tuple(matrix.flatten().tolist()) for matrix in strategy.relax().weights.values())] += 1
    assert len(counts) == 9 * 9
    expected = draws / 81
    statistic = sum((count - expected) ** 2 / expected for count in counts.values())
    assert statistic < 138  # 80 degrees of freedom, p = 6·10⁻⁵


def test_every_operation_is_trained_equally_often(nesbs, trainer, data):
    """Over a fit, how often each operation's weights took a step: within the error of the sampling."""
    strategy = nesbs(data=data(train_size=64), posterior_share=0.0, weight_decay=0.0, rounds=1)
    steps = Counter()
    convolutions = {
        name: weight
        for name, weight in strategy.supernet.named_parameters()
        if re.search(r"\.ops\.\d_\d_nor_conv", name)
    }
    stepped = strategy.descend

    def descend():
        steps.update({name for name, weight in convolutions.items() if weight.grad is not None})
        stepped()

    strategy.descend = descend
    fitted(strategy, trainer, epochs=40)
    total = 40 * len(strategy.data.train)
    assert total == 320
    of_edges = Counter()
    for name, count in steps.items():
        of_edges[re.search(r"(\d_\d_\w+)\.", name)[1]] = count
    assert len(of_edges) == 12
    deviation = (total * 0.2 * 0.8) ** 0.5
    assert all(abs(count - total / 5) < 4 * deviation for count in of_edges.values())


def test_the_learning_rate_follows_the_supernets_epochs(nesbs, trainer):
    strategy = nesbs(lr=0.1, posterior_share=0.5)
    rates = []
    stepped = strategy.descend

    def descend():
        rates.append(round(strategy.trainer.optimizers[0].param_groups[0]["lr"], 6))
        stepped()

    strategy.descend = descend
    fitted(strategy, trainer, epochs=4)
    assert rates == [0.1] * 4 + [0.05] * 4  # 0.1 (1 + cos πe/2)/2


# Stage 2


def test_the_posterior_trains_while_the_weights_rest(nesbs, trainer):
    strategy = nesbs(posterior_share=0.5, arch_lr=0.1)
    before = []

    def keep():
        before.append({name: value.detach().clone() for name, value in strategy.named_parameters()})

    own = strategy.on_train_epoch_end
    strategy.on_train_epoch_end = lambda: (keep(), own())[1]
    fitted(strategy, trainer, epochs=2)
    first, second = before
    for name in first:
        moved = not torch.equal(first[name], second[name])
        assert moved == name.startswith("arch."), name
    assert bool((first["arch.cell"] == 0).all())
    assert strategy.trainer.global_step == 8


def test_an_epoch_of_the_posterior_is_one_pass_over_its_images(nesbs, trainer, data):
    strategy = nesbs(data=data(train_size=40, train_fraction=0.7), posterior_share=0.5)
    assert (len(strategy.data.train), len(strategy.data.valid)) == (7, 3)
    fitted(strategy, trainer, epochs=4)
    assert strategy.trainer.global_step == 2 * 7 + 2 * 3
    waits = nesbs(
        data=data(train_size=40, train_fraction=0.7), posterior_share=0.5, accumulate_grad_batches=2
    )
    fitted(waits, trainer, epochs=4)
    assert waits.trainer.global_step == 2 * 4 + 2 * 2


def test_a_high_temperature_flattens_the_posterior(nesbs):
    """p(o) = exp(α_o/τ) / Σ exp(α/τ), equation 5.6, in what is logged and in the divergence."""
    strategy = nesbs(tau=4.0).double()
    with torch.no_grad():
        strategy.arch["cell"].normal_()
    powers = (strategy.arch["cell"].detach() / 4).exp()
    p = powers / powers.sum(dim=1, keepdim=True)
    torch.testing.assert_close(strategy.scores()["cell"], p)
    torch.testing.assert_close(strategy.kl().detach(), (p * (5 * p).log()).sum())


@pytest.mark.parametrize(
    ("images", "computed", "best_response"),
    [(None, "all", False), (3.0, "all", False), (None, "sampled", False), (None, "all", True)],
)
def test_a_step_of_the_posterior_by_hand(nesbs, data, images, computed, best_response):
    """∇_α (mean loss + KL/m), by default with m = 12 validation images; a best response has no KL."""
    strategy = nesbs(
        data=data(train_size=40, train_fraction=0.7),
        likelihood_images=images,
        computed=computed,
        best_response=best_response,
        posterior_share=0.0 if best_response else 0.5,
        tau=2.0,
        gumbel_tau=0.5,
    ).double()
    batch = {"valid": (torch.randn(4, 1, 8, 8).double(), torch.arange(4) % 3)}
    with torch.no_grad():
        strategy.arch["cell"].normal_()
    alpha = strategy.arch["cell"].detach().clone().requires_grad_()
    state = strategy.generator.get_state()
    seen = []

    class Keep:
        def step(self):
            seen.append(strategy.arch["cell"].grad.clone())

        def zero_grad(self):
            pass

    strategy.posterior_step([batch], Keep())
    replay = torch.Generator()
    replay.set_state(state)
    noise = torch.rand(6, 5, generator=replay, dtype=torch.float64)
    soft = ((alpha / 2 - torch.log(-torch.log(noise))) / 0.5).softmax(dim=1)
    hard = F.one_hot(soft.argmax(dim=1), 5).double()
    weights = hard + soft - soft.detach()
    active = torch.ones(6, 5, dtype=torch.bool) if computed == "all" else hard > 0.5
    logits = strategy.supernet(batch["valid"][0], {"cell": weights}, {"cell": active})
    log_p = (alpha / 2).log_softmax(dim=1)
    divergence = (log_p.exp() * (log_p + torch.log(torch.tensor(5.0)))).sum()
    loss = F.cross_entropy(logits, batch["valid"][1])
    loss = loss if best_response else loss + divergence / (12 if images is None else images)
    (expected,) = torch.autograd.grad(loss, [alpha])
    torch.testing.assert_close(seen[0], expected)


def test_the_posterior_has_the_adam_that_was_asked_for(nesbs, trainer):
    options = {"arch_lr": 0.02, "arch_betas": (0.8, 0.9), "arch_weight_decay": 0.3}
    strategy = fitted(nesbs(posterior_share=0.5, **options), trainer, epochs=2)
    optimizer = strategy.trainer.optimizers[1]
    assert type(optimizer).__name__ == "Adam"
    (group,) = optimizer.param_groups
    assert (group["lr"], group["betas"], group["weight_decay"]) == (0.02, (0.8, 0.9), 0.3)
    assert group["params"] == strategy.arch_list


def test_best_response_trains_both_in_every_step(nesbs, trainer):
    strategy = nesbs(best_response=True, posterior_share=0.0, arch_lr=0.1)
    before = {name: value.detach().clone() for name, value in strategy.named_parameters()}
    fitted(strategy, trainer, epochs=1)
    assert strategy.trainer.global_step == 4  # the weights' steps
    for name in ("arch.cell", "supernet.head.weight"):
        assert not torch.equal(before[name], dict(strategy.named_parameters())[name])
    with torch.no_grad():  # and its paths are the posterior's
        strategy.arch["cell"].zero_()[:, 2] = 50.0
    assert strategy.relax().weights["cell"].argmax(dim=1).tolist() == [2] * 6


class Costs(Supernet):
    """A stand-in for a supernet: logits k·(1, 2, 3), k the sum of its path's costs; k = 0 is the best."""

    def __init__(self, costs):
        nn.Module.__init__(self)
        self.backbone, self.head = nn.Identity(), nn.Linear(1, 3)
        self.register_buffer("costs", costs)

    def forward(self, x, weights, active=None):
        k = (weights["cell"] * self.costs).sum() + self.head(torch.zeros(1)).prod() * 0
        return k * torch.tensor([1.0, 2.0, 3.0]).expand(len(x), 3)


def test_the_posteriors_mode_is_the_best_architecture(cell_space, data, trainer, generator):
    """Where every operation has its cost, it is the cheapest on every edge."""
    costs = 0.1 * torch.stack([torch.randperm(5, generator=generator) for _ in range(6)])
    strategy = Nesbs(cell_space, Costs(costs), data(), posterior_share=0.9, arch_lr=0.1, **QUICK)
    trainer(20).fit(strategy, strategy.data)
    assert strategy.scores()["cell"].argmax(dim=1).tolist() == costs.argmin(dim=1).tolist()


# Stage 3


@pytest.mark.parametrize("sampler", ["svgd_rd", "monte_carlo", "uniform", "nes_rs"])
@pytest.mark.parametrize("space", ["cell_space", "darts_space"])
def test_the_ensemble_is_the_best_set(nesbs, trainer, sampler, space, request):
    space = request.getfixturevalue(space)
    strategy = nesbs(space, sampler=sampler, size=2, rounds=3)
    fitted(strategy, trainer, epochs=2)
    done = strategy.rounds_done
    assert len(done) == (1 if sampler == "nes_rs" else 3)
    for each in done:
        assert len(set(each.members)) == 2
        assert (each.delta is not None) == (sampler == "svgd_rd")
    judge = InheritedWeights(space, strategy.supernet, strategy.data.valid_batches(4))
    losses = [judge.loss(each.members) for each in done]
    assert losses == pytest.approx([each.loss for each in done], rel=1e-6)
    assert tuple(strategy.derive()) == done[losses.index(min(losses))].members
    logged = {name: float(value) for name, value in strategy.trainer.callback_metrics.items()}
    assert logged["ensemble_loss"] == pytest.approx(min(losses))
    assert logged["members/1/loss"] <= logged["members/2/loss"]
    assert logged["members/1/loss"] == pytest.approx(judge.loss(strategy.derive()[:1]))


def test_before_the_end_it_stands_for_the_mode(nesbs):
    strategy = nesbs()
    with torch.no_grad():
        strategy.arch["cell"][:, 3] = 1.0
    (genotype,) = strategy.derive()
    assert genotype.ops == ("nor_conv_3x3",) * 6


def test_stopped_search_has_an_ensemble(nesbs, trainer):
    """Within an epoch too, where nothing more is logged."""
    strategy = nesbs(size=2)
    fitted(strategy, trainer, epochs=3, max_steps=2)
    assert len(strategy.derive()) == 2
    strategy = nesbs(size=2)

    def stop():
        strategy.trainer.should_stop = True
        Nesbs.on_train_epoch_end(strategy)

    strategy.on_train_epoch_end = stop
    fitted(strategy, trainer, epochs=3)
    assert len(strategy.derive()) == 2
    assert "ensemble_loss" in strategy.trainer.callback_metrics


def test_resumed_search_selects_again(nesbs, trainer):
    strategy = fitted(nesbs(), trainer, epochs=1)
    before = strategy.rounds_done
    fitted(strategy, trainer, epochs=2)
    assert strategy.rounds_done != before


def test_selecting_repeats_itself(nesbs, trainer):
    """Whatever the search's own generator has drawn in between."""
    strategy = fitted(nesbs(delta="optuna", rounds=3), trainer)
    done, state = strategy.rounds_done, strategy.generator.get_state()
    strategy.relax()
    strategy.select()
    assert strategy.rounds_done == done
    strategy.generator.set_state(state)
    strategy.select()
    assert torch.equal(strategy.generator.get_state(), state)


def test_fewer_batches_to_judge_on(nesbs, trainer):
    strategy = fitted(nesbs(valid_batches=2), trainer)
    judge = InheritedWeights(strategy.space, strategy.supernet, strategy.data.valid_batches(2))
    best = min(strategy.rounds_done, key=lambda done: done.loss)
    assert best.loss == pytest.approx(judge.loss(best.members), rel=1e-6)


def test_the_rounds_of_a_run_are_in_its_folder(nesbs, trainer, tmp_path):
    strategy = nesbs(size=2, rounds=3)
    fitted(strategy, trainer, 2, SaveRounds(tmp_path))
    written = json.loads((tmp_path / "rounds.json").read_text())
    assert written["sampler"] == "svgd_rd"
    assert [each["delta"] for each in written["rounds"]] == [-2.0, -0.5, 1.0]
    assert [each["loss"] for each in written["rounds"]] == [done.loss for done in strategy.rounds_done]
    (selected,) = [each for each in written["rounds"] if each["selected"]]
    assert [Genotype.from_dict(member) for member in selected["members"]] == strategy.derive()


def test_rounds_of_another_strategy(cell_space, supernet, data, trainer, tmp_path):
    with pytest.raises(InputError, match="This callback needs strategy=nesbs, got 'Darts'"):
        trainer(1, SaveRounds(tmp_path)).fit(Darts(cell_space, supernet(cell_space)), data())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": "svgd"}, "`sampler` must be 'svgd_rd', "),
        ({"delta": "gird"}, "`delta` must be a valid number or 'grid' or 'optuna'"),
        ({"computed": "none"}, "`computed` must be 'all' or 'sampled'"),
        ({"size": 0}, r"`size` must be at least 1, got 0 \(in Nesbs.size\)"),
        ({"svgd_bandwidth": 0.0}, "`svgd_bandwidth` must be greater than 0"),
        ({"likelihood_images": -1}, "`likelihood_images` must be greater than 0"),
        ({"valid_batches": 0}, "`valid_batches` must be at least 1"),
        ({"posterior_share": 1.0}, "`posterior_share` must be less than 1"),
        ({"best_response": True}, "`posterior_share` must be 0 with best_response=true"),
        (
            {"best_response": True, "posterior_share": 0.0, "likelihood_images": 10.0},
            r"`likelihood_images` must be null with best_response=true, got 10.0",
        ),
    ],
)
def test_settings_that_cannot_be(nesbs, options, message):
    with pytest.raises(InputError, match=message):
        nesbs(**options)
