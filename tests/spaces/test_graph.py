"""The cell against plain loops: every operation of every edge, nothing shared, in float64."""

from itertools import product
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.spaces import graph as graph_module
from nas_lightning.spaces.graph import CellGraph, channel_shuffle
from nas_lightning.spaces.operations import NONE, SEARCH_NORM, build_op
from nas_lightning.spaces.supernet import mixture

OPS = ("none", "max_pool_3x3", "avg_pool_3x3", "skip_connect", "sep_conv_3x3", "dil_conv_5x5")
EDGES = [(source, target) for target in (2, 3, 4) for source in range(target)]
SHAPE = (len(EDGES), len(OPS))
CHANNELS = 8
STRIDES = {"normal": lambda source: 1, "reduce": lambda source: 2 if source < 2 else 1}


def build(kind, partial=1):
    return CellGraph(
        EDGES,
        [OPS] * len(EDGES),
        inputs=2,
        nodes=5,
        channels=CHANNELS,
        norm=SEARCH_NORM,
        stride=STRIDES[kind],
        partial=partial,
    ).double()


def inputs(size=(6, 6)):
    return [torch.randn(2, CHANNELS, *size, dtype=torch.float64) for _ in range(2)]


def plain(graph, kind, states, weights, partial=1):
    """x_j = Σ_{i<j} Σ_o w[i→j, o] · [o(x_i's first channels), x_i's other channels], then interleaved."""
    states = list(states)
    passing = CHANNELS // partial
    for target in (2, 3, 4):
        total = 0.0
        for row, (source, end) in enumerate(EDGES):
            stride = STRIDES[kind](source)
            for column, name in enumerate(OPS):
                if end != target:
                    continue
                x, rest = states[source][:, :passing], states[source][:, passing:]
                if stride == 2:
                    rest = F.max_pool2d(rest, 2, ceil_mode=True) if partial > 1 else rest[..., ::2, ::2]
                if name == NONE:
                    out = 0 * x[..., ::stride, ::stride]
                elif "conv" in name or (name == "skip_connect" and stride == 2):
                    out = graph.ops[f"{source}_{target}_{name}"](F.relu(x))
                else:
                    out = build_op(name, passing, stride, SEARCH_NORM).double()(x)
                total = total + weights[row, column] * torch.cat([out, rest], dim=1)
        order = [part * passing + index for index in range(passing) for part in range(partial)]
        states.append(total[:, order])
    return states


def weight_cases():
    torch.manual_seed(1)
    full = torch.rand(SHAPE, dtype=torch.float64)
    one_hot = F.one_hot(torch.randint(len(OPS), (len(EDGES),)), len(OPS)).double()
    return {
        "full": full,
        "sampled": full * one_hot,
        "one path": one_hot,
        "two of a row": (full > 0.5).double(),
        "some edges": one_hot * (torch.arange(len(EDGES)) % 2)[:, None],
        "none at all": torch.zeros(SHAPE, dtype=torch.float64),
        "only none": F.one_hot(torch.zeros(len(EDGES), dtype=torch.long), len(OPS)).double(),
    }


CASES = weight_cases()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", STRIDES)
@pytest.mark.parametrize("partial", [1, 2, 4])
@pytest.mark.parametrize("size", [(6, 6), (7, 5)])
def test_equals_the_plain_loops(case, kind, partial, size):
    graph, x, weights = build(kind, partial), inputs(size), CASES[case]
    expected = plain(graph, kind, x, weights, partial)
    nodes = graph(x, mixture(weights))
    assert len(nodes) == 5
    for got, want in zip(nodes, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("partial", [1, 2])
def test_without_a_plan_every_operation_counts_once(partial):
    graph, x = build("normal", partial), inputs()
    expected = plain(graph, "normal", x, torch.ones(SHAPE, dtype=torch.float64), partial)
    torch.testing.assert_close(graph(x)[-1], expected[-1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("partial", [1, 2])
@pytest.mark.parametrize("kind", STRIDES)
def test_gradients_of_all_weights(kind, partial):
    """Against the plain loops for parameters, inputs and weights; against finite differences for weights."""
    graph, weights = build(kind, partial), CASES["full"].clone().requires_grad_()
    x = [tensor.requires_grad_() for tensor in inputs((5, 4))]
    leaves = [weights, *x, *graph.parameters()]
    direction = None
    results = []
    for run in (lambda: graph(x, mixture(weights)), lambda: plain(graph, kind, x, weights, partial)):
        last = run()[-1]
        direction = torch.randn_like(last) if direction is None else direction
        results.append(torch.autograd.grad((last * direction).sum(), leaves, allow_unused=True))
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-7, atol=1e-9)
    torch.autograd.gradcheck(lambda w: graph(x, mixture(w))[-1].mean((2, 3)), (weights,), atol=1e-6)


@pytest.mark.parametrize("partial", [1, 2])
def test_only_active_operations_are_computed_and_get_gradients(partial):
    graph, x = build("normal", partial), inputs()
    weights = CASES["full"].clone().requires_grad_()
    active = CASES["one path"].bool()
    last = graph(x, mixture(weights, active))[-1]
    masked = plain(graph, "normal", x, weights.detach() * active, partial)[-1]
    torch.testing.assert_close(last, masked, rtol=1e-9, atol=1e-9)
    last.square().sum().backward()
    assert bool((weights.grad[~active] == 0).all())
    reached = active & (torch.tensor([op != NONE for op in OPS]) if partial == 1 else True)
    assert bool((weights.grad[reached] != 0).any())


def count_calls(graph):
    calls = dict.fromkeys(graph.ops, 0)
    for key, op in graph.ops.items():
        first = op[0] if isinstance(op, torch.nn.Sequential) else op
        first.register_forward_hook(lambda *_, key=key: calls.__setitem__(key, calls[key] + 1))
    return calls


def has_parameters(key):
    return "conv" in key


@pytest.mark.parametrize(("case", "requires_grad"), [("sampled", False), ("one path", False), ("full", True)])
def test_what_is_not_needed_is_not_computed(case, requires_grad):
    graph, weights = build("normal"), CASES[case].clone().requires_grad_(requires_grad)
    calls = count_calls(graph)
    graph(inputs(), mixture(weights))
    for (row, (source, target)), (column, name) in product(enumerate(EDGES), enumerate(OPS)):
        if has_parameters(name):
            assert calls[f"{source}_{target}_{name}"] == int(bool(weights[row, column] != 0))


def test_a_zero_weight_that_needs_a_gradient_is_computed():
    graph, weights = build("normal"), torch.zeros(SHAPE, dtype=torch.float64, requires_grad=True)
    calls = count_calls(graph)
    graph(inputs(), mixture(weights))[-1].sum().backward()
    assert set(calls.values()) == {1}
    assert bool((weights.grad[:, OPS.index("avg_pool_3x3")] != 0).any())


def test_pools_skips_and_relu_are_computed_once_a_node(monkeypatch):
    relus = []
    counted = SimpleNamespace(relu=lambda x: relus.append(1) or F.relu(x), max_pool2d=F.max_pool2d)
    monkeypatch.setattr(graph_module, "F", counted)
    graph = build("normal")
    calls = count_calls(graph)
    graph(inputs(), mixture(CASES["full"]))
    sources = {source for source, _ in EDGES}
    for name in ("max_pool_3x3", "avg_pool_3x3", "skip_connect"):
        assert sum(calls[key] for key in calls if key.endswith(name)) == len(sources)
        assert sum(key.endswith(name) for key in calls) == len(sources)  # and stored once
    assert len(relus) == len(sources)


def test_weights_may_have_another_precision():
    graph, x, weights = build("normal"), inputs(), CASES["full"]
    single = graph(x, mixture(weights.float()))[-1]
    assert single.dtype == torch.float64
    torch.testing.assert_close(single, graph(x, mixture(weights))[-1], rtol=1e-5, atol=1e-5)


def test_drop_path_drops_whole_samples_and_never_identities():
    edges = [(0, 1), (0, 2)]
    options = {"inputs": 1, "nodes": 3, "channels": 2, "norm": SEARCH_NORM, "drop_path": True}
    graph = CellGraph(edges, [["skip_connect"], ["nor_conv_1x1"]], **options).double()
    x = torch.randn(64, 2, 3, 3, dtype=torch.float64)
    kept = graph([x])
    graph.drop_path.drop_prob = 0.25
    dropped = graph([x])
    assert torch.equal(dropped[1], x)
    ratio = (dropped[2] / kept[2]).flatten(1)
    torch.testing.assert_close(ratio, ratio[:, :1].expand_as(ratio))  # one decision a sample
    values = set(ratio[:, 0].round(decimals=6).tolist())
    assert values == {0.0, round(1 / 0.75, 6)}
    assert torch.equal(graph.eval()([x])[2], kept[2])


def test_an_operation_twice_between_two_nodes_has_weights_of_its_own():
    options = {"inputs": 1, "nodes": 2, "channels": 2, "norm": SEARCH_NORM}
    graph = CellGraph([(0, 1), (0, 1)], [["nor_conv_1x1"], ["nor_conv_1x1"]], **options).double()
    assert len(graph.ops) == 2
    x = torch.randn(2, 2, 3, 3, dtype=torch.float64)
    torch.testing.assert_close(graph([x])[1], sum(op(F.relu(x)) for op in graph.ops.values()))


def test_channel_shuffle():
    x = torch.arange(6).view(1, 6, 1, 1)
    assert channel_shuffle(x, 2).flatten().tolist() == [0, 3, 1, 4, 2, 5]


def test_partial_must_divide_the_channels():
    with pytest.raises(InputError, match="cell's 8 channels, got 3"):
        build("normal", partial=3)
