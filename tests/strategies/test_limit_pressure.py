"""The multiplier alone: a loss that wants the dearest operations everywhere, and a limit on them."""

import pytest
import torch

from nas_lightning.spaces import NasBench201
from nas_lightning.spaces.constrained import Bounds, limit_space
from nas_lightning.strategies.supernet import LimitPressure

SPACE = NasBench201()
CONV = SPACE.ops.index("nor_conv_3x3")


def descend(limit, steps=1500):
    """What β stands for in each step: how many convolutions, where edge i gains i + 1 from having one."""
    bounds = Bounds(SPACE, {"convs": limit}, lambda g: {"convs": float(g.ops.count("nor_conv_3x3"))})
    space = limit_space(SPACE, bounds)
    pressure, beta = LimitPressure(space), torch.zeros(6, 5, requires_grad=True)
    optimizer, gain, counts = torch.optim.Adam([beta], lr=0.01), torch.arange(1.0, 7.0) / 6, []
    for _ in range(steps):
        p = torch.softmax(beta, dim=1)
        loss = -(gain * p[:, CONV]).sum() + pressure.term({"cell": p})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pressure.ascend({"cell": p.detach()})
        counts.append(space.unlimited.discretize({"cell": p.detach()}).ops.count("nor_conv_3x3"))
    return counts, pressure.multipliers.item()


def test_without_need_nothing_is_given_up():
    counts, multiplier = descend(limit=6.0)
    assert counts[-1] == 6
    assert multiplier == 0.0


@pytest.mark.parametrize("limit", [2.0, 4.0])
def test_the_multiplier_rises_until_the_limit_is_kept(limit):
    counts, multiplier = descend(limit)
    assert max(counts) > limit  # it was broken first
    last = counts[-300:]
    assert sum(count <= limit for count in last) > 0.5 * len(last)
    assert max(last) <= limit + 1
    assert min(last) >= limit - 2  # and no more is given up than has to be
    assert multiplier > 0


def test_expected_costs_have_the_gradient_of_finite_differences():
    bounds = Bounds(SPACE, {"convs": 2.0}, lambda g: {"convs": float(g.ops.count("nor_conv_3x3"))})
    pressure = LimitPressure(limit_space(SPACE, bounds)).double()
    pressure.multipliers.fill_(0.7)
    beta = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda b: pressure.term({"cell": torch.softmax(b, dim=1)}), (beta,))
