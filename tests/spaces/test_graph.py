"""Cells as graphs against plain loops in float64, concatenation and shuffling against torch, drop path."""

import io
from itertools import product
from types import SimpleNamespace

import pytest
import timm.layers
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from nas_lightning.errors import InputError
from nas_lightning.models.ensemble import drop_paths
from nas_lightning.spaces import darts as darts_module
from nas_lightning.spaces import graph as graph_module
from nas_lightning.spaces.graph import CellGraph, DropPath, channel_shuffle, concatenate, divide
from nas_lightning.spaces.operations import NONE, SEARCH_NORM, build_op
from nas_lightning.spaces.supernet import mix_groups, mixture
from tests.spaces.conftest import SPACES

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


def test_equals_the_plain_loops():
    for case in CASES:
        for kind in STRIDES:
            for partial in [1, 2, 4]:
                for size in [(6, 6), (7, 5)]:
                    graph, x, weights = build(kind, partial), inputs(size), CASES[case]
                    expected = plain(graph, kind, x, weights, partial)
                    nodes = graph(x, mixture(weights))
                    assert len(nodes) == 5
                    for got, want in zip(nodes, expected, strict=True):
                        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


def test_without_a_plan_every_operation_counts_once():
    for partial in [1, 2]:
        graph, x = build("normal", partial), inputs()
        expected = plain(graph, "normal", x, torch.ones(SHAPE, dtype=torch.float64), partial)
        torch.testing.assert_close(graph(x)[-1], expected[-1], rtol=1e-9, atol=1e-9)


def test_gradients_of_all_weights():
    """Against the plain loops for parameters, inputs and weights; against finite differences for weights."""
    for partial in [1, 2]:
        for kind in STRIDES:
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


def test_only_active_operations_are_computed_and_get_gradients():
    for partial in [1, 2]:
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


def test_inactive_operations_are_not_computed():
    for case, requires_grad in [("sampled", False), ("one path", False), ("full", True)]:
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


def test_repeated_operation_has_separate_weights():
    options = {"inputs": 1, "nodes": 2, "channels": 2, "norm": SEARCH_NORM}
    graph = CellGraph([(0, 1), (0, 1)], [["nor_conv_1x1"], ["nor_conv_1x1"]], **options).double()
    assert len(graph.ops) == 2
    x = torch.randn(2, 2, 3, 3, dtype=torch.float64)
    torch.testing.assert_close(graph([x])[1], sum(op(F.relu(x)) for op in graph.ops.values()))


def test_channel_shuffle():
    x = torch.arange(6).view(1, 6, 1, 1)
    assert channel_shuffle(x, 2).flatten().tolist() == [0, 3, 1, 4, 2, 5]


def test_partial_must_divide_the_channels():
    with pytest.raises(InputError, match="`partial` must divide the 8 channels of the cell, got 3"):
        build("normal", partial=3)


NORMS = ("native_batch_norm.default", "native_batch_norm_backward.default")


def maps_of(channels, generator, dtype=torch.float64, last=True):
    made = [torch.randn(2, c, 3, 5, generator=generator, dtype=dtype) for c in channels]
    if last:
        made = [x.contiguous(memory_format=torch.channels_last) for x in made]
    return [x.requires_grad_() for x in made]


def test_outputs_and_gradients_are_those_of_torch(generator):
    for last in [True, False]:
        for channels in [(3,), (1, 1), (4, 2, 3)]:
            maps = maps_of(channels, generator, last=last)
            ours, theirs = concatenate(maps), torch.cat(maps, dim=1)
            assert torch.equal(ours, theirs)
            weights = torch.randn(theirs.shape, generator=generator, dtype=theirs.dtype)
            of_ours, of_theirs = (torch.autograd.grad((out * weights).sum(), maps) for out in (ours, theirs))
            for a, b in zip(of_ours, of_theirs, strict=True):
                assert torch.equal(a, b)
                assert a.is_contiguous(memory_format=torch.channels_last)


def test_second_order(generator):
    maps = maps_of((2, 3), generator)
    assert torch.autograd.gradcheck(lambda *x: concatenate(x).square(), maps)
    assert torch.autograd.gradgradcheck(lambda *x: concatenate(x).square(), maps)


def test_only_one_map_is_differentiated(generator):
    maps = maps_of((2, 3), generator)
    maps[0].requires_grad_(False)
    (gradient,) = torch.autograd.grad(concatenate(maps).square().sum(), maps[1:])
    assert torch.equal(gradient, 2 * maps[1])


def test_other_precisions(generator):
    """Under mixed precision the maps of a node may differ in theirs."""
    half, single = maps_of((2, 3), generator, dtype=torch.float32)
    maps = [half.detach().bfloat16().requires_grad_(), single]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = concatenate(maps)
    assert out.dtype is torch.float32
    assert [g.dtype for g in torch.autograd.grad(out.sum(), maps)] == [torch.bfloat16, torch.float32]


@pytest.mark.filterwarnings("ignore:`torch.jit")  # which torch itself uses to differentiate forwards
def test_functional_transforms(generator):
    maps = [x.detach() for x in maps_of((2, 3), generator)]
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        ours = transform(lambda x: concatenate([x, maps[1]]).square().sum(dim=(1, 2, 3)))(maps[0])
        theirs = transform(lambda x: torch.cat([x, maps[1]], dim=1).square().sum(dim=(1, 2, 3)))(maps[0])
        torch.testing.assert_close(ours, theirs)
    batched = torch.vmap(lambda x, y: concatenate([x, y]))(*[x[None] for x in maps])
    assert torch.equal(batched[0], torch.cat(maps, dim=1))


@pytest.mark.filterwarnings("ignore:`torch.jit")  # is there as long as torch has it
def test_a_trace_can_be_saved(generator):
    """It is made of torch's operations alone, also where gradients are recorded."""
    maps = maps_of((2, 3), generator)
    traced = torch.jit.trace(lambda x, y: concatenate([x, y]), tuple(maps), check_trace=False)
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    assert torch.equal(torch.jit.load(file)(*maps), torch.cat(maps, dim=1))


def test_shuffled_channels_stay_last(generator):
    (x,) = maps_of((6,), generator)
    shuffled = channel_shuffle(x, groups=3)
    assert torch.equal(shuffled, x[:, [0, 2, 4, 1, 3, 5]])
    assert shuffled.is_contiguous(memory_format=torch.channels_last)


def test_divided_channels_have_gradients_with_channels_last(generator):
    (x,) = maps_of((8,), generator)
    first, others = divide(x, 4)
    assert torch.equal(first, x[:, :2])
    assert torch.equal(others, x[:, 2:])
    (gradient,) = torch.autograd.grad(first.square().sum() + others.square().sum(), x)
    assert torch.equal(gradient, 2 * x)
    assert gradient.is_contiguous(memory_format=torch.channels_last)


class Slices(TorchDispatchMode):
    """Notes which maps norms read, forwards and backwards, that are not dense with their channels last."""

    def __init__(self):
        super().__init__()
        self.norms, self.found = 0, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.__name__ in NORMS:
            self.norms += 1
            maps = [x for x in args[:2] if isinstance(x, torch.Tensor) and x.dim() == 4]
            self.found += [x.stride() for x in maps if not x.is_contiguous(memory_format=torch.channels_last)]
        return func(*args, **(kwargs or {}))


def step(net, *weights):
    """Weighs the last map pixel by pixel: a mean's gradient is an expanded number, of no layout."""
    x = torch.randn(2, 3, 16, 16)
    outputs = net.backbone.cells_outputs(x.contiguous(memory_format=torch.channels_last), *weights)
    *_, last = outputs
    net.backbone.final(last).square().sum().backward()


def slices_of(net, *weights):
    with Slices() as slices:
        step(net, *weights)
    assert slices.norms
    return slices.found


OF_IMAGES = [name for name, named in SPACES.items() if "channels" in named.config["network"]]
SUPERNETS = [
    (name, partial)
    for name in OF_IMAGES
    for partial in ((1, 2) if "partial" in SPACES[name].config.get("supernet", {}) else (1,))
    if SPACES[name].space.groups
]


def test_norms_of_derived_networks_read_no_slices(generator):
    for name in OF_IMAGES:
        named = SPACES[name]
        net = named.space.network(named.space.sample(generator), **{**named.small("network"), "channels": 8})
        assert not slices_of(net)


def test_norms_of_supernets_read_no_slices():
    for name, partial in SUPERNETS:
        named = SPACES[name]
        sizes = {**named.small("supernet"), "channels": 8, **({"partial": partial} if partial > 1 else {})}
        net = named.space.supernet(**sizes)
        weights = mix_groups({name: torch.rand(g.shape) for name, g in named.space.groups.items()})
        assert not slices_of(net, [weights] * len(net.backbone.widths))


def test_without_dense_gradients_norms_read_slices(monkeypatch, generator):
    darts = SPACES["darts"]
    monkeypatch.setattr(darts_module, "concatenate", lambda maps: torch.cat(maps, dim=1))
    net = darts.space.network(darts.space.sample(generator), **{**darts.small("network"), "channels": 8})
    assert slices_of(net)


def test_whole_images_are_dropped_at_the_rate_and_the_mean_stays():
    for rate in [0.1, 0.5, 0.8]:
        x = torch.randn(20_000, 2, 1, 1, dtype=torch.float64)
        y = DropPath(rate).double()(x)
        kept = (y != 0).flatten(1)
        assert torch.equal(kept[:, 0], kept[:, 1])
        torch.testing.assert_close(y[kept[:, 0]], x[kept[:, 0]] / (1 - rate))
        error = (rate * (1 - rate) / len(x)) ** 0.5
        assert abs(kept[:, 0].double().mean() - (1 - rate)) < 5 * error


def test_nothing_is_touched_at_rate_0_and_in_evaluation():
    for rate, training in [(0.0, True), (0.5, False)]:
        x = torch.randn(3, 2, 2, 2)
        before = torch.get_rng_state()
        assert DropPath(rate).train(training)(x) is x
        assert torch.equal(torch.get_rng_state(), before)


def test_it_is_one_beside_timms_and_has_no_state():
    module = DropPath(0.25)
    network = torch.nn.Sequential(module, timm.layers.DropPath(0.1), torch.nn.Dropout())
    assert drop_paths(network) == [network[0], network[1]]
    assert not module.state_dict()
    assert module.drop_prob == 0.25
    assert "drop_prob=0.250" in repr(module)


def test_half_precision_keeps_its_type():
    assert DropPath(0.3)(torch.ones(4, 1, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_other_rates_do_not_compile_again():
    compiled_with, module = [], DropPath()

    def backend(graph, inputs):
        compiled_with.append(graph)
        return graph

    torch._dynamo.reset()
    compiled, x = torch.compile(lambda x: module(x + 1), backend=backend), torch.zeros(64, 1)
    for rate in (0.0, 0.1, 0.2, 0.3, 0.4):
        module.drop_prob = rate
        assert set(compiled(x).flatten().tolist()) == (
            {0.0, (1 / (1 - torch.tensor(rate))).item()} if rate else {1.0}
        )
    assert len(compiled_with) == 2  # one that drops nothing, one for all rates
