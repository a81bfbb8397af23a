"""Derivations against brute force: contributions by their definition, removals one by one, an arg min."""

from itertools import combinations, permutations
from math import factorial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nas_lightning.data import Fake, SearchData
from nas_lightning.errors import InputError
from nas_lightning.metrics import Naswot
from nas_lightning.objectives.inherited import judge_weights
from nas_lightning.spaces import DartsSpace, Mlp, NasBench201
from nas_lightning.strategies import Darts, PRDarts, Pruning, RandomWS, Shapley, ZeroCost
from nas_lightning.strategies.derivation import (
    WeighedSupernet,
    all_players,
    coalition,
    initialize_weights,
    prune,
    raised_loss,
    shapley_values,
    without_least,
)
from tests.strategies.test_perturbation import Rigged, images

KINDS = [Pruning(valid_batches=1), Shapley(orders=1), ZeroCost()]


@pytest.fixture
def data():
    return SearchData(Fake(shape=(1, 8, 8), num_classes=3, train_size=24, test_size=3, batch_size=4))


def shapley_by_subsets(players, worth):
    """φ_i = Σ_S |S|! (n − |S| − 1)!/n! (V(S ∪ i) − V(S)), over all subsets S without i."""
    values = []
    for player in range(players):
        others = [p for p in range(players) if p != player]
        subsets = [s for size in range(players) for s in combinations(others, size)]
        shares = [factorial(len(s)) * factorial(players - len(s) - 1) / factorial(players) for s in subsets]
        gains = [worth(sorted([*s, player])) - worth(s) for s in subsets]
        values.append(sum(share * gain for share, gain in zip(shares, gains, strict=True)))
    return values


def test_over_all_orders_the_values_are_shapleys(generator):
    table = {
        s: float(torch.rand((), generator=generator)) for n in range(5) for s in combinations(range(4), n)
    }

    def worth(present):
        return table[tuple(present)]

    values = shapley_values(4, worth, permutations(range(4)))
    assert values == pytest.approx(shapley_by_subsets(4, worth))
    assert sum(values) == pytest.approx(table[0, 1, 2, 3] - table[()])


def test_of_an_additive_game_one_order_is_enough(generator):
    gains = torch.rand(6, generator=generator).tolist()
    order = torch.randperm(6, generator=generator).tolist()
    assert shapley_values(6, lambda present: sum(gains[i] for i in present), [order]) == pytest.approx(gains)


def test_an_order_ends_where_little_is_left():
    asked = []

    def worth(present):
        asked.append(len(present))
        return len(present) / 10

    values = shapley_values(10, worth, [range(10)], truncation=0.75)
    assert asked == [10, 9, 8, 7]
    assert values == pytest.approx([0.1] * 3 + [0.0] * 7)


def test_the_values_are_those_of_the_supernets_accuracy(data):
    """Of every operation, by leaving them out of the weights one after the other."""
    space = NasBench201()
    strategy = Darts(space, space.supernet(in_channels=1, num_classes=3, channels=2, cells=1))
    players, weights = all_players(space), {"cell": torch.rand(6, 5)}
    assert len(players) == 6 * 4
    batches = data.valid_batches(1)
    kept = coalition(weights, players[3:5])["cell"]
    assert int((kept != 0).sum()) == 2
    assert torch.equal(kept[kept != 0], weights["cell"].flatten()[[4, 6]])
    assert 0 <= judge_weights(strategy.supernet, {"cell": kept}, batches).accuracy <= 1


def test_the_operation_that_earns_the_accuracy_is_kept():
    """One entry of every edge knows a class, and has the smallest weight."""
    space = NasBench201()
    columns = torch.randint(1, 5, (6,), generator=torch.Generator().manual_seed(7)).tolist()
    weights = torch.full((6, 5), 0.24)
    for row, column in enumerate(columns):
        weights[row, column] = 0.04
    rigged = Rigged([("cell", row, column) for row, column in enumerate(columns)])

    class Search:
        supernet = rigged

        def scores(self):
            return {"cell": weights}

    search, given = Search(), images(6)
    search.space = space

    class Given:
        def valid_batches(self, count):
            return given

    (genotype,) = Shapley(orders=2, truncation=0.0)(search, Given())
    assert genotype.ops == tuple(space.groups["cell"].ops[column] for column in columns)


class Linear(nn.Module):
    """The logit of the first class against the second is linear in the weights."""

    def __init__(self, gains):
        super().__init__()
        self.gains = gains
        self.idle = nn.Parameter(torch.zeros(()))

    def forward(self, x, weights, active=None):
        total = torch.stack([(weights[name] * gain).sum() for name, gain in self.gains.items()]).sum()
        return torch.stack([total, self.idle]).expand(len(x), 2)


def test_the_loss_without_an_operation_is_known_to_first_order(generator):
    """The smaller the weights, the better: the error falls with their square."""
    gains = {"cell": torch.randn(6, 5, generator=generator, dtype=torch.float64)}
    batches = [(torch.zeros(4, 1), torch.zeros(4, dtype=torch.long))]
    errors = []
    for size in (1e-2, 1e-3):
        weights = {"cell": size * torch.rand(6, 5, generator=generator, dtype=torch.float64)}
        found, supernet = raised_loss(Linear(gains), weights, batches)["cell"], Linear(gains)
        exact = torch.zeros(6, 5, dtype=torch.float64)
        before = F.cross_entropy(supernet(batches[0][0], weights), batches[0][1])
        for row in range(6):
            for column in range(5):
                without = weights["cell"].clone()
                without[row, column] = 0
                exact[row, column] = F.cross_entropy(
                    supernet(batches[0][0], {"cell": without}), batches[0][1]
                )
        errors.append(float((found - (exact - before)).abs().max().detach()))
    assert errors[1] < errors[0] / 30


def test_pruning_keeps_what_helps_most(generator):
    """Of a loss that falls with a linear function, the operation with the largest slope on every edge."""
    for space in (NasBench201(), DartsSpace(nodes=2)):
        gains = {n: torch.randn(g.shape, generator=generator) for n, g in space.groups.items()}
        weights = {n: torch.full(g.shape, 1 / g.shape[1]) for n, g in space.groups.items()}
        batches = [(torch.zeros(4, 1), torch.zeros(4, dtype=torch.long))]
        genotype = prune(space, Linear(gains), weights, batches)
        best = {n: gains[n] - gains[n].min() + 1 for n in gains}
        for name, group in space.groups.items():
            best[name][:, group.column("none")] = 0
        assert genotype == space.discretize(best)


def test_a_round_takes_one_operation_and_keeps_the_rows_sums(generator):
    weights = torch.rand(6, 5, generator=generator)
    weights[0] = torch.tensor([0.0, 0.0, 0.7, 0.0, 0.0])
    raises = torch.randn(6, 5, generator=generator)
    after = without_least(weights, raises)
    torch.testing.assert_close(after.sum(dim=1), weights.sum(dim=1))
    assert torch.equal(after[0], weights[0])
    for row in range(1, 6):
        assert after[row].nonzero().flatten().tolist() == sorted(raises[row].argsort()[1:].tolist())


def test_the_metric_decides_each_edge(data):
    """Against the arg min over all operations of a row, with the metric asked of each supernet by itself."""
    space = NasBench201()
    strategy = Darts(space, space.supernet(in_channels=1, num_classes=3, channels=2, cells=1))
    (genotype,) = ZeroCost(seed=3)(strategy, data)
    fresh = initialize_weights(strategy.supernet, 3)
    weights = {"cell": torch.full((6, 5), 0.2)}
    rows = torch.randperm(6, generator=torch.Generator().manual_seed(3 * 1_000_003)).tolist()
    (batch,) = data.train_batches(1)
    for row in rows:
        values = {}
        for column in range(1, 5):
            without = weights["cell"].clone()
            without[row, column] = 0
            values[column] = float(Naswot()(WeighedSupernet(fresh, {"cell": without}), batch))
        chosen = min(values, key=values.get)
        weights["cell"][row] = F.one_hot(torch.tensor(chosen), 5).float()
    assert torch.equal(space.one_hot(genotype)["cell"], weights["cell"])


def test_of_several_orders_the_best_genotype_counts(data):
    space = NasBench201()
    strategy = Darts(space, space.supernet(in_channels=1, num_classes=3, channels=2, cells=1))
    singles = {ZeroCost(orders=n, seed=1)(strategy, data)[0] for n in (1, 2)}
    network, (batch,) = initialize_weights(strategy.supernet, 1), data.train_batches(1)

    def worth(genotype):
        return float(Naswot()(WeighedSupernet(network, space.one_hot(genotype)), batch))

    best = ZeroCost(orders=2, seed=1)(strategy, data)[0]
    assert worth(best) == max(worth(genotype) for genotype in singles)


@pytest.mark.parametrize("derivation", KINDS, ids=lambda kind: type(kind).__name__)
@pytest.mark.parametrize("kind", [PRDarts, RandomWS])
@pytest.mark.parametrize("space", [NasBench201(), DartsSpace(nodes=1)], ids=["nasbench201", "darts"])
def test_works_with_any_strategy_and_leaves_it_as_it_is(kind, space, derivation, data):
    supernet = space.supernet(in_channels=1, num_classes=3, channels=2, cells=1)
    strategy = kind(space, supernet, data) if kind is RandomWS else kind(space, supernet)
    state = strategy.generator.get_state()
    before = {name: value.clone() for name, value in strategy.state_dict().items()}
    random = torch.random.get_rng_state()
    (genotype,) = derivation(strategy, data)
    space.check(genotype)
    assert "none" not in genotype.ops
    assert derivation(strategy, data) == [genotype]
    assert all(torch.equal(value, before[name]) for name, value in strategy.state_dict().items())
    assert torch.equal(strategy.generator.get_state(), state)
    assert torch.equal(torch.random.get_rng_state(), random)
    assert all(weight.requires_grad for weight in strategy.weight_list)


@pytest.mark.parametrize("derivation", KINDS, ids=lambda kind: type(kind).__name__)
def test_a_space_without_edges_is_refused(derivation):
    space = Mlp()
    strategy = Darts(space, space.supernet(in_channels=1, num_classes=3, width=4, side=2))
    with pytest.raises(InputError, match="expected a space that chooses operations on edges"):
        derivation.check(strategy)
