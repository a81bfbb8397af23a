"""Depth, width, and skips of cells, against enumerations of all paths."""

from fractions import Fraction
from itertools import combinations, pairwise

import pytest
import torch
from omegaconf import OmegaConf

from nas_lightning.genotype import Cell, Genotype
from nas_lightning.options import config_folder
from nas_lightning.spaces import DartsSpace, NasBench101, NasBench201
from nas_lightning.spaces.topology import depth, skips, topology_metrics, topology_text, width


def depth_by_enumeration(cell):
    """Try every increasing sequence of inner nodes as a path from an input to an output node."""
    joined = {(edge.source, edge.target) for edge in cell.edges if edge.op != "none"}
    inner = range(cell.inputs, cell.nodes)
    longest = 0
    for count in range(1, len(inner) + 1):
        for nodes in combinations(inner, count):
            starts = any((source, nodes[0]) in joined for source in range(cell.inputs))
            if starts and nodes[-1] in cell.output and all(pair in joined for pair in pairwise(nodes)):
                longest = max(longest, count)
    return longest


def width_by_counting(cell):
    total = Fraction(0)
    for node in range(cell.inputs, cell.nodes):
        into = [edge for edge in cell.edges if edge.target == node and edge.op != "none"]
        total += Fraction(len([e for e in into if e.source < cell.inputs]), len(into)) if into else 0
    return total


@pytest.mark.parametrize("space", [DartsSpace(), NasBench201(), NasBench101(), DartsSpace(nodes=2)])
def test_random_cells_against_all_paths(space, generator):
    found = set()
    for _ in range(60):
        for _, cell in space.sample(generator):
            assert depth(cell) == depth_by_enumeration(cell)
            assert width(cell) == width_by_counting(cell)
            assert skips(cell) == [edge.op for edge in cell.edges].count("skip_connect")
            found.add(depth(cell))
    assert len(found) > 1


def test_the_zero_operation_connects_nothing():
    cell = NasBench201().parse("|none~0|+|nor_conv_3x3~0|skip_connect~1|+|none~0|none~1|none~2|")["cell"]
    assert (depth(cell), width(cell), skips(cell)) == (0, Fraction(1, 2), 1)  # nothing reaches the output


@pytest.mark.parametrize(("name", "expected"), [("pr_darts", 4), ("darts_v1", 2), ("amoebanet", 3)])
def test_published_cells(name, expected):
    """PR-DARTS' own normal cell is as deep as a cell of four nodes can be."""
    yaml = OmegaConf.load(config_folder() / "genotype" / f"{name}.yaml")
    genotype = DartsSpace().parse(OmegaConf.to_container(yaml))
    assert depth(genotype["normal"]) == depth_by_enumeration(genotype["normal"]) == expected


def test_metrics_and_text_of_a_genotype():
    cells = {
        "normal": Cell([("skip_connect", 0, 2), ("a", 1, 2), ("a", 2, 3)], 2, [2, 3]),
        "reduce": Cell([("a", 0, 2), ("a", 1, 3)], 2, [2, 3]),
    }
    genotype = Genotype("darts", cells)
    assert topology_metrics(genotype) == {
        **{"depth/normal": 2.0, "width/normal": 1.0, "skips/normal": 1.0},
        **{"depth/reduce": 1.0, "width/reduce": 2.0, "skips/reduce": 0.0},
    }
    text = "normal: depth 2, width 1, 1 skip; reduce: depth 1, width 2, 0 skips"
    assert topology_text(genotype) == text
    assert topology_text(Genotype("mlp", {}, choices={"a": 1})) == ""


def test_a_deeper_random_draw_is_rare(generator):
    """Random wiring has a mean depth of 2.8: what a search of deep cells is compared with."""
    depths = torch.tensor([depth(DartsSpace().sample(generator)["normal"]) for _ in range(400)]).float()
    assert 2.6 < float(depths.mean()) < 3.0
