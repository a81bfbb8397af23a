"""Selection by perturbation finds the operations that matter, in supernets where it is known which do."""

import pytest
import torch
from torch import nn

from nas_lightning.data import Fake, SearchData
from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.strategies import Darts, Gdas, PRDarts, RandomWS
from nas_lightning.strategies.derivation import Discretization, Perturbation


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
def data():
    return SearchData(Fake(shape=(1, 8, 8), num_classes=3, train_size=24, test_size=3, batch_size=4))


@pytest.mark.parametrize("kind", [Darts, PRDarts, Gdas, RandomWS])
@pytest.mark.parametrize("space", [NasBench201(), DartsSpace(nodes=1)], ids=["nasbench201", "darts"])
def test_works_with_any_strategy_on_any_space(kind, space, data):
    supernet = space.supernet(in_channels=1, num_classes=3, channels=2, cells=1)
    strategy = kind(space, supernet, data) if kind is RandomWS else kind(space, supernet)
    state = strategy.generator.get_state()
    before = supernet.head.weight.detach().clone()
    (genotype,) = Perturbation(valid_batches=1, tune_batches=1, seed=3)(strategy, data)
    space.check(genotype)
    assert "none" not in genotype.ops
    assert not torch.equal(supernet.head.weight, before)  # tuned
    assert torch.equal(strategy.generator.get_state(), state)  # it draws nothing from the strategy's numbers


def test_a_sampling_strategy_starts_from_its_scores(data):
    """And not from one sample, in which all but the sampled operations are worth nothing already."""
    space = NasBench201()
    strategy = Gdas(space, space.supernet(in_channels=1, num_classes=3, channels=2, cells=1))
    with torch.no_grad():
        strategy.arch["cell"].copy_(torch.randn(6, 5, generator=torch.Generator().manual_seed(1)))
    seen = []
    strategy.supernet.register_forward_pre_hook(lambda _, args: seen.append(args[1]["cell"].clone()))
    Perturbation(valid_batches=1, tune_batches=0)(strategy, data)
    scores = strategy.scores()["cell"]
    assert int((seen[0] != scores).sum()) == 1  # one entry at zero: the first operation to be judged


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_untuned_selection_leaves_the_weights(data, dtype):
    space = NasBench201()
    strategy = Darts(space, space.supernet(in_channels=1, num_classes=3, channels=2, cells=1)).to(dtype)
    before = {name: value.clone() for name, value in strategy.supernet.state_dict().items()}
    Perturbation(valid_batches=1, tune_batches=0)(strategy, data)
    assert all(torch.equal(value, before[name]) for name, value in strategy.supernet.state_dict().items())
