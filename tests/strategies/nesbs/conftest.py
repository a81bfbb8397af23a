"""A supernet, its images, and a space that is small enough to be enumerated."""

from itertools import combinations, product

import pytest
import torch
from torch import Tensor, nn

from nas_lightning.genotype import Cell, Genotype
from nas_lightning.spaces import DartsSpace, NasBench201, SearchSpace


def all_cells(space: DartsSpace) -> list[Cell]:
    """Per node two sources, with an operation each."""
    ops = [op for op in space.group.ops if op != "none"]
    of_nodes = [
        [
            ((a, s, node), (b, t, node))
            for s, t in combinations(range(node), 2)
            for a, b in product(ops, repeat=2)
        ]
        for node in space.inner
    ]
    return [Cell([e for pair in pairs for e in pair], 2, list(space.inner)) for pairs in product(*of_nodes)]


@pytest.fixture(scope="session")
def small_darts() -> DartsSpace:
    """Two inner nodes and two operations: 48 cells, 2,304 architectures."""
    return DartsSpace(nodes=2, ops=("none", "skip_connect", "sep_conv_3x3"))


@pytest.fixture(scope="session")
def every_cell(small_darts) -> list[Cell]:
    cells = all_cells(small_darts)
    assert len(cells) == 4 * 12
    return cells


@pytest.fixture(scope="session")
def every_architecture(every_cell) -> list[Genotype]:
    return [Genotype("darts", {"normal": n, "reduce": r}) for n, r in product(every_cell, every_cell)]


@pytest.fixture
def logits(generator):
    """`logits(space)`: some α of a space, in double precision."""

    def make(space: SearchSpace, scale: float = 1.0) -> dict[str, Tensor]:
        shapes = {name: group.shape for name, group in space.groups.items()}
        return {
            name: scale * torch.randn(shape, dtype=torch.float64, generator=generator)
            for name, shape in shapes.items()
        }

    return make


@pytest.fixture
def cell_space() -> NasBench201:
    return NasBench201()


@pytest.fixture
def cell_supernet(cell_space) -> nn.Module:
    torch.manual_seed(1)
    return cell_space.supernet(in_channels=1, num_classes=3, channels=4, cells=1)


@pytest.fixture
def batches(generator) -> list[tuple[Tensor, Tensor]]:
    """Four batches of six images."""
    return [
        (torch.randn(6, 1, 8, 8, generator=generator), torch.randint(3, (6,), generator=generator))
        for _ in range(4)
    ]
