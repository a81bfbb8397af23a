"""NAS-Bench-101: published hashes, counts and sizes; pruning, neighbors and networks against brute force."""

import json
from collections import Counter
from fractions import Fraction
from itertools import combinations, permutations, product

import numpy as np
import torch
from scipy.stats import chisquare
from torch.nn import functional as F

from nas_lightning.genotype import Cell, Genotype
from nas_lightning.spaces import NasBench101
from nas_lightning.spaces.nasbench101 import (
    OPS,
    Module,
    ModuleCell,
    labelings,
    module_hash,
    module_of,
    prune,
    vertex_channels,
    whole_matrices,
)
from nas_lightning.spaces.operations import SEARCH_NORM

SPACE = NasBench101()
CONV3, CONV1, POOL = OPS
FULL_SIZE = {"in_channels": 3, "num_classes": 10, "channels": 128, "cells": 3}
INCEPTION = [  # google-research/nasbench, README.md
    [0, 1, 1, 1, 0, 1, 0],
    [0, 0, 0, 0, 0, 0, 1],
    [0, 0, 0, 0, 0, 0, 1],
    [0, 0, 0, 0, 1, 0, 0],
    [0, 0, 0, 0, 0, 0, 1],
    [0, 0, 0, 0, 0, 0, 1],
    [0, 0, 0, 0, 0, 0, 0],
]
INCEPTION_OPS = ["input", CONV1, CONV3, CONV3, CONV3, POOL, "output"]
FIRST = [  # the first record of the official files
    [0, 1, 0, 0, 1, 1, 0],
    [0, 0, 1, 0, 0, 0, 0],
    [0, 0, 0, 1, 0, 0, 1],
    [0, 0, 0, 0, 0, 1, 0],
    [0, 0, 0, 0, 0, 1, 0],
    [0, 0, 0, 0, 0, 0, 1],
    [0, 0, 0, 0, 0, 0, 0],
]
FIRST_OPS = ["input", CONV3, POOL, CONV3, CONV3, CONV1, "output"]


def whole_modules(vertices):
    """Every matrix and every choice of operations in which each vertex is between input and output."""
    places = list(combinations(range(vertices), 2))
    for bits in product((0, 1), repeat=len(places)):
        if sum(bits) > 9:
            continue
        matrix = np.zeros((vertices, vertices), dtype=int)
        matrix[tuple(zip(*places, strict=True))] = bits
        if not (matrix[:-1].any(axis=1).all() and matrix[:, 1:].any(axis=0).all()):
            continue
        for ops in product(OPS, repeat=vertices - 2):
            yield Module(tuple(map(tuple, matrix.tolist())), ops)


def test_the_hash_of_an_official_record():
    genotype = SPACE.parse({"module_adjacency": FIRST, "module_operations": FIRST_OPS})
    assert SPACE.hash(genotype) == "00005c142e6f48ac74fdcf73e3439874"


def test_published_numbers_of_parameters():
    """As the official files have them for these two."""
    for matrix, ops, published in [(INCEPTION, INCEPTION_OPS, 2_694_282), (FIRST, FIRST_OPS, 8_555_530)]:
        with torch.device("meta"):
            network = SPACE.network(SPACE.parse({"matrix": matrix, "ops": ops}), **FULL_SIZE)
        assert sum(parameter.numel() for parameter in network.parameters()) == published


def test_parameters_counted_by_hand():
    """A chain of one 3×3 convolution: projection 1×1, convolution 9×, two per channel for each batch norm."""
    with torch.device("meta"):
        network = SPACE.network(SPACE.parse(f"010001000:{CONV3}"), **FULL_SIZE)
    expected = 3 * 128 * 9 + 2 * 128 + 512 * 10 + 10  # stem and classifier
    for c_in, c in [(128, 128)] * 3 + [
        (128, 256),
        (256, 256),
        (256, 256),
        (256, 512),
        (512, 512),
        (512, 512),
    ]:
        expected += c_in * c + 2 * c + c * c * 9 + 2 * c
    assert sum(parameter.numel() for parameter in network.parameters()) == expected


def test_published_numbers_of_modules():
    """Up to 7 vertices there are 1 + 6 + 84 + 2441 + 62,010 + 359,082 = 423,624 (section 2.1)."""
    for vertices, published in [(2, 1), (3, 6), (4, 84), (5, 2441)]:
        assert len({module_hash(module) for module in whole_modules(vertices)}) == published


def test_the_hash_is_that_of_any_order_of_the_vertices(generator):
    seen = set()
    for _ in range(200):
        module = SPACE.module(SPACE.sample(generator))
        size = len(module.matrix)
        order = [0, *(1 + torch.randperm(size - 2, generator=generator)).tolist(), size - 1]
        matrix = tuple(tuple(module.matrix[i][j] for j in order) for i in order)
        ops = tuple(module.ops[vertex - 1] for vertex in order[1:-1])
        assert module_hash(Module(matrix, ops)) == module_hash(module)
        seen.add(module_hash(module))
    assert len(seen) > 100


def test_the_hash_tells_directions_labels_and_places_apart():
    """The cases that the public benchmark's own tests call tricky."""
    chain = module_of(np.eye(5, k=1, dtype=int).tolist(), [CONV1, CONV3, CONV3])
    assert module_hash(chain) != module_hash(chain._replace(ops=(CONV3, CONV3, CONV1)))
    bent = module_of([[0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]], [CONV1, CONV3])
    assert module_hash(bent) != module_hash(bent._replace(ops=(CONV3, CONV1)))


BRANCH = ((0, 1, 1, 0), (0, 0, 0, 1), (0, 0, 0, 1), (0, 0, 0, 0))
THREE = ((0, 1, 1, 1, 0), (0, 0, 0, 0, 1), (0, 0, 0, 0, 1), (0, 0, 0, 0, 1), (0, 0, 0, 0, 0))
FORK = ((0, 1, 0, 0, 0), (0, 0, 1, 1, 0), (0, 0, 0, 0, 1), (0, 0, 0, 0, 1), (0, 0, 0, 0, 0))
MIXED = ((0, 1, 0, 1, 0), (0, 0, 1, 0, 1), (0, 0, 0, 1, 0), (0, 0, 0, 0, 1), (0, 0, 0, 0, 0))


def test_worked_examples_of_the_channel_rule():
    """Those of google-research/nasbench, tests/model_builder_test.py."""
    for matrix, c_in, c_out, expected in [
        (((0, 1), (0, 0)), 5, 1, [5, 1]),
        (BRANCH, 16, 8, [16, 4, 4, 8]),
        (BRANCH, 8, 15, [8, 8, 7, 15]),
        (THREE, 8, 8, [8, 3, 3, 2, 8]),
        (THREE, 8, 15, [8, 5, 5, 5, 15]),
        (FORK, 8, 9, [8, 5, 5, 4, 9]),
        (MIXED, 8, 15, [8, 8, 7, 7, 15]),
    ]:
        assert vertex_channels(matrix, c_in, c_out) == expected


def test_channels_never_grow_along_an_edge_and_fill_the_output(generator):
    for _ in range(200):
        matrix = SPACE.module(SPACE.sample(generator)).matrix
        last = len(matrix) - 1
        channels = vertex_channels(matrix, 128, 256)
        feeding = [i for i in range(1, last) if matrix[i][last]]
        assert sum(channels[i] for i in feeding) == (256 if feeding else 0)
        for i, j in combinations(range(1, last), 2):
            assert not matrix[i][j] or channels[i] >= channels[j]


def test_vertices_that_lead_nowhere_are_pruned():
    matrix = np.zeros((6, 6), dtype=int)
    matrix[0, 1] = matrix[1, 5] = 1  # the whole path
    matrix[0, 2] = matrix[2, 3] = 1  # leads nowhere
    matrix[4, 5] = 1  # comes from nowhere
    module = module_of(matrix.tolist(), [CONV3, CONV1, CONV1, POOL])
    assert prune(module) == module_of([[0, 1, 0], [0, 0, 1], [0, 0, 0]], [CONV3])
    assert SPACE.parse({"matrix": matrix.tolist(), "ops": list(module.ops)}) == SPACE.parse(
        f"010001000:{CONV3}"
    )
    loose = Genotype("nasbench101", {"cell": Cell([(CONV3, 0, 1), (CONV1, 0, 2)], 1, [1])})
    tight = SPACE.parse(f"010001000:{CONV3}")
    assert SPACE.hash(loose) == SPACE.hash(tight)
    assert set(SPACE.neighbors(loose)) == set(SPACE.neighbors(tight))


def test_every_module_is_drawn_as_often_as_any_other():
    """Kept with probability 1/labelings, all its numberings together count 1; and there are no others."""
    for vertices, published in [(2, 1), (3, 6), (4, 84), (5, 2441)]:
        every = list(whole_modules(vertices))
        assert sorted(whole_matrices(vertices)) == sorted({module.matrix for module in every})
        shares = {}
        for module in every:
            name = module_hash(module)
            shares[name] = shares.get(name, 0) + Fraction(1, labelings(module))
        assert list(shares.values()) == [1] * published


def test_the_largest_modules_are_counted_without_listing_them():
    """4,793 matrices of 7 vertices: each in `labelings` numberings where operations are all unlike."""
    assert len(whole_matrices(7)) == 4793
    names = ("a", "b", "c", "d", "e")
    for matrix in whole_matrices(7)[::500]:
        orders = [
            order
            for order in permutations(range(1, 6))
            if all(not matrix[a][b] for place, b in enumerate(order) for a in order[place + 1 :])
        ]
        assert labelings(Module(matrix, names)) == len(orders)


def test_samples_have_the_published_shares_of_sizes(generator):
    """359,082 and 62,010 of 423,624 modules have 7 and 6 vertices (section 2.1)."""
    sizes = Counter()
    for _ in range(1500):
        module = SPACE.module(SPACE.sample(generator))
        assert prune(module) == module
        sizes[len(module.matrix)] += 1
    expected = {7: 359_082, 6: 62_010, 5: 2441 + 84 + 6 + 1}
    found = [sizes[7], sizes[6], 1500 - sizes[7] - sizes[6]]
    assert chisquare(found, [1500 * share / 423_624 for share in expected.values()]).pvalue > 1e-3


def test_neighbors_against_brute_force(generator):
    """Of all labeled modules of up to five vertices, those that are one change away."""
    every = [module for vertices in (2, 3, 4, 5) for module in whole_modules(vertices)]
    small = [module for module in every if len(module.matrix) == 4]
    for index in torch.randint(len(small), (6,), generator=generator).tolist():
        module = small[index]
        expected = {SPACE.genotype(other) for other in every if one_change(module, other)}
        assert set(SPACE.neighbors(SPACE.genotype(module))) == expected


def one_change(one, two):
    if len(one.matrix) == len(two.matrix):
        edges = np.count_nonzero(np.array(one.matrix) != np.array(two.matrix))
        return edges + sum(a != b for a, b in zip(one.ops, two.ops, strict=True)) == 1
    if abs(len(one.matrix) - len(two.matrix)) > 1:
        return False
    less, more = sorted((one, two), key=lambda module: len(module.matrix))
    return any(without(more, vertex) == less for vertex in range(1, len(more.matrix) - 1))


def without(module, vertex):
    """The module without a vertex of one edge in and one out; None where it has others."""
    matrix = np.array(module.matrix)
    if (matrix[vertex].sum(), matrix[:, vertex].sum()) != (1, 1):
        return None
    rest = np.delete(np.delete(matrix, vertex, 0), vertex, 1)
    return Module(tuple(map(tuple, rest.tolist())), module.ops[: vertex - 1] + module.ops[vertex:])


def test_a_cell_against_plain_loops(generator):
    """Project the input, cut off wider vertices, concatenate what feeds the output, add the input to it."""
    for _ in range(12):
        module = SPACE.module(SPACE.sample(generator))
        cell = ModuleCell(module, 6, 11, SEARCH_NORM).double().eval()
        x = torch.randn(2, 6, 5, 5, generator=generator).double()
        matrix, last = module.matrix, len(module.matrix) - 1
        channels = vertex_channels(matrix, 6, 11)
        value = {0: x}
        for j in range(1, last):
            total = torch.zeros(2, channels[j], 5, 5).double()
            for i in range(1, j):
                total += matrix[i][j] * value[i][:, : channels[j]] if matrix[i][j] else 0
            if matrix[0][j]:
                total += convolution(x, cell.projections[str(j)])
            pooled = F.max_pool2d(total, 3, 1, 1)
            value[j] = pooled if module.ops[j - 1] == POOL else convolution(total, cell.ops[j - 1])
        out = torch.cat(
            [value[i] for i in range(1, last) if matrix[i][last]] or [torch.zeros(2, 11, 5, 5)], 1
        )
        out = out + convolution(x, cell.projections[str(last)]) if matrix[0][last] else out
        torch.testing.assert_close(cell(x), out.double())


def convolution(x, layers):
    y = F.conv2d(x, layers[0].weight, padding="same")
    return F.relu(F.batch_norm(y, None, None, training=True))


def test_stacks_halve_the_resolution_and_double_the_channels():
    network = SPACE.network(SPACE.parse(f"010001000:{POOL}"), **{**FULL_SIZE, "channels": 4, "cells": 2})
    shapes = [tuple(x.shape[1:]) for x in network.backbone.cells_outputs(torch.randn(2, 3, 15, 15))]
    assert shapes == [(4, 15, 15)] * 2 + [(8, 8, 8)] * 2 + [(16, 4, 4)] * 2


def test_drop_path_drops_vertices(generator):
    network = SPACE.network(
        SPACE.parse({"matrix": INCEPTION, "ops": INCEPTION_OPS}), **FULL_SIZE | {"channels": 4}
    )
    x = torch.randn(8, 3, 8, 8, generator=generator)
    assert torch.equal(network(x), network(x))
    network.set_drop_path(0.5)
    assert not torch.equal(network(x), network(x))


NOTATIONS = [
    f"010001000:input,{POOL},output",
    f" 010001000:{POOL} ",
    {"matrix": [[0, 1, 0], [0, 0, 1], [0, 0, 0]], "ops": [POOL]},
    json.dumps(
        {
            "module_adjacency": [[0, 1, 0], [0, 0, 1], [0, 0, 0]],
            "module_operations": ["input", POOL, "output"],
        }
    ),
]


def test_notations():
    for text in NOTATIONS:
        genotype = SPACE.parse(text)
        assert genotype["cell"] == Cell([(POOL, 0, 1)], 1, [1])
        assert SPACE.notation(genotype) == NOTATIONS[0]


def test_invalid_notations_are_refused_in_one_line(refusal):
    for text in [
        "",
        "0",
        ":",
        "01:",
        "0101:",
        "0010:",
        "010001000",
        "010001000:sep_conv_3x3",
        "010001000:a,b,c,d",
        "000000000:maxpool3x3",
        "010:maxpool3x3",
        "0120:",
        "{",
        "[]",
        "{}",
        '{"matrix": 3, "ops": []}',
        '{"matrix": [[0, 1], [0, 0]], "ops": [1]}',
        '{"matrix": [[0, 0.5], [0, 0]], "ops": []}',
        '{"matrix": [[0, 1], [0]], "ops": []}',
        '{"matrix": [[0, 2], [0, 0]], "ops": []}',
        '{"matrix": [], "ops": []}',
        '{"matrix": [[0, true], [0, 0]], "ops": []}',
        '{"matrix": null}',
        "²²²²:",
    ]:
        assert refusal(SPACE.parse, text)


def test_modules_outside_the_benchmark_are_refused(refusal):
    dense = np.triu(np.ones((6, 6), dtype=int), 1).tolist()
    assert "at most 9 edges, got 15" in refusal(SPACE.parse, {"matrix": dense, "ops": [CONV3] * 4})
    chain = np.eye(8, k=1, dtype=int).tolist()
    assert "at most 7 vertices, got 8" in refusal(SPACE.parse, {"matrix": chain, "ops": [CONV3] * 6})
    for edges, inputs, said in (
        ([(CONV3, 0, 1), (CONV1, 0, 1)], 1, "All edges into vertex 1 must have the same operation, got"),
        ([(CONV3, 0, 1), (CONV3, 0, 1)], 1, "Edges must be distinct"),
        ([(CONV3, 0, 2)], 2, "The cell must have one input"),
        ([("skip_connect", 0, 1)], 1, "must be one of the space"),
    ):
        genotype = Genotype("nasbench101", {"cell": Cell(edges, inputs, [edges[0][2]])})
        assert said in refusal(SPACE.check, genotype)


def test_too_few_channels_to_share_are_refused(refusal):
    genotype = SPACE.parse({"matrix": INCEPTION, "ops": INCEPTION_OPS})
    small = {**FULL_SIZE, "channels": 3}
    assert "4 channels" in refusal(lambda: SPACE.network(genotype, **small))
