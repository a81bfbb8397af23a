"""Networks of NAS-Bench-201, and all its 15,625 cells."""

import csv

import pytest
import torch
from scipy.stats import chisquare

from nas_lightning.errors import InputError
from nas_lightning.genotype import Cell, Genotype
from nas_lightning.spaces import NasBench201
from nas_lightning.spaces.nasbench201 import EDGES, OPS


def test_every_cell_round_trips():
    """String ↔ genotype ↔ one-hot for an eighth of the 5⁶ cells, whose names all differ."""
    space, seen = NasBench201(), set()
    for number, genotype in enumerate(space.all()):
        text = space.notation(genotype)
        seen.add(text)
        if number % 8:
            continue
        ops = [part.split("~")[0] for node in text.split("+") for part in node.strip("|").split("|")]
        assert [OPS[column] for column in space.one_hot(genotype)["cell"].argmax(1)] == ops
        assert space.parse(text) == genotype
        assert space.discretize(space.one_hot(genotype)) == genotype
    assert len(seen) == 5**6


def test_the_table_names_exactly_these_cells(shared_data):
    space = NasBench201()
    with (shared_data / "nasbench201" / "test_accuracy.csv").open() as file:
        named = {row["arch"] for row in csv.DictReader(file)}
    assert named == {space.notation(genotype) for genotype in space.all()}


def test_sampling_is_uniform(generator):
    """Each edge by itself, and each pair of edges jointly."""
    space = NasBench201()
    drawn = [space.sample(generator).ops for _ in range(2500)]
    for a in range(len(EDGES)):
        for b in range(a):
            counts = [sum(ops[a] == x and ops[b] == y for ops in drawn) for x in OPS for y in OPS]
            assert chisquare(counts).pvalue > 1e-4


def test_neighbors_are_the_24_cells_at_distance_one(generator):
    space = NasBench201()
    genotype = space.sample(generator)
    near = {g for g in space.all() if sum(x != y for x, y in zip(g.ops, genotype.ops, strict=True)) == 1}
    assert set(space.neighbors(genotype)) == near
    assert len(near) == 24


def test_ties_go_to_the_earlier_column():
    space = NasBench201()
    assert set(space.discretize({"cell": torch.zeros(6, 5)}).ops) == {"none"}


def test_other_cells_are_refused():
    for changes in [
        {"output": [2]},
        {"output": [3, 2]},
        {"edges": [("none", s, t) for s, t in EDGES[:-1]]},
        {"edges": [("sep_conv_3x3", s, t) for s, t in EDGES]},
        {"edges": [("skip_connect", s, t) for s, t in (*EDGES, (0, 3))]},
        {"inputs": 2, "edges": [("none", s, t) for s, t in EDGES[1:]]},
    ]:
        space = NasBench201()
        parts = {"edges": [("none", s, t) for s, t in EDGES], "inputs": 1, "output": [3], **changes}
        genotype = Genotype("nasbench201", {"cell": Cell(**parts)})
        for call in (space.check, space.notation, lambda g: space.parse(g.to_dict())):
            with pytest.raises(InputError):
                call(genotype)


def test_three_stages(generator):
    space = NasBench201()
    size = {"channels": 2, "cells": 2}
    network = space.network(space.sample(generator), in_channels=3, num_classes=5, **size)
    maps = list(network.backbone.cells_outputs(torch.randn(2, 3, 18, 11)))
    assert [tuple(m.shape[1:]) for m in maps] == [(2, 18, 11)] * 2 + [(4, 9, 6)] * 2 + [(8, 5, 3)] * 2
    assert network.backbone.auxiliary_at == 3


def test_cell_without_paths_has_constant_logits():
    """No path from input to output: the logits are the same for every image, and defined."""
    space = NasBench201()
    genotype = space.parse("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|")
    network = space.network(genotype, in_channels=3, num_classes=5, channels=4, cells=1)
    logits = network(torch.randn(3, 3, 8, 8))
    torch.testing.assert_close(logits, logits[:1].expand_as(logits))
    assert bool(torch.isfinite(logits).all())
