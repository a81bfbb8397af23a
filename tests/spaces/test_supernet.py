"""Supernets against a plain implementation, with gradients, in float64.

Plain: torch's own convolutions, channels before pixels, every operation of every edge with a ReLU of its own
and multiplied by its weight, nothing shared, nothing checkpointed.
"""

import copy
from typing import NamedTuple

import pytest
import torch
from torch import distributed, multiprocessing
from torch.nn import functional as F

from benchmarks.reference.darts_supernet import with_plain_convolutions
from nas_lightning.spaces import graph
from nas_lightning.spaces import supernet as supernets
from nas_lightning.training.gradients import gradients
from tests.spaces.conftest import SPACES, WITH_SUPERNET


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


class Case(NamedTuple):
    """What a step is computed of: one image or several, of one channel or several, by which cells."""

    images: int = 2
    in_channels: int = 3
    checkpointed: bool = False
    supernet: dict[str, int] = {}  # noqa: RUF012


CASES = {
    "one image of one channel": Case(images=1, in_channels=1),
    "checkpointed": Case(checkpointed=True),
    "cells of one channel": Case(supernet={"channels": 1}),
    "operations of one channel": Case(supernet={"channels": 2, "partial": 2}),
    "partial channels": Case(supernet={"channels": 4, "partial": 2}),
    "partial channels, checkpointed": Case(checkpointed=True, supernet={"channels": 4, "partial": 4}),
}


class Steps:
    """The fast supernet of a space and its plain twin, and what both are computed of."""

    def __init__(self, named, case):
        torch.manual_seed(0)
        self.space = named.space
        sizes = {**named.small("supernet", in_channels=case.in_channels), **case.supernet}
        self.fast = self.space.supernet(**sizes).double()
        self.plain = with_plain_convolutions(copy.deepcopy(self.fast))
        self.plain.to(memory_format=torch.contiguous_format)
        self.fast.backbone.checkpointed = case.checkpointed
        self.x = torch.randn(case.images, case.in_channels, 19, 17, dtype=torch.float64)
        self.y = torch.arange(case.images) % 5
        shapes = [group.shape for group in self.space.groups.values()]
        self.arch = [torch.randn(shape, dtype=self.x.dtype, requires_grad=True) for shape in shapes]

    def loss(self, net, part=slice(None)):
        """Of those of the images, and what it is differentiated by."""
        weights = {name: beta.softmax(-1) for name, beta in zip(self.space.groups, self.arch, strict=True)}
        x = self.x[part]
        loss = F.cross_entropy(net(x, weights), self.y[part]) + weigh_maps(net, x, weights)
        return loss, [*net.parameters(), *self.arch]


def check_close(found, expected):
    assert max(float(theirs.abs().max()) for theirs in expected if theirs is not None) > 0.01
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-11)


def applies(case, named):
    """Whether the space has the settings of the case; DARTS' cells have at least two channels."""
    too_narrow = case.supernet == {"channels": 1} and named.option.startswith("darts")
    return {*case.supernet} <= {*named.config["supernet"]} and not too_narrow


def test_a_step(searchable):
    for case in CASES.values():
        if not applies(case, searchable):
            continue
        steps = Steps(searchable, case)
        loss, wanted = steps.loss(steps.fast)
        found = gradients(loss, wanted)
        with pytest.MonkeyPatch.context() as monkeypatch:
            calls = compute_plainly(monkeypatch)
            plain_loss, wanted = steps.loss(steps.plain)
            expected = torch.autograd.grad(plain_loss, wanted, allow_unused=True)
        assert bool(calls) == any(isinstance(module, graph.CellGraph) for module in steps.fast.modules())
        torch.testing.assert_close(loss, plain_loss, rtol=1e-8, atol=1e-11)
        check_close(found, expected)


def step_of_two(rank, meeting):
    """One of two processes, for every space: each takes half of the images, gradients are averaged."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=2)
    halves = slice(0, 2), slice(2, 4)
    for name in WITH_SUPERNET:
        steps = Steps(SPACES[name], Case(images=4))
        found = gradients(*steps.loss(steps.fast, halves[rank]))
        with pytest.MonkeyPatch.context() as monkeypatch:
            compute_plainly(monkeypatch)
            first, second = (
                torch.autograd.grad(*steps.loss(steps.plain, half), allow_unused=True) for half in halves
            )
        assert any(not torch.equal(*both) for both in zip(first, second, strict=True) if both[0] is not None)
        expected = [
            None if one is None else (one + other) / 2 for one, other in zip(first, second, strict=True)
        ]
        check_close(found, expected)
        print(name, flush=True)
    distributed.destroy_process_group()


@pytest.mark.slow
def test_steps_of_two_processes(tmp_path, capfd):
    multiprocessing.spawn(step_of_two, (tmp_path / "meeting",), nprocs=2)
    assert sorted(capfd.readouterr().out.split()) == sorted(2 * WITH_SUPERNET)
