"""Theorem 1 of PR-DARTS: against plain loops, its derivatives' signs, and what is refused."""

import pytest
import torch

from nas_lightning.errors import InputError
from nas_lightning.spaces import DartsNasi, DartsSpace, NasBench201
from nas_lightning.strategies.one_shot.convergence_rate import convergence_rate

GROUPS = [DartsSpace().groups["normal"], NasBench201().groups["cell"], DartsSpace(nodes=2).groups["reduce"]]
CONVS = {"sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5", "nor_conv_1x1", "nor_conv_3x3"}


@pytest.mark.parametrize("group", GROUPS)
def test_plain_loops(group, generator):
    alpha = torch.rand(group.shape, dtype=torch.float64, generator=generator)
    weight = {
        (s, t, op): float(alpha[row, column])
        for row, (s, t) in enumerate(group.edges)
        for column, op in enumerate(group.ops)
    }
    last = max(t for _, t in group.edges)
    total = 0.0
    for s in range(last):
        conv = sum(w for (a, b, op), w in weight.items() if (a, b) == (s, last) and op in CONVS)
        product = 1.0
        for t in range(s):
            product *= weight.get((t, s, "skip_connect"), 1.0) ** 2  # inputs have no edges
        total += conv**2 * product
    assert float(convergence_rate(alpha, group).value) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("group", GROUPS)
def test_skips_raise_it_on_shared_edges_and_convolutions_into_the_last_node(group, generator):
    alpha = torch.rand(group.shape, dtype=torch.float64, generator=generator, requires_grad=True)
    (slopes,) = torch.autograd.grad(convergence_rate(alpha, group).value, alpha)
    last = max(t for _, t in group.edges)
    for row, (_, target) in enumerate(group.edges):
        for column, op in enumerate(group.ops):
            raised = op in CONVS if target == last else op == "skip_connect"
            assert (float(slopes[row, column]) > 0) == raised


def test_other_groups_are_refused():
    group = next(iter(DartsNasi().groups.values()))
    with pytest.raises(InputError, match="skips and convolutions on edges"):
        convergence_rate(torch.zeros(group.shape), group)
