"""NAS-Bench-1Shot1: the three spaces counted, their samples, their supernet against plain loops."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.spaces import NasBench1Shot1, NasBench101
from nas_lightning.spaces.nasbench101 import OPS, from_cell
from nas_lightning.spaces.supernet import mixture

PARENTS = {1: [1, 2, 2, 2, 2], 2: [1, 1, 2, 2, 3], 3: [1, 1, 1, 2, 2, 2]}  # Zela et al. 2020, section 3.1


@pytest.fixture(params=[1, 2, 3])
def space(request):
    return NasBench1Shot1(request.param)


def matrix_of(genotype):
    return np.array(from_cell(genotype["cell"]).matrix)


def test_every_space_fits_into_nasbench101(space, generator):
    whole = NasBench101()
    assert sum(PARENTS[space.variant]) == 9
    for _ in range(50):
        genotype = space.sample(generator)
        assert matrix_of(genotype)[:, 1:].sum(axis=0).tolist() == PARENTS[space.variant]
        whole.check(genotype)
        assert whole.hash(genotype) == space.hash(genotype)
        assert whole.parse(space.notation(genotype)) == whole.genotype(space.module(genotype))


def test_another_spaces_modules_are_refused(generator):
    for one in (1, 2, 3):
        for two in {1, 2, 3} - {one}:
            with pytest.raises(InputError, match="Blocks and output must have"):
                NasBench1Shot1(one).check(NasBench1Shot1(two).sample(generator))
    with pytest.raises(InputError, match="`variant` must be 1, 2 or 3"):
        NasBench1Shot1(4)


def test_neighbors_are_all_single_changes(space, generator):
    """2 other operations a block, k (n − k) exchanges of a parent for k parents of n."""
    exchanges = sum(k * (n - k) for n, k in enumerate(PARENTS[space.variant], 1))
    genotype = space.sample(generator)
    near = space.neighbors(genotype)
    assert len(near) == 2 * len(space.blocks) + exchanges
    for other in near:
        edges = np.abs(matrix_of(genotype) - matrix_of(other)).sum()
        ops = Counter(zip(*(from_cell(g["cell"]).ops for g in (genotype, other)), strict=True))
        assert (edges, sum(n for (a, b), n in ops.items() if a != b)) in {(0, 1), (2, 0)}


def test_the_whole_space_is_reached_by_neighbors_and_sampled_uniformly(generator):
    """S1 has 3⁴ · C(3,2) · C(4,2) · C(5,2) choices; its wirings are drawn alike."""
    space = NasBench1Shot1(1)
    wirings = {matrix_of(space.sample(generator)).tobytes() for _ in range(3000)}
    assert len(wirings) == math.comb(3, 2) * math.comb(4, 2) * math.comb(5, 2)
    counts = Counter(matrix_of(space.sample(generator)).tobytes() for _ in range(20 * len(wirings)))
    assert chisquare([counts[wiring] for wiring in wirings]).pvalue > 1e-3
    ops = Counter(op for _ in range(500) for op in from_cell(space.sample(generator)["cell"]).ops)
    assert chisquare([ops[op] for op in OPS]).pvalue > 1e-3


def test_discretize_takes_the_largest(space):
    scores = {name: torch.zeros(group.shape) for name, group in space.groups.items()}
    scores["op"][1, 2] = 1.0
    last = len(PARENTS[space.variant])
    for name, matrix in scores.items():
        if name != "op":
            matrix[0] = torch.arange(matrix.shape[1])  # the latest
    module = from_cell(space.discretize(scores)["cell"])
    assert module.ops[:2] == (OPS[0], OPS[2])
    for vertex, count in enumerate(PARENTS[space.variant], 1):
        assert [i for i in range(last) if module.matrix[i][vertex]] == list(range(vertex))[-count:]


def test_a_supernets_cell_against_plain_loops(space, generator):
    supernet = space.supernet(in_channels=3, num_classes=5, channels=3, cells=1).double()
    cell = supernet.backbone.cells[0]
    x = torch.randn(2, 3, 6, 6, generator=generator).double()
    weights = {
        name: torch.rand(group.shape, generator=generator).double() for name, group in space.groups.items()
    }
    found = cell(x, {name: mixture(matrix) for name, matrix in weights.items()})
    blocks, parents = [], PARENTS[space.variant]
    for j in range(1, len(parents)):
        v = weights[f"parents_{j}"][0] if parents[j - 1] < j else torch.ones(j).double()
        total = v[0] * convolution(x, cell.projections[j - 1])
        for i in range(1, j):
            total = total + v[i] * blocks[i - 1]
        w = weights["op"][j - 1]
        three, one = (convolution(total, cell.ops[j - 1][column]) for column in (0, 1))
        blocks.append(w[0] * three + w[1] * one + w[2] * F.max_pool2d(total, 3, 1, 1))
    side_by_side = [convolution(x, cell.projections[-1]), *blocks]
    expected = torch.cat([v * y for v, y in zip(weights["output"][0], side_by_side, strict=True)], dim=1)
    torch.testing.assert_close(found, expected)


def convolution(x, layers):
    return F.relu(F.batch_norm(F.conv2d(x, layers[0].weight, padding="same"), None, None, training=True))


def test_unread_blocks_are_zero(space, generator):
    """The channels of blocks that are not chosen, exactly; the others are not."""
    supernet = space.supernet(in_channels=3, num_classes=5, channels=2, cells=1)
    genotype = space.sample(generator)
    mixtures = {name: mixture(matrix) for name, matrix in space.one_hot(genotype).items()}
    parts = supernet.backbone.cells[0](torch.randn(2, 2, 6, 6), mixtures).unflatten(1, (-1, 2))
    chosen = matrix_of(genotype)[:-1, -1].astype(bool).tolist()
    assert [bool(parts[:, i].any()) for i in range(len(chosen))] == chosen


def test_stacks_halve_the_resolution(space):
    supernet = space.supernet(in_channels=3, num_classes=5, channels=2, cells=2)
    mixtures = {name: mixture(torch.ones(group.shape)) for name, group in space.groups.items()}
    shapes = [
        tuple(x.shape[1:]) for x in supernet.backbone.cells_outputs(torch.randn(2, 3, 9, 9), [mixtures] * 6)
    ]
    n = len(space.blocks) + 1
    widths = [2 * n, 2 * n, 4 * n, 4 * n, 8 * n, 8]
    assert shapes == [(c, side, side) for c, side in zip(widths, [9, 9, 5, 5, 3, 3], strict=True)]
