"""Every draw that is possible in a small space gives finite steps of both levels."""

from itertools import product

import pytest
import torch
from pytorch_lightning import Trainer
from torch import Tensor

from nas_lightning.spaces import NasBench201, TwoLayer
from nas_lightning.spaces.group import Group
from nas_lightning.strategies import OneShot
from nas_lightning.strategies.one_shot.samplers import Gumbel, HardConcrete
from tests.strategies.oneshot.parts_by_name import options, part

CELL = NasBench201().group
OUTPUT = [row for row, (_, target) in enumerate(CELL.edges) if target == 3]
"""The edges into the output of NAS-Bench-201's cell."""


@pytest.fixture
def images():
    draw = torch.Generator().manual_seed(3)
    return torch.randn(4, 1, 8, 8, generator=draw), torch.arange(4) % 2


def search(space, sampler, **size):
    torch.manual_seed(0)
    strategy = OneShot(space, space.supernet(in_channels=1, num_classes=2, **size), sampler=sampler)
    strategy.trainer = Trainer(max_epochs=2, logger=False, enable_checkpointing=False)
    return strategy


def noise_of(columns: list[int], group: Group) -> Tensor:
    """Uniform numbers for which a Gumbel draw takes these columns."""
    noise = torch.full(group.shape, 0.01)
    noise[torch.arange(len(columns)), columns] = 0.99
    return noise


def step(strategy, noise, images):
    """The gradients of an architecture step and of a weight step with this draw."""
    strategy.draw = lambda: noise
    batch = {"train": images, "valid": images}
    relaxed = strategy.relax(noise)
    arch = strategy.arch_gradients(batch)
    loss = strategy.loss(
        "train",
        images,
        type(relaxed)({name: w.detach() for name, w in relaxed.weights.items()}, relaxed.active),
    )
    weights = torch.autograd.grad(loss, strategy.weight_list, allow_unused=True)
    assert bool(torch.isfinite(loss))
    for gradient in (*arch, *weights):
        assert gradient is None or bool(torch.isfinite(gradient).all())
    return arch


def test_every_path_of_two_layers(images):
    space = TwoLayer()
    strategy = search(space, Gumbel(), width=4)
    ((name, group),) = space.groups.items()
    rows, ops = group.shape
    for columns in product(range(ops), repeat=rows):
        step(strategy, {name: [noise_of(list(columns), group)]}, images)


def test_every_draw_into_the_output_of_a_cell(images):
    """`none` on all three edges leaves a loss that no architecture parameter reaches."""
    group = CELL
    strategy = search(NasBench201(), Gumbel(), channels=2, cells=1)
    for columns in product(range(5), repeat=3):
        chosen = [3] * group.shape[0]
        for row, column in zip(OUTPUT, columns, strict=True):
            chosen[row] = column
        (gradient,) = step(strategy, {"cell": [noise_of(chosen, group)]}, images)
        reached = any(group.ops[column] != "none" for column in columns)
        assert (gradient is not None) == reached


def test_gates_that_are_all_closed(images):
    """Uniform numbers near zero close every gate."""
    strategy = search(NasBench201(), HardConcrete(tau_start=0.1), channels=2, cells=1)
    closed = torch.full(CELL.shape, 1e-6)
    assert not bool(strategy.relax({"cell": [closed, closed]}).active["cell"].any())
    step(strategy, {"cell": [closed, closed]}, images)


@pytest.mark.parametrize("name", options("sampler"))
@pytest.mark.parametrize("share", [torch.finfo(torch.float32).tiny, 1 - torch.finfo(torch.float32).eps])
def test_the_ends_of_what_can_be_drawn(name, share, images):
    """With parameters far from zero, too."""
    sampler = part("sampler", name)
    if not sampler.learns:
        pytest.skip("has no parameters")
    strategy = search(NasBench201(), sampler, channels=2, cells=1)
    noise = {"cell": [torch.full((6, 5), share) for _ in range(sampler.noises)]}
    step(strategy, noise, images)
    if not sampler.on_simplex:
        with torch.no_grad():
            strategy.arch["cell"].copy_(torch.linspace(-30, 30, 30).view(6, 5))
        step(strategy, noise, images)
