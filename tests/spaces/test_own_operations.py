"""Edges with operations of their own, as in RobustDARTS' space S1: two each, named by the space's yaml."""

from collections import Counter
from itertools import combinations, product

import pytest
import torch

from nas_lightning.errors import InputError
from nas_lightning.genotype import Cell, Edge, Genotype
from nas_lightning.spaces import DartsSpace, Group
from nas_lightning.strategies.one_shot.regularizers import group_sparsity, path_depth
from tests.strategies.conftest import build_search, quiet_trainer
from tests.yamls import composed, options

POOL, SKIP, SEP, DIL = "max_pool_3x3", "skip_connect", "sep_conv_3x3", "dil_conv_5x5"
OPS = (POOL, SKIP, SEP, DIL)
EDGE_OPS = {
    "normal": [[SKIP, SEP], [DIL, SKIP], [SKIP, SEP], [POOL, SKIP], [SEP, DIL]],
    "reduce": [[POOL, SKIP], [SKIP, DIL], [POOL, SKIP], [SEP, DIL], [SKIP, SEP]],
}
SIZE = {"in_channels": 1, "num_classes": 3, "channels": 4, "cells": 3, "stem_multiplier": 1}
PAPERS = ("darts", "drnas", "gdas", "pr_darts", "snas", "reinmax", "gaea", "fair_darts", "darts_minus")


@pytest.fixture
def space():
    return DartsSpace(nodes=2, ops=OPS, edge_ops=EDGE_OPS)


def edge_has(kind, edge):
    rows = [(0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]
    return edge.op in EDGE_OPS[kind][rows.index((edge.source, edge.target))]


def every_cell(kind):
    """All cells by brute force: two edges a node from different nodes, each with one of its operations."""
    edges = [Edge(op, s, t) for t in (2, 3) for s in range(t) for op in OPS]
    edges = [edge for edge in edges if edge_has(kind, edge)]
    pairs = {t: [p for p in combinations(edges, 2) if p[0].source != p[1].source] for t in (2, 3)}
    into = {t: [p for p in pairs[t] if p[0].target == p[1].target == t] for t in (2, 3)}
    return {Cell([*two, *three], 2, (2, 3)) for two, three in product(into[2], into[3])}


def test_draws_are_uniform_over_the_cells_that_there_are(space):
    generator = torch.Generator().manual_seed(0)
    cells = every_cell("normal")
    drawn = Counter(space.sample(generator)["normal"] for _ in range(40 * len(cells)))
    assert set(drawn) == cells
    assert max(drawn.values()) < 4 * min(drawn.values())


def test_steps_between_neighbors_lead_from_each_cell_to_every_other(space):
    generator = torch.Generator().manual_seed(1)
    start = space.sample(generator)
    seen, new = {start["normal"]}, [start]
    while new:
        found = [n for g in new for n in space.neighbors(g) if n["normal"] not in seen]
        new = list({n["normal"]: n for n in found}.values())
        seen |= {n["normal"] for n in new}
    assert seen == every_cell("normal")


def test_neighbors_are_mutual_and_differ_in_one_edge(space):
    genotype = space.sample(torch.Generator().manual_seed(2))
    for other in space.neighbors(genotype):
        assert sum(len({*other[kind].edges} - {*genotype[kind].edges}) for kind in EDGE_OPS) == 1
        assert genotype in space.neighbors(other)


def test_one_hot_and_discretize_are_inverse(space):
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        genotype = space.sample(generator)
        assert space.discretize(space.one_hot(genotype)) == genotype


def test_its_supernet_is_that_of_all_operations_with_zeros_where_edges_have_others(space):
    torch.manual_seed(0)
    whole = DartsSpace(nodes=2, ops=OPS)
    ours, theirs = space.supernet(**SIZE), whole.supernet(**SIZE)
    theirs.load_state_dict({**theirs.state_dict(), **ours.state_dict()})
    weights = {name: torch.rand(group.shape) for name, group in space.groups.items()}
    spread = {name: group.by_name(weights[name]) for name, group in space.groups.items()}
    for name, group in space.groups.items():
        for row, names in enumerate(EDGE_OPS[name]):
            assert spread[name][row].count_nonzero() == 2
            assert [spread[name][row, group.ops.index(op)] for op in names] == weights[name][row].tolist()
    x = torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(ours(x, weights), theirs(x, spread))


@pytest.mark.parametrize("name", PAPERS)
def test_searches_derive_what_edges_have(name):
    words = [f"space.ops=[{','.join(OPS)}]", "space.nodes=2"]
    words += [f"+space.edge_ops.{kind}={rows}".replace("'", "") for kind, rows in EDGE_OPS.items()]
    strategy, data = build_search(name, "darts", *words)
    quiet_trainer(1).fit(strategy, data)
    (genotype,) = strategy.derive()
    assert all(edge_has(kind, edge) for kind, cell in genotype for edge in cell.edges)
    assert all(bool(torch.isfinite(value).all()) for value in strategy.state_dict().values())


GROUP = Group(((0, 2), (1, 2), (2, 3)), OPS, own=((SKIP, SEP), (DIL, SKIP), (POOL, SEP)))
P = torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])


def test_regularizers_find_operations_on_each_edge():
    sparsity = group_sparsity(P, GROUP, pooling_group=True)
    assert sparsity["skip"].item() == pytest.approx((0.1 + 0.4) / 2)
    assert sparsity["pooling"].item() == pytest.approx(0.5)
    assert sparsity["nonskip"].item() == pytest.approx((0.2 + 0.3 + 0.6) / 3)
    assert path_depth(P, GROUP).item() == pytest.approx(0.3 * 0.6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edge_ops": {"normal": EDGE_OPS["normal"]}}, "expected operations for normal, reduce"),
        ({"nodes": 3}, "expected operations for 9 edges, got 5"),
        (
            {"edge_ops": {**EDGE_OPS, "reduce": [*EDGE_OPS["reduce"][:4], [SEP]]}},
            "expected as many operations on every edge, got",
        ),
        (
            {"edge_ops": {**EDGE_OPS, "reduce": [*EDGE_OPS["reduce"][:4], [SEP, "avg_pool_3x3"]]}},
            "expected an operation of the space",
        ),
        (
            {"edge_ops": {**EDGE_OPS, "reduce": [*EDGE_OPS["reduce"][:4], [SEP, SEP]]}},
            "expected distinct operations",
        ),
    ],
)
def test_operations_that_do_not_fit_the_edges_are_refused(change, message):
    with pytest.raises(InputError) as error:
        DartsSpace(**{"nodes": 2, "ops": OPS, "edge_ops": EDGE_OPS, **change})
    assert str(error.value).startswith(message)


def test_an_operation_that_another_edge_has_is_no_architecture(space):
    cells = dict(space.sample(torch.Generator().manual_seed(4)))
    edges = [edge for edge in cells["normal"].edges if edge.target == 3]
    cells["normal"] = Cell([Edge(POOL, 0, 2), Edge(SKIP, 1, 2), *edges], 2, (2, 3))
    with pytest.raises(InputError, match="expected an operation of the space"):
        space.one_hot(Genotype(space.name, cells, space.settings))


def test_s1_has_two_operations_on_every_edge():
    assert "robust_darts_s1" in options("experiment")
    config = composed("search", "experiment=robust_darts_s1").space
    found = DartsSpace(ops=config.ops, edge_ops=config.edge_ops)
    assert {name: group.shape for name, group in found.groups.items()} == {
        "normal": (14, 2),
        "reduce": (14, 2),
    }
    assert Counter(op for ops in found.groups["normal"].own for op in ops)[SKIP] == 12
