"""The auxiliary skip against a cell that has one of its own."""

import pytest
import torch

from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.spaces.supernet import mixture
from nas_lightning.strategies import OneShot
from nas_lightning.strategies.one_shot.connections import AuxiliarySkip, with_skip
from nas_lightning.strategies.one_shot.parts import Epoch
from nas_lightning.strategies.one_shot.samplers import Gumbel


def test_a_cell_with_it_is_the_sum_that_the_paper_writes(generator):
    """x_j = Σ_i [β x_i + Σ_o w_o o(x_i)], node by node in a plain loop over the operations."""
    space = NasBench201()
    supernet = space.supernet(in_channels=1, num_classes=2, channels=3, cells=1).double()
    graph, group = supernet.backbone.stages[0][0].graph, space.groups["cell"]
    weights = torch.rand(6, 5, generator=generator, dtype=torch.float64)
    x = torch.randn(2, 3, 5, 5, generator=generator, dtype=torch.float64)
    found = graph([x], mixture(with_skip(weights, 0.7, group)))
    nodes = [x]
    for target in range(1, 4):
        total = torch.zeros_like(x)
        for item in graph.edge_ops[target]:
            total = total + weights[item.row, item.column] * graph.ops[item.key](
                torch.relu(nodes[item.source])
                if group.ops[item.column].startswith("nor_conv")
                else nodes[item.source]
            )
        for source, end in group.edges:
            if end == target:
                total = total + 0.7 * nodes[source]
        nodes.append(total)
    torch.testing.assert_close(found[-1], nodes[-1], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("space", [NasBench201(), DartsSpace(nodes=2)], ids=["nasbench201", "darts"])
def test_it_fades_out_and_is_in_no_score(space):
    supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=3)
    plain, search = (OneShot(space, supernet, auxiliary=part) for part in (None, AuxiliarySkip()))
    for epoch, beta in ((0, 1.0), (2, 0.5), (4, 0.0)):
        plain.epoch = search.epoch = Epoch(epoch, 5)
        for name, group in space.groups.items():
            added = search.relax().weights[name] - plain.relax().weights[name]
            expected = torch.zeros(group.shape)
            expected[:, group.column("skip_connect")] = beta
            torch.testing.assert_close(added, expected)
            assert torch.equal(search.scores()[name], plain.scores()[name])
    assert search.derive() == plain.derive()


def test_beside_sampled_paths_the_skip_is_computed_too():
    space = NasBench201()
    supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    search = OneShot(space, supernet, sampler=Gumbel(), auxiliary=AuxiliarySkip())
    relaxed = search.relax()
    assert bool(relaxed.active["cell"][:, space.group.column("skip_connect")].all())
    assert float(relaxed.weights["cell"].detach().sum()) == pytest.approx(12.0)
