"""NASI's version of DARTS' space: size, derivation, the supernet against plain loops."""

from itertools import combinations, product

import pytest
import torch
from scipy.stats import chisquare
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.genotype import Cell, Genotype
from nas_lightning.spaces import DartsNasi, DartsSpace
from nas_lightning.spaces.darts_nasi import OPS
from nas_lightning.spaces.operations import NeedsReLU
from nas_lightning.spaces.supernet import mixture


def test_the_published_groups():
    """Appendix B.2: 7 operations and i inputs for node i, of two kinds of cells."""
    groups = DartsNasi().groups
    assert len(groups) == 2 * (1 + 4)
    assert set(OPS) == set(DartsSpace().groups["normal"].ops) - {"none"}
    for kind in ("normal", "reduce"):
        assert groups[f"{kind}_op"].shape == (4, 7)
        assert [groups[f"{kind}_input_{i}"].shape for i in range(2, 6)] == [(1, 2), (1, 3), (1, 4), (1, 5)]


def test_the_two_largest_of_each_are_kept_and_paired_in_their_order():
    space = DartsNasi(nodes=2)
    scores = {name: torch.zeros(group.shape) for name, group in space.groups.items()}
    scores["normal_op"][1, 5], scores["normal_op"][1, 2] = 0.9, 0.8
    scores["normal_input_3"][0] = torch.tensor([0.1, 0.2, 0.3])
    cell = space.discretize(scores)["normal"]
    assert cell.into(3) == (("skip_connect", 1, 3), ("dil_conv_3x3", 2, 3))
    assert cell.into(2) == ((OPS[0], 0, 2), (OPS[1], 1, 2))  # ties go to the earlier
    assert cell.output == (2, 3)


def test_sampling_is_uniform_over_a_whole_cell(generator):
    space = DartsNasi(nodes=2)
    every = set()
    for first, second, inputs in product(
        combinations(OPS, 2), combinations(OPS, 2), combinations(range(3), 2)
    ):
        edges = [(first[0], 0, 2), (first[1], 1, 2), (second[0], inputs[0], 3), (second[1], inputs[1], 3)]
        every.add(Cell(edges, 2, (2, 3)))
    counts = dict.fromkeys(every, 0)
    assert len(counts) == 21 * 21 * 3
    for _ in range(5 * len(counts)):
        for _, cell in space.sample(generator):
            counts[cell] += 1
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_neighbors_against_brute_force(generator):
    """Of all genotypes of one node, those with one other operation (one node has but two inputs)."""
    space = DartsNasi(nodes=1)
    every = [
        space.genotype_of({k: Cell([(p[0], 0, 2), (p[1], 1, 2)], 2, [2]) for k, p in pairs.items()})
        for pairs in (
            {"normal": n, "reduce": r} for n, r in product(combinations(OPS, 2), combinations(OPS, 2))
        )
    ]
    genotype = space.sample(generator)
    near = [other for other in every if sum(_unlike(genotype, other)) == 1]
    assert set(space.neighbors(genotype)) == set(near)
    assert len(near) == 2 * 2 * 5


def _unlike(one, two):
    return [len(set(_ops(two[kind])) - set(_ops(one[kind]))) for kind in ("normal", "reduce")]


def _ops(cell):
    return [edge.op for edge in cell.edges]


def test_number_of_neighbors_with_three_inputs(generator):
    space = DartsNasi(nodes=3)
    # per node 2 × 5 other operations and 2 × (i − 2) other inputs
    assert len(space.neighbors(space.sample(generator))) == 2 * (3 * 10 + 2 * (0 + 1 + 2))


WRONG = {
    "twice": [("skip_connect", 0, 2), ("skip_connect", 1, 2)],
    "order": [("sep_conv_3x3", 0, 2), ("skip_connect", 1, 2)],
    "none": [("none", 0, 2), ("skip_connect", 1, 2)],
    "one source": [("max_pool_3x3", 0, 2), ("skip_connect", 0, 2)],
}


def test_cells_of_darts_that_the_space_does_not_have_are_refused():
    for edges in WRONG.values():
        space = DartsNasi(nodes=1)
        good = Cell([("max_pool_3x3", 0, 2), ("skip_connect", 1, 2)], 2, [2])
        space.check(Genotype("darts_nasi", {"normal": good, "reduce": good}))
        with pytest.raises(InputError, match=r"^Node 2 of 'reduce' must have two inputs"):
            space.check(Genotype("darts_nasi", {"normal": good, "reduce": Cell(edges, 2, [2])}))


def test_a_supernets_cell_against_plain_loops(generator):
    """x_i = Σ_o w_io o(Σ_j v_ij x_j), with random weights."""
    space = DartsNasi()
    supernet = space.supernet(in_channels=3, num_classes=5, channels=4, cells=3).double()
    graph = supernet.backbone.cells[0].graph
    inputs = [torch.randn(2, 4, 6, 6, generator=generator).double() for _ in range(2)]
    weights = {name: torch.rand(g.shape, generator=generator).double() for name, g in space.groups.items()}
    found = graph(inputs, {name: mixture(matrix) for name, matrix in weights.items()})
    kind = supernet.backbone.kinds[0]
    nodes = list(inputs)
    for i in range(4):
        x = sum(weights[f"{kind}_input_{i + 2}"][0, j] * nodes[j] for j in range(i + 2))
        outputs = [op(F.relu(x) if isinstance(op, NeedsReLU) else x) for op in graph.ops[i]]
        nodes.append(sum(weights[f"{kind}_op"][i, o] * outputs[o] for o in range(7)))
    for one, two in zip(found, nodes, strict=True):
        torch.testing.assert_close(one, two)


def test_reductions_are_poolings_between_cells():
    """No operation of the supernet has a stride, and the resolution halves twice."""
    space = DartsNasi(nodes=1)
    supernet = space.supernet(in_channels=3, num_classes=5, channels=4, cells=3)
    strides = {m.stride for m in supernet.backbone.cells.modules() if isinstance(m, torch.nn.Conv2d)}
    assert strides == {(1, 1)}
    mixtures = {name: mixture(torch.ones(group.shape)) for name, group in space.groups.items()}
    shapes = [
        tuple(x.shape[1:]) for x in supernet.backbone.cells_outputs(torch.randn(2, 3, 16, 16), [mixtures] * 3)
    ]
    assert shapes == [(4, 16, 16), (8, 8, 8), (16, 4, 4)]


def test_the_derived_network_is_one_of_darts(generator):
    """The same modules in the same places as DARTS' space builds for the same cells."""
    space, darts = DartsNasi(), DartsSpace()
    genotype = space.sample(generator)
    sizes = {"in_channels": 3, "num_classes": 5, "channels": 4, "cells": 3}
    network = space.network(genotype, **sizes)
    twin = darts.network(Genotype("darts", dict(genotype)), **sizes)
    twin.load_state_dict(network.state_dict())
    x = torch.randn(2, 3, 16, 16, generator=generator)
    assert torch.equal(network(x), twin(x))
