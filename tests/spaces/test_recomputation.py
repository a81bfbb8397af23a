"""Recomputation of large maps after pointwise convolutions: less memory, the same bits."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from benchmarks.memory import saved_bytes
from nas_lightning.spaces import DartsSpace, recomputation
from nas_lightning.spaces.operations import SEARCH_NORM, TRAIN_NORM, build_op
from nas_lightning.spaces.recomputation import run_layers

SPACE = DartsSpace(nodes=2)


@pytest.fixture
def large(monkeypatch):
    """From so many numbers on, a map is large."""
    return partial(monkeypatch.setattr, recomputation, "LARGE")


@pytest.fixture
def both(large):
    """What a function gives with every map kept, and with none."""

    def outcomes(function):
        large(2**60)
        kept = function()
        large(0)
        return kept, function()

    return outcomes


def supernet(**options):
    torch.manual_seed(0)
    net = SPACE.supernet(in_channels=3, num_classes=4, channels=4, cells=3, **options)
    arch = {name: torch.rand(group.shape, requires_grad=True) for name, group in SPACE.groups.items()}
    return net, arch, torch.randn(5, 3, 8, 8), torch.arange(5) % 4


def flat(tensors):
    return torch.cat([t.flatten() for t in tensors if t is not None])


def test_gradients_to_the_bit(both):
    for checkpointed in [False, True]:
        for partial_channels in [1, 2]:
            net, arch, x, y = supernet(partial=partial_channels)
            net.backbone.checkpointed = checkpointed

            def step():
                loss = F.cross_entropy(net(x, arch), y)
                return loss, flat(
                    torch.autograd.grad(loss, [*net.parameters(), *arch.values()], allow_unused=True)
                )

            for kept, recomputed in zip(*both(step), strict=True):
                assert torch.equal(kept, recomputed)


def test_second_derivatives_to_the_bit(both):
    net, arch, x, y = supernet()
    wanted = [*net.parameters(), *arch.values()]

    def product():
        loss = F.cross_entropy(net(x, arch), y)
        first = flat(torch.autograd.grad(loss, wanted, create_graph=True, allow_unused=True))
        return flat(torch.autograd.grad(first.square().sum(), wanted, allow_unused=True))

    assert torch.equal(*both(product))


def test_fewer_bytes_are_saved(both):
    net, arch, x, y = supernet()
    kept, recomputed = both(lambda: saved_bytes(lambda: F.cross_entropy(net(x, arch), y)))
    assert recomputed < 0.8 * kept


def test_the_map_is_freed(large):
    for is_large in [True, False]:
        large(0 if is_large else 2**60)
        maps = []
        op = build_op("dil_conv_3x3", 4, 1, SEARCH_NORM)
        op[-1].register_forward_pre_hook(
            lambda norm, args: maps.append(StorageWeakRef(args[0].untyped_storage()))
        )
        output = op(torch.randn(3, 4, 6, 6))
        assert [one.expired() for one in maps] == [is_large]
        output.sum().backward()


def test_checkpointed_cells_save_no_factors(large, monkeypatch):
    """What a checkpoint computes anew is not kept for another purpose."""
    products = []
    monkeypatch.setattr(recomputation, "_Product", lambda *parts: products.append(parts))
    large(0)
    net, arch, x, y = supernet()
    net.backbone.checkpointed = True
    F.cross_entropy(net(x, arch), y)
    assert not products
    net.backbone.checkpointed = False
    net(x, arch)
    assert products


def test_small_maps_and_derived_networks_are_saved(large):
    x = torch.randn(2, 4, 8, 8)
    for size, norm in ((x.numel() + 1, SEARCH_NORM), (0, TRAIN_NORM)):
        large(size)
        op = build_op("sep_conv_3x3", 4, 1, norm)
        some = saved_bytes(partial(op, x))
        large(2**60)
        assert saved_bytes(partial(op, x)) == some


def double(module, args, output):
    return 2 * output


def half(module, args):
    return (args[0] / 2,)


def tripled(conv, x):
    return F.conv2d(x, 3 * conv.weight)


CHANGES = {
    "hook": lambda conv: conv.register_forward_hook(double),
    "hook before": lambda conv: conv.register_forward_pre_hook(half),
    "another forward": lambda conv: setattr(conv, "forward", partial(tripled, conv)),
    "parametrized": spectral_norm,
}


def test_convolutions_that_a_user_has_changed(both):
    for change in CHANGES.values():
        torch.manual_seed(0)
        op, x = build_op("sep_conv_3x3", 4, 1, SEARCH_NORM), torch.randn(3, 4, 6, 6)
        change(op[1])

        def step():
            own = copy.deepcopy(op)  # a spectral norm goes on with each look at the weight
            return flat(torch.autograd.grad(own(x).square().mean(), list(own.parameters())))

        assert torch.equal(*both(step))


def test_other_convolutions(both):
    for options in [{"padding": 1}, {"stride": 2}, {"groups": 2}, {"bias": True}]:
        torch.manual_seed(0)
        conv, x = nn.Conv2d(4, 4, 1, **{"bias": False, **options}), torch.randn(3, 4, 6, 6)

        def step():
            output = run_layers([conv, SEARCH_NORM(4)], x)
            return flat(torch.autograd.grad(output.pow(3).sum(), list(conv.parameters())))

        assert torch.equal(*both(step))


def test_transformed_passes(both):
    torch.manual_seed(0)
    op, x = build_op("dil_conv_3x3", 4, 1, SEARCH_NORM), torch.randn(3, 4, 6, 6)
    weights = {name: parameter.detach() for name, parameter in op.named_parameters()}

    def loss(values):
        return torch.func.functional_call(op, values, (x,)).square().sum()

    def mixed():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = op(x)
        return flat(torch.autograd.grad(output.float().square().mean(), list(op.parameters())))

    assert torch.equal(*both(lambda: flat(torch.func.grad(loss)(weights).values())))
    assert torch.equal(*both(mixed))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # the compiler looks at all of it
def test_compiled(both):
    op, x = build_op("dil_conv_3x3", 4, 1, SEARCH_NORM), torch.randn(3, 4, 6, 6)

    def step():
        compiled = copy.deepcopy(op)
        compiled.compile(backend="eager", fullgraph=True)
        return flat(torch.autograd.grad(compiled(x).square().mean(), list(compiled.parameters())))

    assert torch.equal(*both(step))


def test_changed_weight_is_detected(large):
    """As without: torch refuses what was computed from other weights."""
    large(0)
    conv, x = nn.Conv2d(4, 4, 1, bias=False), torch.randn(3, 4, 6, 6, requires_grad=True)
    output = run_layers([conv, SEARCH_NORM(4)], x).square().sum()
    with torch.no_grad():
        conv.weight += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.backward()
