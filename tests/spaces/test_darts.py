"""DARTS' space: its size, its sampling, its rule of derivation, its stems."""

from itertools import combinations, product

import pytest
import torch
from scipy.stats import chisquare

from nas_lightning.errors import InputError
from nas_lightning.genotype import Cell, Genotype
from nas_lightning.spaces import DartsSpace
from nas_lightning.spaces.darts import OPS

FEW = ("none", "skip_connect", "max_pool_3x3", "avg_pool_3x3")


def every_cell(nodes, ops):
    """Brute force: of all sets of (op, source, target), those with two sources for every node."""
    edges = [(op, s, t) for t in range(2, 2 + nodes) for s in range(t) for op in ops if op != "none"]
    cells = set()
    for chosen in combinations(edges, 2 * nodes):
        sources = [[s for _, s, t in chosen if t == node] for node in range(2, 2 + nodes)]
        if all(len(s) == 2 and s[0] != s[1] for s in sources):
            cells.add(Cell(chosen, 2, range(2, 2 + nodes)))
    return cells


def test_the_published_size():
    space = DartsSpace()
    assert space.groups["normal"].shape == space.groups["reduce"].shape == (14, 8)
    assert space.groups["normal"].ops == OPS
    # Liu et al. 2019, section 3.2, count 10^9 cells: Π_k (k+1)k/2 × 7² over nodes k = 1..4
    cells = 1
    for k in range(1, 5):
        cells *= (k + 1) * k // 2 * 7**2
    assert cells == 1_037_664_180


def test_sampling_is_uniform_over_whole_genotypes(generator):
    space = DartsSpace(nodes=1, ops=FEW)
    cells = every_cell(1, FEW)
    assert len(cells) == 9
    pairs = [space.genotype_of({"normal": n, "reduce": r}) for n, r in product(cells, repeat=2)]
    counts = dict.fromkeys(pairs, 0)
    for _ in range(30 * len(pairs)):
        counts[space.sample(generator)] += 1
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_sampling_is_uniform_over_the_sources(generator):
    space = DartsSpace(nodes=2, ops=FEW[:3])
    counts = dict.fromkeys(every_cell(2, FEW[:3]), 0)
    assert len(counts) == 4 * 12  # node 2: 2²; node 3: 3 pairs of sources × 2²
    for _ in range(40 * len(counts)):
        genotype = space.sample(generator)
        counts[genotype["normal"]] += 1
        counts[genotype["reduce"]] += 1
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_neighbors_by_brute_force(generator):
    space = DartsSpace(nodes=2, ops=FEW)
    cells, genotype = every_cell(2, FEW), space.sample(generator)
    near = set()
    for kind in ("normal", "reduce"):
        edges = set(genotype[kind].edges)
        for other in cells:
            gone, new = edges - set(other.edges), set(other.edges) - edges
            if len(gone) == len(new) == 1:
                (op, source, target), (new_op, new_source, new_target) = *gone, *new
                assert target == new_target
                if (op == new_op) != (source == new_source):
                    near.add(space.genotype_of({**dict(genotype), kind: other}))
    assert set(space.neighbors(genotype)) == near


def test_derivation_keeps_the_two_strongest_edges_of_each_node(generator):
    """Section 2.4: the strength of an edge is that of its strongest operation other than none."""
    space = DartsSpace()
    group = space.groups["normal"]
    scores = {name: torch.rand(group.shape, generator=generator) for name in space.groups}
    scores["normal"][:, 0] = 10.0  # none is never chosen, however strong
    for name, cell in space.discretize(scores):
        for node in space.inner:
            strength = {
                source: max((scores[name][row, column].item(), op) for column, op in enumerate(OPS) if column)
                for row, (source, target) in enumerate(group.edges)
                if target == node
            }
            strongest = sorted(strength, key=lambda source: strength[source], reverse=True)[:2]
            assert {(e.op, e.source) for e in cell.into(node)} == {(strength[s][1], s) for s in strongest}


def test_ties_go_to_the_earlier_row_and_column():
    space = DartsSpace()
    for fill in (0.0, -1.0, 1.0):
        genotype = space.discretize({name: torch.full((14, 8), fill) for name in space.groups})
        for _, cell in genotype:
            assert {edge.op for edge in cell.edges} == {OPS[1]}
            assert [edge.source for edge in cell.edges] == [0, 1] * 4


@pytest.mark.parametrize(
    ("stem", "stride", "sides"),
    [("cifar", 1, (32, 16, 8)), ("cifar", 2, (16, 8, 4)), ("imagenet", 1, (4, 2, 1))],
)
def test_stems_and_reductions(generator, stem, stride, sides):
    space = DartsSpace()
    size = {"channels": 4, "cells": 6, "stem": stem, "stem_stride": stride}
    network = space.network(space.sample(generator), in_channels=3, num_classes=5, **size)
    maps = list(network.backbone.cells_outputs(torch.randn(2, 3, 32, 32)))
    expected = [sides[0]] * 2 + [sides[1]] * 2 + [sides[2]] * 2  # reductions are cells 6/3 and 2·6/3
    assert [tuple(m.shape[2:]) for m in maps] == [(side, side) for side in expected]
    assert [m.shape[1] for m in maps] == [4 * width for width in (4, 4, 8, 8, 16, 16)]
    assert network.backbone.kinds == ["normal", "normal", "reduce", "normal", "reduce", "normal"]


def test_supernets_have_both_stems():
    space = DartsSpace(nodes=2)
    weights = {name: torch.rand(group.shape) for name, group in space.groups.items()}
    for stem in ("cifar", "imagenet"):
        supernet = space.supernet(in_channels=3, num_classes=5, channels=4, cells=3, stem=stem, partial=2)
        assert supernet(torch.randn(2, 3, 40, 33), weights).shape == (2, 5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DartsSpace(nodes=0), "`nodes` must be at least 1"),
        (lambda: DartsSpace(ops=("none",)), "distinct operations, one other than none"),
        (lambda: DartsSpace(ops=()), "distinct operations, one other than none"),
        (lambda: DartsSpace(ops=("skip_connect",) * 2), "distinct operations"),
        (
            lambda: DartsSpace(ops=("sep_conv_3x4",)).supernet(in_channels=3, num_classes=5),
            "did you mean 'sep_conv_3x3'",
        ),
        (
            lambda: DartsSpace().supernet(in_channels=3, num_classes=5, stem="cifr"),
            "must be 'cifar' or 'imagenet', got 'cifr'",
        ),
    ],
)
def test_impossible_options(build, message):
    with pytest.raises(InputError, match=message):
        build()


def test_a_cell_that_leaves_nodes_out_is_no_path_of_the_supernet(generator):
    """The supernet returns every inner node, so weights cannot say what such a cell computes."""
    space = DartsSpace(nodes=2)
    genotype = space.sample(generator)
    cell = genotype["normal"]
    short = Genotype("darts", {**dict(genotype), "normal": Cell(cell.edges, 2, [3])})
    with pytest.raises(InputError, match="'normal' to return all 2 inner nodes"):
        space.one_hot(short)
