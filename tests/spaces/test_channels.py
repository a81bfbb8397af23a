"""Channels that are put together, divided and interleaved with dense gradients, against torch's own ways."""

import io

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nas_lightning.spaces import darts as darts_network
from nas_lightning.spaces.graph import channel_shuffle, concatenate, divide
from nas_lightning.spaces.supernet import mix_groups
from tests.spaces.conftest import SPACES

NORMS = ("native_batch_norm.default", "native_batch_norm_backward.default")


def maps_of(channels, generator, dtype=torch.float64, last=True):
    made = [torch.randn(2, c, 3, 5, generator=generator, dtype=dtype) for c in channels]
    if last:
        made = [x.contiguous(memory_format=torch.channels_last) for x in made]
    return [x.requires_grad_() for x in made]


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("channels", [(3,), (1, 1), (4, 2, 3)])
def test_outputs_and_gradients_are_those_of_torch(generator, channels, last):
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


@pytest.mark.parametrize("name", OF_IMAGES)
def test_norms_of_derived_networks_read_no_slices(name, generator):
    named = SPACES[name]
    net = named.space.network(named.space.sample(generator), **{**named.small("network"), "channels": 8})
    assert not slices_of(net)


@pytest.mark.parametrize(("name", "partial"), SUPERNETS)
def test_norms_of_supernets_read_no_slices(name, partial):
    named = SPACES[name]
    sizes = {**named.small("supernet"), "channels": 8, **({"partial": partial} if partial > 1 else {})}
    net = named.space.supernet(**sizes)
    weights = mix_groups({name: torch.rand(g.shape) for name, g in named.space.groups.items()})
    assert not slices_of(net, [weights] * len(net.backbone.widths))


def test_without_dense_gradients_norms_read_slices(monkeypatch, generator):
    darts = SPACES["darts"]
    monkeypatch.setattr(darts_network, "concatenate", lambda maps: torch.cat(maps, dim=1))
    net = darts.space.network(darts.space.sample(generator), **{**darts.small("network"), "channels": 8})
    assert slices_of(net)
