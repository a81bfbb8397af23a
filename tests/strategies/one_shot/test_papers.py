"""The papers of one-shot search against their equations."""

import itertools
import math
import re
from collections import Counter

import pytest
import torch
from pytorch_lightning import Trainer
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from nas_lightning.errors import InputError
from nas_lightning.spaces import DartsSpace, Mlp
from nas_lightning.spaces.darts import OPS
from nas_lightning.spaces.graph import CellGraph
from nas_lightning.spaces.supernet import mixture
from nas_lightning.strategies import (
    ActivationSearch,
    Adam,
    BinaryGates,
    ComputedPathDepth,
    ComputedSparsity,
    Darts,
    Epoch,
    FairDarts,
    FirstOrder,
    Gaea,
    Gdas,
    Gumbel,
    HardConcrete,
    PathDepth,
    PCDarts,
    PRDarts,
    PRDartsPublicCode,
    RandomCandidates,
    RandomWS,
    SingleLevel,
    Sparsity,
    ZeroOne,
)
from nas_lightning.strategies.one_shot.arch_steps import ExponentiatedDescent, exponentiated_gradient
from nas_lightning.strategies.one_shot.connections import softmax_by_target
from nas_lightning.strategies.one_shot.regularizers import (
    computed_sparsity,
    group_sparsity,
    path_depth,
    zero_one_loss,
)
from nas_lightning.strategies.one_shot.samplers import is_skip

# PR-DARTS' regularizers against plain loops over named operations, and what a step computes.


LEARNED = {
    "darts": {"sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5"},
    "nasbench201": {"nor_conv_1x1", "nor_conv_3x3"},
}
PATHS = {"darts": [(1, 2), (2, 3), (3, 4), (4, 5)], "nasbench201": [(0, 1), (1, 2), (2, 3)]}


TERMS = {
    "lambda_skip": Sparsity,
    "lambda_nonskip": Sparsity,
    "lambda_path": PathDepth,
}


def pr_darts(space, supernet, seed=0, **settings):
    """PR-DARTS with these settings of its parts."""
    of_terms = {
        kind: {k: v for k, v in settings.items() if TERMS.get(k) is kind} for kind in (Sparsity, PathDepth)
    }
    sampler = HardConcrete(**{key: value for key, value in settings.items() if key not in TERMS})
    terms = [kind(**chosen) for kind, chosen in of_terms.items()]
    return PRDarts(space, supernet, sampler=sampler, regularizer=terms, seed=seed)


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


def gate_probabilities(beta, group, tau):
    return {
        key: 1 / (1 + math.exp(-(b - tau * math.log(0.1 / 1.1)))) for key, b in named(beta, group).items()
    }


def by_loops(beta, group, space, tau, lambdas):
    """Equation 9 without its loss, for one cell, in plain numbers."""
    p = gate_probabilities(beta, group, tau)
    skips = [probability for (_, op), probability in p.items() if op == "skip_connect"]
    others = [probability for (_, op), probability in p.items() if op != "skip_connect"]
    path = 1.0
    for edge in PATHS[space]:
        path *= sum(p[edge, op] for op in LEARNED[space])
    sparsity = lambdas[0] * sum(skips) / len(skips) + lambdas[1] * sum(others) / len(others)
    return sparsity - lambdas[2] * path


@pytest.fixture
def strategy(spaces, supernet):
    def make(name, **settings):
        space = spaces[name]
        found = pr_darts(space, supernet(space), **{"tau_start": 0.8, "tau_end": 0.8} | settings).double()
        draw = torch.Generator().manual_seed(5)
        for beta in found.arch_list:
            beta.data = 1.5 * torch.randn(beta.shape, generator=draw, dtype=torch.float64)
        return found

    return make


@pytest.mark.parametrize("space", ["darts", "nasbench201"])
def test_regularizer_and_its_gradient(strategy, spaces, space):
    lambdas = (0.3, 0.2, 0.5)
    names = dict(zip(("lambda_skip", "lambda_nonskip", "lambda_path"), lambdas, strict=True))
    found = strategy(space, **names)

    def plain():
        groups = spaces[space].groups.items()
        cells = [by_loops(found.arch[name], group, space, 0.8, lambdas) for name, group in groups]
        return sum(cells) / len(cells)

    value = found.regularization(found.relax())
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
    """P is 1 on the path's learned operations and 0 elsewhere: 4⁴ or 2³; without any edge of it, 0."""
    for name, space in spaces.items():
        group = next(iter(space.groups.values()))
        p = torch.zeros(group.shape)
        for edge, op in itertools.product(PATHS[name], LEARNED[name]):
            p[group.edges.index(edge), group.column(op)] = 1.0
        assert float(path_depth(p, group)) == len(LEARNED[name]) ** len(PATHS[name])
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
    for parts in (group_sparsity, computed_sparsity):
        mine, theirs = (parts(a, g) for a, g in ((p, here), (moved, there)))
        assert mine.keys() == theirs.keys()
        for part, value in mine.items():
            torch.testing.assert_close(theirs[part], value, rtol=1e-14, atol=0)
    torch.testing.assert_close(path_depth(moved, there), path_depth(p, here), rtol=1e-14, atol=0)


def test_without_lambdas_only_the_loss_is_descended(strategy, generator):
    images = torch.randn(4, 1, 8, 8, generator=generator).double()
    batch = {"valid": (images, torch.arange(4) % 3)}

    def gradient(**lambdas):
        found = strategy("nasbench201", **lambdas)
        found.log_dict = lambda *args, **kwargs: None
        (mine,) = found.arch_gradients(batch)
        found = strategy("nasbench201", **lambdas)
        loss, _ = found.loss_and_logits(batch["valid"], found.relax())
        return mine, torch.autograd.grad(loss, found.arch_list)[0]

    mine, plain = gradient(lambda_skip=0.0, lambda_nonskip=0.0, lambda_path=0.0)
    assert torch.equal(mine, plain)
    mine, plain = gradient()
    assert not torch.equal(mine, plain)


@pytest.mark.parametrize("active_ops", [1, 2, 4])
def test_only_so_many_operations_are_computed(cell_space, supernet, active_ops, monkeypatch, generator):
    """Counted in the modules themselves, edge by edge: also a gate that is closed costs nothing."""
    network = supernet(cell_space)
    found = pr_darts(cell_space, network, active_ops=active_ops, tau_start=1.0, tau_end=1.0)
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
    found = pr_darts(space, supernet(space), tau_start=1.0, tau_end=1.0, seed=4)
    replay = pr_darts(space, found.supernet, tau_start=1.0, tau_end=1.0, seed=4)
    relaxed = found.relax()
    everything = pr_darts(space, found.supernet, tau_start=1.0, tau_end=1.0, seed=4, active_ops=8).relax()
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
        taus.append(strategy.sampler.tau(strategy.epoch))
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
    assert found.sampler.tau(found.epoch) == 10.0
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
    strategy, data = search("pr_darts", "nasbench201")
    trainer(1).fit(strategy, data)
    logged = strategy.trainer.callback_metrics
    (p,), group = strategy.probabilities().values(), strategy.space.group
    table = named(p, group)
    for part, ops in {
        "skip": ["skip_connect"],
        "nonskip": ["none", "avg_pool_3x3", "nor_conv_1x1", "nor_conv_3x3"],
    }.items():
        expected = sum(table[e, op] for e in group.edges for op in ops) / (6 * len(ops))
        assert float(logged[f"L_{part}/cell"]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("tau", "p"), [(10.0, 1.0), (1.0, 11 / 12)])
def test_the_paper_s_first_temperature_leaves_fresh_gates_alone(tau, p, spaces, supernet):
    """In float32 P = Θ(β + τ ln 11) is 1 at τ = 10, and flat; λ as published.

    The largest slope is the path's, λ₃ (4P)³ P(1 − P) of one of two cells.
    """
    space = spaces["darts"]
    lambdas = {"lambda_skip": 0.01, "lambda_nonskip": 0.005, "lambda_path": 0.005}
    found = pr_darts(space, supernet(space), tau_start=tau, tau_end=tau, **lambdas)
    gradients = torch.autograd.grad(found.regularization(found.relax()), found.arch_list)
    largest = max(float(gradient.abs().max()) for gradient in gradients)
    assert largest == pytest.approx(0.005 / 2 * (4 * p) ** 3 * p * (1 - p), rel=0.01)


# PR-DARTS' public code: every formula by loops over named operations.


def public_code_by_loops(cells, space, tau, lambdas, threshold):
    """The regularizer for [(beta, active, group), …] in plain numbers."""
    means, paths = {"skip": [], "pooling": [], "other": []}, []
    for beta, active, group in cells:
        computed = [key for key, chosen in named(active, group).items() if chosen]
        p = gate_probabilities(beta, group, tau)
        parts = {"skip": [], "pooling": [], "other": []}
        for edge, op in computed:
            part = "skip" if op == "skip_connect" else "pooling" if "_pool_" in op else "other"
            parts[part].append(p[edge, op])
        for part, values in parts.items():
            means[part].append(sum(values) / len(values) if values else 0.0)
        neighbors = []
        for edge in PATHS[space]:
            between = [p[edge, op] for op in LEARNED[space] if (edge, op) in computed]
            if between:
                neighbors.append(sum(between) / len(between))
        paths.append(math.prod(neighbors) if neighbors else 0.0)
    above = {part: max(0.0, sum(values) / len(values) - threshold) for part, values in means.items()}
    sparsity = lambdas[0] * above["skip"] + lambdas[1] * (above["pooling"] + above["other"])
    return sparsity - lambdas[2] * sum(paths) / len(paths)


@pytest.mark.parametrize("space", ["darts", "nasbench201"])
@pytest.mark.parametrize("threshold", [0.2, 0.9])
def test_public_code_regularizer_and_its_gradient(spaces, supernet, space, threshold, generator):
    lambdas, groups = (0.3, 0.2, 0.5), spaces[space].groups
    terms = [ComputedSparsity(*lambdas[:2], threshold), ComputedPathDepth(lambdas[2])]
    sampler = BinaryGates(tau_start=0.8, tau_end=0.8)
    found = PRDartsPublicCode(spaces[space], supernet(spaces[space]), sampler=sampler, regularizer=terms)
    found.double()
    for beta in found.arch_list:
        beta.data = torch.randn(beta.shape, generator=generator, dtype=torch.float64) - 1
    for _ in range(5):
        relaxed = found.relax()
        if space == "darts":  # a neighbor without a parameterized operation
            columns = [groups["normal"].column(op) for op in LEARNED["darts"]]
            relaxed.active["normal"][groups["normal"].edges.index((2, 3)), columns] = False

        def plain(relaxed=relaxed):
            cells = [(found.arch[name], relaxed.active[name], group) for name, group in groups.items()]
            return public_code_by_loops(cells, space, 0.8, lambdas, threshold)

        value = found.regularization(relaxed)
        assert value.item() == pytest.approx(plain(), rel=1e-12)
        gradients = torch.autograd.grad(value, found.arch_list)
        for beta, gradient in zip(found.arch_list, gradients, strict=True):
            numbers = beta.data.view(-1)
            for index in range(0, len(numbers), 3):
                start, step = float(numbers[index]), 1e-5
                numbers[index] = start + step
                above = plain()
                numbers[index] = start - step
                below = plain()
                numbers[index] = start
                assert float(gradient.view(-1)[index]) == pytest.approx(
                    (above - below) / (2 * step), abs=1e-9
                )


def test_public_code_path_without_any_computed_convolution_is_zero(spaces):
    group = spaces["nasbench201"].group
    p = torch.zeros(group.shape)
    p[:, group.column("skip_connect")] = 0.9
    assert float(ComputedPathDepth(1.0).term({}, {"cell": p}, Epoch(0, 2), {"cell": group})) == 0.0


def test_binary_gates_are_chosen_and_learn_as_in_the_public_code(spaces, generator):
    group, tau, epoch = spaces["darts"].group, 0.7, Epoch(0, 2)
    sampler = BinaryGates(tau_start=tau, tau_end=tau)
    withheld_and_chosen = 0
    for _ in range(20):
        noise = [torch.rand(group.shape, generator=generator, dtype=torch.float64) for _ in range(3)]
        beta = torch.randn(group.shape, generator=generator, dtype=torch.float64).requires_grad_()
        weights = sampler.weights(beta, noise, epoch, group)
        slopes = torch.rand(group.shape, generator=generator, dtype=torch.float64)
        (gradient,) = torch.autograd.grad((weights * slopes).sum(), beta)
        values, sampled = beta.tolist(), weights.tolist()
        for row in range(group.shape[0]):
            ranking = []
            for column in range(group.shape[1]):
                u, b = float(noise[0][row, column]), values[row][column]
                concrete = 1 / (1 + math.exp(-(math.log(u / (1 - u)) + b) / tau))
                gate = min(1.0, max(0.0, -0.1 + 1.2 * concrete))
                withheld = float(noise[2][row, column]) < 0.4
                slope = 1.2 * concrete * (1 - concrete) / tau if 0 < gate < 1 else 0.0
                ranking.append((gate - withheld, -float(noise[1][row, column]), column, slope, withheld))
            ranking.sort(reverse=True)
            for place, (_, _, column, slope, withheld) in enumerate(ranking):
                chosen = place < 2
                withheld_and_chosen += chosen and withheld
                assert sampled[row][column] == chosen
                expected = slope * float(slopes[row, column]) if chosen else 0.0
                assert float(gradient[row, column]) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert 0 < withheld_and_chosen < 20 * group.shape[0]  # only where fewer than two others have a gate


def test_public_code_derives_from_the_softmax_of_the_parameters(spaces, supernet, generator):
    """Softmax is relative within an edge, unlike the probabilities of gates."""
    space = spaces["darts"]
    found, gates = (kind(space, supernet(space)) for kind in (PRDartsPublicCode, PRDarts))
    for search in (found, gates):
        for beta in search.arch_list:
            beta.data.fill_(-1.0)
            beta.data[0] = 5.0  # all operations of an edge: a share of 1/8 each
            beta.data[1, 1], beta.data[2, 2] = 1.0, 2.0
    for (_, cell), (_, other) in zip(found.derive()[0], gates.derive()[0], strict=True):
        column = space.group.ops
        assert (column[1], 1) in {(edge.op, edge.source) for edge in cell.into(2)}
        assert {edge.source for edge in other.into(2)} == {0, 1}
    shares = torch.softmax(found.arch["normal"].detach(), dim=1)
    shares[:, space.group.column("none")] = 0
    torch.testing.assert_close(found.scores()["normal"], shares)


def test_public_code_settings(spaces, supernet):
    found = PRDartsPublicCode(spaces["darts"], supernet(spaces["darts"]))
    found.trainer = Trainer(max_epochs=3, logger=False, enable_checkpointing=False)
    weights, arch = found.configure_optimizers()
    assert (weights.defaults["nesterov"], weights.defaults["weight_decay"]) == (True, 5e-4)
    adam = arch.defaults
    assert (adam["lr"], adam["betas"], adam["weight_decay"]) == (3e-4, (0.5, 0.999), 1e-3)
    assert [found.sampler.tau(Epoch(number, 3)) for number in range(3)] == pytest.approx([1.0, 0.55, 0.1])


# GDAS computes one path a step, and every parameter of a row learns from it.


def hooked(network):
    """The (cell, key) of every operation that a forward pass computes."""
    calls = []
    for graph in network.modules():
        if isinstance(graph, CellGraph):
            for key, op in graph.ops.items():
                first = op[0] if isinstance(op, torch.nn.Sequential) else op
                first.register_forward_hook(lambda *_, key=key, graph=graph: calls.append((id(graph), key)))
    return calls


def test_one_operation_an_edge_is_computed(cell_space, supernet, generator):
    network = supernet(cell_space)
    calls, gdas = hooked(network), Gdas(cell_space, network)
    graphs = [module for module in network.modules() if isinstance(module, CellGraph)]
    for _ in range(20):
        calls.clear()
        relaxed = gdas.relax()
        assert relaxed.active["cell"].sum(dim=1).tolist() == [1] * 6
        network(torch.randn(2, 1, 8, 8, generator=generator), relaxed.weights, relaxed.active)
        computed = relaxed.active["cell"][:, 1:].sum()  # the first column is `none`
        for graph in graphs:
            of_graph = [key for owner, key in calls if owner == id(graph)]
            keys = {
                item.key
                for items in graph.edge_ops
                for item in items
                if relaxed.active["cell"][item.row][item.column]
            }
            assert sorted(of_graph) == sorted(keys)  # what edges share is computed once
            assert len(of_graph) <= int(computed)


def test_gradient_reaches_every_parameter_of_a_row(cell_space, supernet, generator):
    """∂L/∂β_k = Σ_o (∂L/∂w_o) s_o (δ_ok − s_k)/τ with s the soft sample; ∂L/∂w_o = 0 unless o is computed."""
    gdas = Gdas(cell_space, supernet(cell_space), sampler=Gumbel(2.0, 2.0)).double()
    replay = torch.Generator()
    replay.set_state(gdas.generator.get_state())
    relaxed = gdas.relax()
    weights = {"cell": relaxed.weights["cell"].detach().requires_grad_()}
    x, y = torch.randn(4, 1, 8, 8, generator=generator).double(), torch.arange(4) % 3
    loss = F.cross_entropy(gdas.supernet(x, relaxed.weights, relaxed.active), y)
    (found,) = torch.autograd.grad(loss, gdas.arch_list)
    outer = torch.autograd.grad(
        F.cross_entropy(gdas.supernet(x, weights, relaxed.active), y), weights["cell"]
    )[0]
    u = torch.rand(6, 5, generator=replay, dtype=torch.float64)
    soft = torch.softmax((gdas.arch["cell"].detach() - torch.log(-torch.log(u))) / 2.0, dim=1)
    assert torch.equal(soft.argmax(dim=1), relaxed.active["cell"].int().argmax(dim=1))
    expected = (outer * soft - soft * (outer * soft).sum(dim=1, keepdim=True)) / 2.0
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-14)
    learns = relaxed.active["cell"][:, 0].logical_not()  # `none` computes nothing, so nothing follows from it
    assert bool((found[learns] != 0).all(dim=1).any())
    assert bool((outer[~relaxed.active["cell"]] == 0).all())


# FairDARTS' independent weights and the loss that pulls them apart.


@pytest.fixture
def fair(darts_space, supernet):
    found = FairDarts(darts_space, supernet(darts_space), regularizer=ZeroOne(3.0)).double()
    draw = torch.Generator().manual_seed(2)
    for alpha in found.arch_list:
        alpha.data = 2 * torch.randn(alpha.shape, generator=draw, dtype=torch.float64)
    return found


def test_zero_one_loss():
    assert zero_one_loss(torch.tensor([0.0, 1.0, 1.0])).item() == -0.25
    assert zero_one_loss(torch.tensor([0.5, 0.5])).item() == 0.0
    assert zero_one_loss(torch.tensor([0.2, 0.9])).item() == pytest.approx(-(0.09 + 0.16) / 2)


def test_regularizer_and_gradient_in_plain_numbers(fair):
    """∂/∂α of −λ/N Σ (σ − ½)² is −2λ/N (σ − ½) σ (1 − σ), over all weights of both cells."""
    alphas = torch.cat([alpha.detach().flatten() for alpha in fair.arch.values()])
    sigma = 1 / (1 + torch.exp(-alphas))
    value = fair.regularization(fair.relax())
    assert value.item() == pytest.approx(-3.0 * float(((sigma - 0.5) ** 2).mean()), rel=1e-12)
    found = torch.cat([g.flatten() for g in torch.autograd.grad(value, fair.arch_list)])
    expected = -2 * 3.0 / len(sigma) * (sigma - 0.5) * sigma * (1 - sigma)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-15)


def test_weights_are_independent(fair):
    before = fair.relax().weights["normal"].detach()
    with torch.no_grad():
        fair.arch["normal"][1, 4] += 1.0
    changed = fair.relax().weights["normal"].detach() != before
    assert changed.nonzero().tolist() == [[1, 4]]


def test_none_is_not_derived(fair, cell_space, supernet):
    for name, matrix in fair.scores().items():
        none = fair.space.groups[name].column("none")
        assert matrix[:, none].tolist() == [0.0] * len(matrix)
        kept = [column for column in range(matrix.shape[1]) if column != none]
        assert torch.equal(matrix[:, kept], torch.sigmoid(fair.arch[name].detach())[:, kept])
    other = FairDarts(cell_space, supernet(cell_space))
    with torch.no_grad():
        other.arch["cell"][:, 0] = 9.0
    assert "none" not in other.derive()[0].ops


def test_the_loss_pulls_the_weights_apart(search, trainer):
    """The stronger it is, the farther the weights are from ½ after the same search."""
    distance = []
    for weight in (0.0, 1000.0):
        fair, data = search(
            "fair_darts",
            "nasbench201",
            f"strategy.regularizer.zero_one.weight={weight}",
            "strategy.arch_lr=0.05",
        )
        trainer(2).fit(fair, data)
        distance.append(float((fair.relax().weights["cell"].detach() - 0.5).abs().mean()))
    assert distance[1] > 1.5 * distance[0]


# GAEA's exponentiated gradient, and its single-level search.


def test_update_is_its_formula(generator):
    alpha = torch.rand(4, 5, generator=generator, dtype=torch.float64)
    alpha /= alpha.sum(dim=1, keepdim=True)
    gradient = torch.randn(4, 5, generator=generator, dtype=torch.float64)
    found = exponentiated_gradient(alpha, gradient, 0.7)
    for row, slopes, result in zip(alpha.tolist(), gradient.tolist(), found.tolist(), strict=True):
        powers = [a * math.exp(-0.7 * g) for a, g in zip(row, slopes, strict=True)]
        assert result == pytest.approx([p / sum(powers) for p in powers], rel=1e-12)


@pytest.mark.parametrize("scale", [1e3, 1e8, 1e30])
def test_exponentiated_gradient_stays_on_the_simplex(generator, scale):
    alpha = torch.nn.Parameter(torch.full((50, 5), 0.2))
    optimizer = ExponentiatedDescent([alpha], lr=0.1)
    for _ in range(30):
        alpha.grad = scale * torch.randn(50, 5, generator=generator)
        optimizer.step()
        assert bool(torch.isfinite(alpha).all())
        assert float(alpha.detach().min()) >= 0
        torch.testing.assert_close(alpha.detach().sum(dim=1), torch.ones(50))


def test_operations_without_gradient_difference_keep_their_ratio():
    """Multiplicative: the ratio of two operations changes by exp(−η (g₁ − g₂)) alone."""
    alpha = torch.tensor([[0.1, 0.3, 0.6]], dtype=torch.float64)
    found = exponentiated_gradient(alpha, torch.tensor([[2.0, 2.0, -1.0]], dtype=torch.float64), 0.5)[0]
    assert float(found[1] / found[0]) == pytest.approx(3.0, rel=1e-12)
    assert float(found[2] / found[1]) == pytest.approx(2.0 * math.exp(0.5 * 3), rel=1e-12)


def counted(gaea):
    calls = []
    gaea.supernet.register_forward_hook(lambda *_: calls.append(1))
    return calls


@pytest.mark.parametrize("single_level", [True, False])
def test_a_single_level_is_one_pass(cell_space, supernet, data, trainer, single_level):
    step = SingleLevel() if single_level else FirstOrder()
    gaea = Gaea(cell_space, supernet(cell_space), arch_step=step)
    calls = counted(gaea)
    head = gaea.supernet.head.weight.detach().clone()
    fit = trainer(1)
    fit.fit(gaea, data(train_fraction=1.0))
    assert fit.global_step == 8
    assert len(calls) == (8 if single_level else 16)
    assert float((gaea.arch["cell"] - 0.2).detach().abs().max()) > 1e-4
    assert not torch.equal(gaea.supernet.head.weight, head)
    torch.testing.assert_close(gaea.arch["cell"].detach().sum(dim=1), torch.ones(6))
    assert ("valid_loss" in fit.callback_metrics) == (not single_level)


def test_a_single_level_step_against_a_plain_one(cell_space, supernet, data, trainer):
    """Both descend the same loss at the same point; without momentum before the first step."""
    gaea = Gaea(
        cell_space, supernet(cell_space), arch_step=SingleLevel(), lr=0.3, clip=0.4, weight_decay=0.01
    )
    search = data(train_fraction=1.0)
    x, y = next(iter(search.train_dataloader()))["train"]
    plain = supernet(cell_space).double()
    alpha = torch.full((6, 5), 1 / 5).double().requires_grad_()
    loss = F.cross_entropy(plain(x.double(), {"cell": alpha}), y)
    slope, *slopes = torch.autograd.grad(loss, [alpha, *plain.parameters()])
    norm = torch.cat([s.flatten() for s in slopes]).norm()
    assert float(norm) > 0.4
    trainer(1, precision="64-true", limit_train_batches=1).fit(gaea, search)
    powers = alpha.detach() * torch.exp(-0.1 * slope)
    torch.testing.assert_close(
        gaea.arch["cell"].data, powers / powers.sum(dim=1, keepdim=True), rtol=1e-9, atol=1e-12
    )
    for mine, start, s in zip(gaea.weight_list, plain.parameters(), slopes, strict=True):
        expected = start - 0.3 * (s * 0.4 / (norm + 1e-6) + 0.01 * start)
        torch.testing.assert_close(mine.data, expected.data, rtol=1e-9, atol=1e-10)


def test_warm_up_before_a_single_level(cell_space, supernet, data, trainer):
    gaea = Gaea(cell_space, supernet(cell_space), arch_step=SingleLevel(), warmup_epochs=1)
    trainer(1).fit(gaea, data())
    assert gaea.arch["cell"].tolist() == torch.full((6, 5), 1 / 5).tolist()


def test_gaea_rejects_adam(search):
    with pytest.raises(
        InputError, match="`arch_optimizer` must be ExponentiatedGradient, because the parameters of Simplex"
    ):
        search("gaea", "nasbench201", "arch_optimizer=adam")


# PC-DARTS' weights are a product of two softmaxes, which also weighs the channels that go round.


@pytest.fixture(params=["cell_space", "darts_space"])
def pc_darts(request, supernet):
    space = request.getfixturevalue(request.param)
    found = PCDarts(space, supernet(space, channels=4, partial=4)).double()
    draw = torch.Generator().manual_seed(2)
    for parameter in found.arch_list:
        parameter.data = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
    return found


def test_weights_are_two_plain_softmaxes(pc_darts):
    for name, group in pc_darts.space.groups.items():
        alpha, beta = pc_darts.arch[name].tolist(), pc_darts.arch[name + "_edges"].tolist()
        weights = pc_darts.relax().weights[name]
        for row, (_, target) in enumerate(group.edges):
            edges = sum(math.exp(b) for b, (_, t) in zip(beta, group.edges, strict=True) if t == target)
            ops = sum(math.exp(a) for a in alpha[row])
            for column in range(len(group.ops)):
                expected = math.exp(beta[row]) / edges * math.exp(alpha[row][column]) / ops
                assert weights[row, column].item() == pytest.approx(expected, rel=1e-12)


def test_the_edges_into_a_node_sum_to_one(pc_darts):
    for name, group in pc_darts.space.groups.items():
        total = {}
        for (_, target), row in zip(group.edges, pc_darts.scores()[name], strict=True):
            total[target] = total.get(target, 0.0) + float(row.sum())
        assert list(total.values()) == pytest.approx([1.0] * len(total), rel=1e-12)


def test_softmax_by_target_differentiates(darts_space):
    values = torch.randn(5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: softmax_by_target(v, darts_space.group), values)
    extreme = torch.tensor([1e3, -1e3, 0.0, 1e3, 1e3], dtype=torch.float64)
    found = softmax_by_target(extreme, darts_space.group).tolist()
    assert found == pytest.approx([1.0, 0.0, 0.0, 0.5, 0.5], abs=1e-12)


def test_bypassed_channels_have_edge_weights(cell_space, supernet, generator):
    """The cell's three quarters without operations: Σ_i β̂_ij x_i, node by node in a plain loop."""
    pc_darts = PCDarts(cell_space, supernet(cell_space, channels=4, partial=4)).double()
    graph = pc_darts.supernet.backbone.stages[0][0].graph
    x = torch.randn(2, 4, 6, 6, generator=generator).double()
    weights = pc_darts.relax().weights["cell"].detach()
    nodes = graph([x], mixture(weights))
    group = cell_space.groups["cell"]
    for target in range(1, 4):
        expected = sum(
            weights[row].sum() * nodes[source][:, 1:]
            for row, (source, t) in enumerate(group.edges)
            if t == target
        )
        # the channel shuffle puts channel c of part p at c · 4 + p: with one channel a part, in order
        torch.testing.assert_close(nodes[target][:, 1:], expected, rtol=1e-12, atol=1e-12)


def test_edge_weights_decide_which_edges_stay(darts_space, supernet):
    pc_darts = PCDarts(darts_space, supernet(darts_space, channels=4, partial=4))
    with torch.no_grad():
        for name, group in darts_space.groups.items():
            pc_darts.arch[name].zero_()
            pc_darts.arch[name][:, group.column("sep_conv_3x3")] = 1.0
            pc_darts.arch[name + "_edges"].copy_(torch.tensor([0.0, 0.0, -5.0, 1.0, 2.0]))
    for _, cell in pc_darts.derive()[0]:
        assert [edge.source for edge in cell.into(3)] == [1, 2]
        assert {edge.op for edge in cell.edges} == {"sep_conv_3x3"}


def test_edge_weights_learn(search, trainer):
    pc_darts, data = search("pc_darts", "nasbench201")
    start = pc_darts.arch["cell_edges"].detach().clone()
    trainer(1).fit(pc_darts, data)
    moved = (pc_darts.arch["cell_edges"].detach() - start).abs()
    assert float(moved[1:].min()) > 1e-5  # the first is the only edge into its node


def test_partial_must_divide_channels(cell_space, supernet):
    with pytest.raises(InputError, match="`partial` must divide the"):
        supernet(cell_space, channels=6, partial=4)


# Random search with shared weights: uniform paths, and the best of its candidates by brute force.


@pytest.fixture
def fitted(cell_space, supernet, data, trainer):
    search = data()
    strategy = RandomWS(
        *(cell_space, supernet(cell_space), search), selection=RandomCandidates(30, valid_batches=3), seed=4
    )
    trainer(2).fit(strategy, search)
    return strategy


def test_paths_are_uniform_and_binary(cell_space, supernet, data):
    strategy = RandomWS(cell_space, supernet(cell_space), data())
    draws, counts = 3000, torch.zeros(6, 5)
    pairs = Counter()
    for _ in range(draws):
        relaxed = strategy.relax()
        assert relaxed.active is None
        path = relaxed.weights["cell"]
        assert path.sum(dim=1).tolist() == [1.0] * 6
        counts += path
        ops = path.argmax(dim=1).tolist()
        pairs[ops[0], ops[5]] += 1
    chi_square = ((counts - draws / 5) ** 2 / (draws / 5)).sum(dim=1)
    assert float(chi_square.max()) < 25.5  # 4 degrees of freedom, p = 4·10⁻⁵
    assert sum((pairs[a, b] - draws / 25) ** 2 / (draws / 25) for a in range(5) for b in range(5)) < 64  # 24


def test_only_the_path_is_trained(cell_space, supernet, data, trainer):
    strategy = RandomWS(cell_space, supernet(cell_space), data(), weight_decay=0.0)
    before = {name: w.detach().clone() for name, w in strategy.supernet.named_parameters()}
    drawn = []
    own = strategy.relax
    strategy.relax = lambda noise=None: drawn.append(own(noise)) or drawn[-1]
    trainer(1, limit_train_batches=1).fit(strategy, data())
    (path,) = [relaxed.weights["cell"] for relaxed in drawn]
    group = cell_space.groups["cell"]
    for name, weight in strategy.supernet.named_parameters():
        found = re.search(r"\.ops\.(\d)_(\d)_(\w+)\.", name)
        if found is not None:
            row = group.edges.index((int(found[1]), int(found[2])))
            trained = bool(path[row, group.column(found[3])])
            assert trained or torch.equal(weight, before[name]), name
    assert not torch.equal(strategy.supernet.head.weight, before["head.weight"])


def test_derived_is_the_best_candidate_by_brute_force(fitted, cell_space):
    draw = torch.Generator().manual_seed(1_000_003 * 4 + fitted.trainer.global_step)
    candidates = {cell_space.sample(draw) for _ in range(30)}
    batches = fitted.data.valid_batches(3)

    @torch.no_grad()
    def loss(genotype):
        weights = torch.zeros(6, 5)
        for op, source, target in genotype["cell"].edges:
            group = cell_space.groups["cell"]
            weights[group.edges.index((source, target)), group.ops.index(op)] = 1.0
        everything = torch.ones(6, 5, dtype=torch.bool)
        found = [
            F.cross_entropy(fitted.supernet(x, {"cell": weights}, {"cell": everything}), y)
            for x, y in batches
        ]
        return float(torch.stack(found).mean())

    losses = {genotype: loss(genotype) for genotype in candidates}
    (best,) = fitted.derive()
    assert losses[best] == pytest.approx(min(losses.values()), abs=1e-6)
    assert sorted(losses.values())[0] < sorted(losses.values())[1] - 1e-6  # so that there is one best


def test_deriving_is_a_function_of_weights_and_step(fitted, cell_space, data, trainer):
    """Neither how often it was asked nor what the generator drew in between matters."""
    first = fitted.derive()
    state = fitted.generator.get_state()
    fitted.selection_stage._found = None
    for _ in range(10):
        fitted.relax()
    assert fitted.derive() == first
    fitted.generator.set_state(state)
    fitted.selection_stage._found = None
    assert fitted.derive() == first
    assert torch.equal(fitted.generator.get_state(), state)  # and asking draws nothing from it


def test_other_weights_are_judged_anew(fitted, trainer, data):
    """A result that is kept holds for its step only."""
    _, before = fitted.best()
    with torch.no_grad():
        for weight in fitted.weight_list:
            weight.normal_(generator=torch.Generator().manual_seed(0))
    assert fitted.best()[1] is before  # the same step
    trainer(1).fit(fitted, data())
    assert fitted.best()[1] != before


def test_logged_metrics_are_those_of_the_best_candidate(fitted):
    """The metric that a sweep maximizes is the accuracy of what is derived."""
    logged, judged = fitted.trainer.callback_metrics, fitted.best()[1]
    assert float(logged["valid_accuracy"]) == pytest.approx(judged.accuracy)
    assert float(logged["valid_loss"]) == pytest.approx(judged.loss)


def test_data_with_one_side_are_rejected(cell_space, supernet, trainer, data):
    strategy = RandomWS(cell_space, supernet(cell_space), data())
    one_side = DataLoader(
        TensorDataset(torch.zeros(8, 1, 8, 8), torch.zeros(8, dtype=torch.long)), batch_size=4
    )
    with pytest.raises(InputError, match="Batches must have the sides 'train' and 'valid'"):
        trainer(1).fit(strategy, one_side)


# Activation search: what is mixed, what is clipped, what decays.


@pytest.fixture
def space():
    return Mlp(layers=4)


@pytest.fixture
def start(space):
    def make(**options):
        torch.manual_seed(1)
        return ActivationSearch(space, space.supernet(in_channels=1, num_classes=3, width=6), **options)

    return make


def test_weights(start):
    strategy = start()
    with torch.no_grad():
        strategy.arch["skip"].copy_(torch.tensor([[0.25], [1.0]]))
        strategy.arch["activation"][0].copy_(torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0]))
    weights = strategy.relax().weights
    torch.testing.assert_close(weights["skip"], torch.tensor([[0.75, 0.25], [0.0, 1.0]]))
    exp = torch.arange(5.0).exp()
    torch.testing.assert_close(weights["activation"][0], exp / exp.sum())
    assert strategy.space.decisions(strategy.derive()[0])[1] == [False, True]


@pytest.mark.parametrize(("slope", "end"), [(-1.0, 1.0), (1.0, 0.0)])
def test_skips_are_clipped(start, data, trainer, slope, end):
    """With an arch_lr that leaves [0, 1] in one step, whichever way the loss pulls."""

    class Pulled(ActivationSearch):
        def arch_gradients(self, batch):
            return [slope * torch.ones_like(parameter) for parameter in self.arch_list]

    strategy = start(arch_lr=2.0)
    strategy.__class__ = Pulled
    trainer(1).fit(strategy, data())
    assert strategy.arch["skip"].detach().flatten().tolist() == [end, end]
    assert float(strategy.arch["activation"].detach().abs().min()) > 1.0  # these are free


def test_only_what_has_a_softmax_decays(start):
    strategy = start(arch_optimizer=Adam(weight_decay=0.1))
    strategy.trainer = Trainer(max_epochs=1, logger=False)
    groups = strategy.configure_optimizers()[1].param_groups
    found = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert found == {id(strategy.arch["activation"]): 0.1, id(strategy.arch["skip"]): 0.0}


def test_activation_search_is_darts_without_skip_groups(cell_space, supernet):
    mine, darts = (kind(cell_space, supernet(cell_space), seed=3) for kind in (ActivationSearch, Darts))
    assert torch.equal(mine.relax().weights["cell"], darts.relax().weights["cell"])
    assert not any(is_skip(group) for group in DartsSpace().groups.values())
