"""The published way of six zero-cost metrics is the same function as ours."""

import pytest
import torch

from benchmarks.reference.derived_network import PlainNetwork
from benchmarks.reference.zero_cost import VALUES, one_by_one
from benchmarks.zero_cost import CELLS, METRICS
from nas_lightning.metrics import initialize, score
from nas_lightning.spaces import NasBench201


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_six_metrics_in_float64(cell):
    space, generator = NasBench201(), torch.Generator().manual_seed(0)
    network = space.network(space.parse(cell), in_channels=2, num_classes=3, channels=4, cells=1)
    initialize(network, generator=generator)
    network.double()
    x = torch.randn(5, 2, 8, 8, generator=generator, dtype=torch.float64)
    batch = x, torch.tensor([0, 1, 2, 0, 1])
    expected = one_by_one(PlainNetwork(network), *batch)
    assert list(expected) == list(METRICS) == list(VALUES)
    assert score(network, batch, METRICS) == pytest.approx(expected, rel=1e-9)
