"""Every space's supernet against the plain way to compute it, with gradients, in float64.

Plain: torch's own convolutions, channels before pixels, every operation of every edge with a ReLU of its own
and multiplied by its weight, nothing shared, nothing checkpointed.
"""

import copy

import pytest
import torch
from torch.nn import functional as F

from nas_lightning.measure.reference.darts_supernet import with_plain_convolutions
from nas_lightning.spaces import supernet as supernets
from nas_lightning.spaces.cells import graph
from nas_lightning.training.gradients import gradients


def compute_plainly(monkeypatch):
    """Take away what makes supernets fast, from now on; count how often each way was gone."""
    calls = []

    def output(run, item):
        calls.append(item.key)
        return run.graph.ops[item.key](run.input(item))

    def weighted(op, x, weight):
        calls.append(op)
        return op(x) * weight

    monkeypatch.setattr(graph._Run, "output", output)
    monkeypatch.setattr(graph._Run, "relu", lambda run, source: F.relu(run.through(source)))
    monkeypatch.setattr(graph, "weighted", weighted)
    monkeypatch.setattr(supernets, "channels_last", torch.Tensor.contiguous)
    return calls


def weigh_maps(net, x, weights):
    """A sum over the pixels of all cells; of one image, norms leave a mean over pixels nothing to tell."""
    mixtures = [supernets.mix_groups(weights)] * len(net.backbone.widths)
    maps = net.backbone.cells_outputs(supernets.channels_last(x), mixtures)
    return sum((cell * torch.arange(cell.numel(), dtype=x.dtype).sin().view_as(cell)).sum() for cell in maps)


@pytest.mark.parametrize(
    ("images", "channels", "checkpointed"), [(1, 1, False), (2, 3, True)], ids=["one image", "checkpointed"]
)
def test_a_step(searchable, monkeypatch, images, channels, checkpointed):
    torch.manual_seed(0)
    space, sizes = searchable.space, searchable.small("supernet", in_channels=channels)
    fast = space.supernet(**sizes).double()
    plain = with_plain_convolutions(copy.deepcopy(fast)).to(memory_format=torch.contiguous_format)
    fast.backbone.checkpointed = checkpointed
    x = torch.randn(images, channels, 19, 17, dtype=torch.float64)
    y = torch.arange(images)
    arch = [torch.randn(group.shape, dtype=x.dtype, requires_grad=True) for group in space.groups.values()]

    def step(net):
        weights = {name: beta.softmax(-1) for name, beta in zip(space.groups, arch, strict=True)}
        loss = F.cross_entropy(net(x, weights), y) + weigh_maps(net, x, weights)
        return [loss, *gradients(loss, [*net.parameters(), *arch])]

    found = step(fast)
    calls = compute_plainly(monkeypatch)
    expected = step(plain)
    assert bool(calls) == any(isinstance(module, graph.CellGraph) for module in fast.modules())
    assert max(float(theirs.abs().max()) for theirs in expected[1:] if theirs is not None) > 0.01
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-11)
