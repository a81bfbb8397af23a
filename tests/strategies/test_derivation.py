"""Derivations against brute force."""

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
from nas_lightning.strategies import Darts, Gdas, PRDarts, Pruning, RandomWS, Shapley, ZeroCost
from nas_lightning.strategies.derivation import (
    Discretization,
    Perturbation,
    WeighedSupernet,
    all_players,
    coalition,
    initialize_weights,
    prune,
    raised_loss,
    shapley_values,
    without_least,
)

# Derivations against brute force: contributions by their definition, removals one by one, an arg min.


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
    with pytest.raises(InputError, match="This derivation needs a space that chooses operations on edges"):
        derivation.check(strategy)


# Selection by perturbation finds the operations that matter, in supernets where it is known which do.


class Rigged(nn.Module):
    """Knows class n as long as the weight of its entry is not zero; an image is the number of its class."""

    def __init__(self, entries):
        super().__init__()
        self.entries = entries
        self.idle = nn.Parameter(torch.zeros(()))

    def forward(self, x, weights, active=None):
        known = torch.tensor([float(weights[name][row, column] > 0) for name, row, column in self.entries])
        classes = x.flatten(1)[:, 0].long()
        right = nn.functional.one_hot(classes, len(known)) * known
        neither = torch.full((len(x), 1), 0.5)  # the answer where the class is not known
        return torch.cat([right, neither], dim=1) + self.idle


def images(classes):
    labels = torch.arange(classes).repeat(4)
    return [(labels.view(-1, 1, 1, 1).float(), labels)]


@pytest.fixture(params=[0, 1, 2])
def order(request):
    return torch.Generator().manual_seed(request.param)


def test_the_operation_that_matters_is_kept(order):
    """One entry of every edge: it alone costs accuracy when it goes, whatever its weight and the order."""
    space = NasBench201()
    draw = torch.Generator().manual_seed(7)
    columns = torch.randint(1, 5, (6,), generator=draw).tolist()
    entries = [("cell", row, column) for row, column in enumerate(columns)]
    weights = torch.full((6, 5), 0.24)
    for row, column in enumerate(columns):
        weights[row, column] = 0.04  # the smallest: by weight it would lose
    discretization = Discretization(space, Rigged(entries), {"cell": weights}, [], images(6), lr=0.1)
    genotype = discretization.run(order)
    assert genotype.ops == tuple(space.groups["cell"].ops[column] for column in columns)


def test_the_edges_that_matter_are_kept(order):
    """DARTS' cells have two edges a node: those without which accuracy falls, by what falls."""
    space = DartsSpace(nodes=3)
    group = space.group
    wanted = {2: (0, 1), 3: (1, 2), 4: (0, 3)}
    entries = [
        (kind, group.edges.index((source, node)), group.column("sep_conv_3x3"))
        for kind in space.groups
        for node, sources in wanted.items()
        for source in sources
    ]
    weights = {kind: torch.full(group.shape, 1 / 8) for kind in space.groups}
    genotype = Discretization(space, Rigged(entries), weights, [], images(len(entries)), lr=0.1).run(order)
    for _, cell in genotype:
        for node, sources in wanted.items():
            assert {(edge.op, edge.source) for edge in cell.into(node)} == {
                ("sep_conv_3x3", s) for s in sources
            }


class EitherEdge(nn.Module):
    """Knows the only class as long as one of two edges is there, with whatever operation."""

    def __init__(self, edges):
        super().__init__()
        self.edges = edges
        self.idle = nn.Parameter(torch.zeros(()))

    def forward(self, x, weights, active=None):
        known = any(float(weights[name][row].sum()) > 0 for name, row in self.edges)
        return torch.tensor([float(known), 0.5]).expand(len(x), 2) + self.idle


def test_edges_are_removed_node_by_node(order):
    """Either of two edges into different nodes will do; beside all others neither matters."""
    space = DartsSpace(nodes=3)
    either = [("normal", space.group.edges.index(edge)) for edge in ((2, 3), (3, 4))]
    weights = {kind: torch.full(space.group.shape, 1 / 8) for kind in space.groups}
    discretization = Discretization(space, EitherEdge(either), weights, [], images(1), lr=0.1)
    genotype = discretization.run(order)
    assert {(2, 3), (3, 4)} & {(edge.source, edge.target) for edge in genotype["normal"].edges}
    for name, matrix in space.one_hot(genotype).items():
        assert torch.equal(discretization.weights[name], matrix)


@pytest.mark.parametrize(("space", "times"), [(DartsSpace(nodes=3), 18 + 4), (NasBench201(), 6)])
def test_the_supernet_is_tuned_after_each_decision(space, times, order, monkeypatch):
    """One for each edge; where nodes have more than two edges to choose from, one for each of these nodes."""
    tuned = []
    monkeypatch.setattr(Discretization, "tune", lambda self: tuned.append(1))
    weights = {name: torch.full(group.shape, 1 / group.shape[1]) for name, group in space.groups.items()}
    Discretization(space, EitherEdge([]), weights, [], images(1), lr=0.1).run(order)
    assert len(tuned) == times


def test_none_is_never_kept(order):
    space = NasBench201()
    entries = [("cell", row, 0) for row in range(6)]
    discretization = Discretization(
        space, Rigged(entries), {"cell": torch.full((6, 5), 0.2)}, [], images(6), lr=0.1
    )
    assert "none" not in discretization.run(order).ops


def test_rows_become_discrete_one_by_one():
    """After an edge is decided its row is one-hot, and no other row has changed."""
    space = NasBench201()
    start = torch.full((6, 5), 0.2)
    discretization = Discretization(
        space, Rigged([("cell", 2, 3)] * 2), {"cell": start.clone()}, [], images(2), lr=0.1
    )
    assert discretization.keep_one("cell", 2) == 3
    expected = start.clone()
    expected[2] = torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0])
    assert torch.equal(discretization.weights["cell"], expected)


def test_tuning_trains_the_supernet_as_plain_sgd_does(generator):
    space = NasBench201()
    torch.manual_seed(0)
    supernet = space.supernet(in_channels=1, num_classes=3, channels=2, cells=1)
    torch.manual_seed(0)
    plain = space.supernet(in_channels=1, num_classes=3, channels=2, cells=1)
    weights = {"cell": torch.full((6, 5), 0.2)}
    train = [(torch.randn(4, 1, 8, 8, generator=generator), torch.arange(4) % 3) for _ in range(2)]
    Discretization(space, supernet, weights, train, [], lr=0.05).tune()
    buffers = [torch.zeros_like(w) for w in plain.parameters()]
    for x, y in train:
        loss = nn.functional.cross_entropy(plain(x, weights), y)
        slopes = torch.autograd.grad(loss, list(plain.parameters()))
        with torch.no_grad():
            for w, slope, buffer in zip(plain.parameters(), slopes, buffers, strict=True):
                buffer.mul_(0.9).add_(slope)
                w.sub_(0.05 * buffer)
    for mine, theirs in zip(supernet.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.fixture
def data_perturbation():
    return SearchData(Fake(shape=(1, 8, 8), num_classes=3, train_size=24, test_size=3, batch_size=4))


@pytest.mark.parametrize("kind", [Darts, PRDarts, Gdas, RandomWS])
@pytest.mark.parametrize("space", [NasBench201(), DartsSpace(nodes=1)], ids=["nasbench201", "darts"])
def test_works_with_any_strategy_on_any_space(kind, space, data_perturbation):
    supernet = space.supernet(in_channels=1, num_classes=3, channels=2, cells=1)
    strategy = kind(space, supernet, data_perturbation) if kind is RandomWS else kind(space, supernet)
    state = strategy.generator.get_state()
    before = supernet.head.weight.detach().clone()
    (genotype,) = Perturbation(valid_batches=1, tune_batches=1, seed=3)(strategy, data_perturbation)
    space.check(genotype)
    assert "none" not in genotype.ops
    assert not torch.equal(supernet.head.weight, before)  # tuned
    assert torch.equal(strategy.generator.get_state(), state)  # it draws nothing from the strategy's numbers


def test_a_sampling_strategy_starts_from_its_scores(data_perturbation):
    """And not from one sample, in which all but the sampled operations are worth nothing already."""
    space = NasBench201()
    strategy = Gdas(space, space.supernet(in_channels=1, num_classes=3, channels=2, cells=1))
    with torch.no_grad():
        strategy.arch["cell"].copy_(torch.randn(6, 5, generator=torch.Generator().manual_seed(1)))
    seen = []
    strategy.supernet.register_forward_pre_hook(lambda _, args: seen.append(args[1]["cell"].clone()))
    Perturbation(valid_batches=1, tune_batches=0)(strategy, data_perturbation)
    scores = strategy.scores()["cell"]
    assert int((seen[0] != scores).sum()) == 1  # one entry at zero: the first operation to be judged


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_untuned_selection_leaves_the_weights(data_perturbation, dtype):
    space = NasBench201()
    strategy = Darts(space, space.supernet(in_channels=1, num_classes=3, channels=2, cells=1)).to(dtype)
    before = {name: value.clone() for name, value in strategy.supernet.state_dict().items()}
    Perturbation(valid_batches=1, tune_batches=0)(strategy, data_perturbation)
    assert all(torch.equal(value, before[name]) for name, value in strategy.supernet.state_dict().items())
