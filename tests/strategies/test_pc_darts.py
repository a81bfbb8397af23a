"""PC-DARTS' weights are a product of two softmaxes, which also weighs the channels that go round."""

import math

import pytest
import torch

from nas_lightning.errors import InputError
from nas_lightning.spaces.supernet import mixture
from nas_lightning.strategies import PCDarts
from nas_lightning.strategies.one_shot.connections import softmax_by_target


@pytest.fixture(params=["cell_space", "darts_space"])
def strategy(request, supernet):
    space = request.getfixturevalue(request.param)
    found = PCDarts(space, supernet(space, channels=4, partial=4)).double()
    draw = torch.Generator().manual_seed(2)
    for parameter in found.arch_list:
        parameter.data = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
    return found


def test_weights_are_two_plain_softmaxes(strategy):
    for name, group in strategy.space.groups.items():
        alpha, beta = strategy.arch[name].tolist(), strategy.arch[name + "_edges"].tolist()
        weights = strategy.relax().weights[name]
        for row, (_, target) in enumerate(group.edges):
            edges = sum(math.exp(b) for b, (_, t) in zip(beta, group.edges, strict=True) if t == target)
            ops = sum(math.exp(a) for a in alpha[row])
            for column in range(len(group.ops)):
                expected = math.exp(beta[row]) / edges * math.exp(alpha[row][column]) / ops
                assert weights[row, column].item() == pytest.approx(expected, rel=1e-12)


def test_the_edges_into_a_node_sum_to_one(strategy):
    for name, group in strategy.space.groups.items():
        total = {}
        for (_, target), row in zip(group.edges, strategy.scores()[name], strict=True):
            total[target] = total.get(target, 0.0) + float(row.sum())
        assert list(total.values()) == pytest.approx([1.0] * len(total), rel=1e-12)


def test_softmax_by_target_differentiates(darts_space):
    values = torch.randn(5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: softmax_by_target(v, darts_space.group), values)
    extreme = torch.tensor([1e3, -1e3, 0.0, 1e3, 1e3], dtype=torch.float64)
    found = softmax_by_target(extreme, darts_space.group).tolist()
    assert found == pytest.approx([1.0, 0.0, 0.0, 0.5, 0.5], abs=1e-12)


def test_channels_that_go_round_are_weighted_with_their_edge(cell_space, supernet, generator):
    """The cell's three quarters without operations: Σ_i β̂_ij x_i, node by node in a plain loop."""
    strategy = PCDarts(cell_space, supernet(cell_space, channels=4, partial=4)).double()
    graph = strategy.supernet.backbone.stages[0][0].graph
    x = torch.randn(2, 4, 6, 6, generator=generator).double()
    weights = strategy.relax().weights["cell"].detach()
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
    strategy = PCDarts(darts_space, supernet(darts_space, channels=4, partial=4))
    with torch.no_grad():
        for name, group in darts_space.groups.items():
            strategy.arch[name].zero_()
            strategy.arch[name][:, group.column("sep_conv_3x3")] = 1.0
            strategy.arch[name + "_edges"].copy_(torch.tensor([0.0, 0.0, -5.0, 1.0, 2.0]))
    for _, cell in strategy.derive()[0]:
        assert [edge.source for edge in cell.into(3)] == [1, 2]
        assert {edge.op for edge in cell.edges} == {"sep_conv_3x3"}


def test_edge_weights_learn(search, trainer):
    strategy, data = search("pc_darts", "nasbench201")
    start = strategy.arch["cell_edges"].detach().clone()
    trainer(1).fit(strategy, data)
    moved = (strategy.arch["cell_edges"].detach() - start).abs()
    assert float(moved[1:].min()) > 1e-5  # the first is the only edge into its node


def test_channels_that_cannot_be_divided(cell_space, supernet):
    with pytest.raises(InputError, match="expected partial to divide"):
        supernet(cell_space, channels=6, partial=4)
