"""PR-DARTS' regularizers against plain loops over named operations, and what a step computes."""

import itertools
import math

import pytest
import torch

from nas_lightning.errors import InputError
from nas_lightning.spaces import DartsSpace
from nas_lightning.spaces.darts import OPS
from nas_lightning.spaces.graph import CellGraph
from nas_lightning.strategies import PRDarts
from nas_lightning.strategies.one_shot.regularizers import group_sparsity, path_depth

LEARNED = {
    "darts": {"sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5"},
    "nasbench201": {"nor_conv_1x1", "nor_conv_3x3"},
}
PATHS = {"darts": [(1, 2), (2, 3), (3, 4), (4, 5)], "nasbench201": [(0, 1), (1, 2), (2, 3)]}
OPTIONS = list(itertools.product([False, True], [False, True], [0.0, 0.2]))


@pytest.fixture
def spaces(cell_space):
    return {"darts": DartsSpace(), "nasbench201": cell_space}


def named(matrix, group):
    """{((source, target), op): number}."""
    table = matrix.tolist()
    return {
        (edge, op): table[row][column]
        for row, edge in enumerate(group.edges)
        for column, op in enumerate(group.ops)
    }


def by_loops(beta, group, space, tau, lambdas, path_sum, pooling_group, threshold):
    """Equation 9 without its loss, for one cell, in plain numbers."""
    p = {key: 1 / (1 + math.exp(-(b - tau * math.log(0.1 / 1.1)))) for key, b in named(beta, group).items()}
    groups = {"skip": [], "nonskip": [], "pooling": []}
    for (_, op), probability in p.items():
        if op == "skip_connect":
            groups["skip"].append(probability)
        elif pooling_group and op.endswith("pool_3x3"):
            groups["pooling"].append(probability)
        else:
            groups["nonskip"].append(probability)
    total, path = 0.0, 1.0
    for part, values in groups.items():
        if values:
            excess = max(0.0, sum(values) / len(values) - threshold)
            total += (lambdas[0] if part == "skip" else lambdas[1]) * excess
    for edge in PATHS[space]:
        between = [p[edge, op] for op in LEARNED[space]]
        path *= sum(between) if path_sum else sum(between) / len(between)
    return total - lambdas[2] * path


@pytest.fixture
def strategy(spaces, supernet):
    def make(name, **settings):
        space = spaces[name]
        settings = {"tau_start": 0.8, "tau_end": 0.8} | settings
        found = PRDarts(space, supernet(space), **settings).double()
        draw = torch.Generator().manual_seed(5)
        for beta in found.arch_list:
            beta.data = 1.5 * torch.randn(beta.shape, generator=draw, dtype=torch.float64)
        return found

    return make


@pytest.mark.parametrize("space", ["darts", "nasbench201"])
@pytest.mark.parametrize(("path_sum", "pooling_group", "threshold"), OPTIONS)
def test_regularizer_and_its_gradient(strategy, spaces, space, path_sum, pooling_group, threshold):
    lambdas = (0.3, 0.2, 0.5)
    names = dict(zip(("lambda_skip", "lambda_nonskip", "lambda_path"), lambdas, strict=True))
    found = strategy(space, path_sum=path_sum, pooling_group=pooling_group, threshold=threshold, **names)

    def plain():
        options = (lambdas, path_sum, pooling_group, threshold)
        cells = [by_loops(found.arch[n], g, space, 0.8, *options) for n, g in spaces[space].groups.items()]
        return sum(cells) / len(cells)

    value = found.regularization()
    assert value.item() == pytest.approx(plain(), rel=1e-12)
    gradients = torch.autograd.grad(value, found.arch_list)
    step = 1e-5
    for beta, gradient in zip(found.arch_list, gradients, strict=True):
        numbers = beta.data.view(-1)
        for index in range(0, len(numbers), 3):
            start = float(numbers[index])
            numbers[index] = start + step
            above = plain()
            numbers[index] = start - step
            below = plain()
            numbers[index] = start
            assert float(gradient.view(-1)[index]) == pytest.approx((above - below) / (2 * step), abs=1e-9)


def test_the_path_is_that_of_each_space(spaces):
    """P is 1 on the path's learned operations and 0 elsewhere: depth 1; without any edge of it, 0."""
    for name, space in spaces.items():
        group = next(iter(space.groups.values()))
        p = torch.zeros(group.shape)
        for edge, op in itertools.product(PATHS[name], LEARNED[name]):
            p[group.edges.index(edge), group.column(op)] = 1.0
        assert float(path_depth(p, group)) == 1.0
        assert float(path_depth(p, group, literal_sum=True)) == len(LEARNED[name]) ** len(PATHS[name])
        for edge in PATHS[name]:
            broken = p.clone()
            broken[group.edges.index(edge)] = 0.0
            assert float(path_depth(broken, group)) == 0.0


@pytest.mark.parametrize("order", [OPS[::-1], OPS[3:] + OPS[:3]])
def test_the_order_of_the_operations_does_not_matter(order, generator):
    """The authors' code finds groups by column numbers; these follow their operations."""
    here, there = DartsSpace().group, DartsSpace(ops=order).group
    p = torch.rand(here.shape, generator=generator, dtype=torch.float64)
    moved = torch.stack([p[:, here.column(op)] for op in order], dim=1)
    for pooling_group in (False, True):
        mine, theirs = (group_sparsity(a, g, pooling_group) for a, g in ((p, here), (moved, there)))
        assert mine.keys() == theirs.keys()
        for part, value in mine.items():
            torch.testing.assert_close(theirs[part], value, rtol=1e-14, atol=0)
    for literal_sum in (False, True):
        torch.testing.assert_close(
            path_depth(moved, there, literal_sum), path_depth(p, here, literal_sum), rtol=1e-14, atol=0
        )


def test_a_high_threshold_leaves_the_path_only(strategy):
    found = strategy("darts", threshold=1.0, lambda_path=0.5)
    path = [path_depth(p, found.space.group) for p in found.probabilities().values()]
    assert found.regularization().item() == pytest.approx(-0.5 * sum(path).item() / 2, rel=1e-12)


def test_without_lambdas_only_the_loss_is_descended(strategy, generator):
    images = torch.randn(4, 1, 8, 8, generator=generator).double()
    batch = {"valid": (images, torch.arange(4) % 3)}

    def gradient(**lambdas):
        found = strategy("nasbench201", **lambdas)
        found.log_dict = lambda *args, **kwargs: None
        (mine,) = found.arch_gradients(batch)
        found = strategy("nasbench201", **lambdas)
        loss, _ = found.cross_entropy(batch["valid"], found.relax())
        return mine, torch.autograd.grad(loss, found.arch_list)[0]

    mine, plain = gradient(lambda_skip=0.0, lambda_nonskip=0.0, lambda_path=0.0)
    assert torch.equal(mine, plain)
    mine, plain = gradient()
    assert not torch.equal(mine, plain)


@pytest.mark.parametrize("active_ops", [1, 2, 4])
def test_only_so_many_operations_are_computed(cell_space, supernet, active_ops, monkeypatch, generator):
    """Counted in the modules themselves, edge by edge: also a gate that is closed costs nothing."""
    network = supernet(cell_space)
    found = PRDarts(cell_space, network, active_ops=active_ops, tau_start=1.0, tau_end=1.0)
    graphs = [module for module in network.modules() if isinstance(module, CellGraph)]
    calls = []
    for graph in graphs:
        for key, op in graph.ops.items():
            first = op[0] if isinstance(op, torch.nn.Sequential) else op
            first.register_forward_hook(lambda *_, key=key, graph=graph: calls.append((id(graph), key)))
    most = 0
    for _ in range(30):
        calls.clear()
        relaxed = found.relax()
        network(torch.randn(2, 1, 8, 8, generator=generator), relaxed.weights, relaxed.active)
        gates = named(relaxed.weights["cell"], cell_space.group)
        assert all((0 <= gate <= 1) for gate in gates.values())
        for edge in cell_space.group.edges:
            in_use = [op for op in cell_space.group.ops if gates[edge, op] > 0]
            assert len(in_use) <= active_ops
            most = max(most, len(in_use))
        expected = set()
        for graph in graphs:
            for items in graph.edge_ops:
                for item in items:
                    edge, op = cell_space.group.edges[item.row], cell_space.group.ops[item.column]
                    if gates[edge, op] > 0:
                        expected.add((id(graph), item.key))
        assert set(calls) == expected
        assert len(calls) == len(expected)  # none of them twice
    assert most == active_ops


def test_active_gates_are_those_sampled_largest(spaces, supernet):
    """Replays the generator: the kept gates are the largest of the row, their values unchanged."""
    space = spaces["darts"]
    found = PRDarts(space, supernet(space), tau_start=1.0, tau_end=1.0, seed=4)
    replay = PRDarts(space, found.supernet, tau_start=1.0, tau_end=1.0, seed=4)
    relaxed = found.relax()
    everything = PRDarts(space, found.supernet, tau_start=1.0, tau_end=1.0, seed=4, active_ops=8).relax()
    assert torch.equal(found.arch["normal"], replay.arch["normal"])
    for row, whole in zip(relaxed.weights["normal"], everything.weights["normal"], strict=True):
        kept = row[row > 0]
        assert sorted(kept.tolist()) == [gate for gate in sorted(whole.tolist())[-2:] if gate > 0]


def test_temperature_starts_and_ends_where_it_should(search, trainer):
    strategy, data = search(
        "pr_darts", "nasbench201", "strategy.sampler.tau_start=7", "strategy.sampler.tau_end=0.2"
    )
    taus = []
    own = strategy.relax

    def relax(noise=None):
        taus.append(strategy.parts.sampler.tau(strategy.epoch))
        return own(noise)

    strategy.relax = relax
    trainer(4, limit_train_batches=1).fit(strategy, data)
    assert taus == pytest.approx([tau for tau in (7, 7 - 6.8 / 3, 7 - 13.6 / 3, 0.2) for _ in range(2)])
    assert strategy.trainer.callback_metrics["tau"] == pytest.approx(0.2)


def test_scores_leave_none_out_and_rank_at_any_temperature(strategy):
    """At τ = 10 every probability is 1 in float32; the scores still tell the operations apart."""
    found = strategy("nasbench201", tau_start=10.0).float()
    with torch.no_grad():
        found.arch["cell"][:, 0] = 9.0  # none
        found.arch["cell"][:, 3] = 5.0
    ranked = found.scores()["cell"]
    assert ranked[:, 0].tolist() == [0.0] * 6
    assert found.derive()[0].ops == ("nor_conv_3x3",) * 6
    assert found.parts.sampler.tau(found.epoch) == 10.0
    assert float(found.probabilities()["cell"][:, 1:].detach().min()) > 1 - 1e-6
    assert torch.equal(found.scores()["cell"], ranked)
    assert found.derive()[0].ops == ("nor_conv_3x3",) * 6


def test_derived_cells_have_one_operation_a_predecessor(strategy):
    """Although the two best operations of a node stand on one edge."""
    found = strategy("darts")
    with torch.no_grad():
        for beta in found.arch_list:
            beta.copy_(torch.arange(beta.numel()).view(beta.shape).flip(0) / 50)
    for _, cell in found.derive()[0]:
        for node in range(2, 6):
            sources = [edge.source for edge in cell.into(node)]
            assert len(sources) == len(set(sources)) == 2


def test_logged_terms_are_those_of_the_loss(search, trainer):
    strategy, data = search("pr_darts", "nasbench201", "strategy.regularizer.sparsity.pooling_group=true")
    trainer(1).fit(strategy, data)
    logged = strategy.trainer.callback_metrics
    (p,), group = strategy.probabilities().values(), strategy.space.group
    table = named(p, group)
    for part, ops in {
        "skip": ["skip_connect"],
        "pooling": ["avg_pool_3x3"],
        "nonskip": ["none", "nor_conv_1x1", "nor_conv_3x3"],
    }.items():
        expected = sum(table[e, op] for e in group.edges for op in ops) / (6 * len(ops))
        assert float(logged[f"L_{part}/cell"]) == pytest.approx(expected, rel=1e-5)
    skips = [edge.op for edge in strategy.derive()[0]["cell"].edges].count("skip_connect")
    assert float(logged["skips/cell"]) == skips


@pytest.mark.parametrize(("active_ops", "limit"), [(0, "must be at least 1"), (6, "1 to 5 operations")])
def test_more_active_operations_than_there_are(cell_space, supernet, active_ops, limit):
    with pytest.raises(InputError, match=limit):
        PRDarts(cell_space, supernet(cell_space), active_ops=active_ops)


@pytest.mark.parametrize(
    ("start", "end", "limit"),
    [(0.1, 10.0, "tau_start of at least tau_end"), (1.0, 0.0, "`tau_end` must be greater than 0")],
)
def test_temperatures_that_do_not_fall(cell_space, supernet, start, end, limit):
    with pytest.raises(InputError, match=limit):
        PRDarts(cell_space, supernet(cell_space), tau_start=start, tau_end=end)


@pytest.mark.parametrize(("tau", "most"), [(10.0, 0.0), (1.0, 3.5e-5)])
def test_the_paper_s_first_temperature_leaves_fresh_gates_alone(tau, most, spaces, supernet):
    """In float32 P = Θ(β + τ ln 11) is 1 at τ = 10, and flat; λ as published."""
    space = spaces["darts"]
    lambdas = {"lambda_skip": 0.01, "lambda_nonskip": 0.005, "lambda_path": 0.005}
    found = PRDarts(space, supernet(space), tau_start=tau, tau_end=tau, **lambdas)
    gradients = torch.autograd.grad(found.regularization(), found.arch_list)
    largest = max(float(gradient.abs().max()) for gradient in gradients)
    assert largest == pytest.approx(most, abs=5e-7 * (most > 0))
