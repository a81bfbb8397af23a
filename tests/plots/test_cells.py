"""Pictures of cells, judged by where their marks are: nothing overlaps, and everything is there once."""

import itertools
import json
import random

import pytest
import torch

from nas_lightning.genotype import Cell, Genotype
from nas_lightning.plots import draw_cell, draw_genotype, draw_topologies
from nas_lightning.plots.cells import isotonic, lay_out
from nas_lightning.plots.picture import Box, Line, Picture, Text
from nas_lightning.plots.style import kind, op_label
from nas_lightning.spaces import DartsSpace, NasBench201
from tests.plots.flat import extent, flat, inside, of_kind, overlap, texts

SPACES = {"darts": DartsSpace(), "nasbench201": NasBench201()}


def sample(space, count):
    generator = torch.Generator().manual_seed(1)
    return [SPACES[space].sample(generator) for _ in range(count)]


def along(line):
    """Points on a line, whose pieces are Bézier curves."""
    for (x0, y0), (x1, y1) in itertools.pairwise(line.points):
        for step in range(1, 20):
            t = step / 20
            x = (1 - t) ** 3 * x0 + 1.5 * t * (1 - t) * (x0 + x1) + t**3 * x1
            yield x, (1 - t) ** 2 * (1 + 2 * t) * y0 + t**2 * (3 - 2 * t) * y1


def assert_readable(picture):
    """No text over another, no label over a node, no edge through a node or the label of another edge."""
    boxes = [extent(mark) for mark in of_kind(picture, Box)]
    words = [extent(mark) for mark in of_kind(picture, Text)]
    for a, b in [*itertools.combinations(boxes, 2), *itertools.combinations(words, 2)]:
        assert not overlap(a, b)
    for word in words:
        around = [box for box in boxes if overlap(box, word)]
        assert len(around) <= 1
        assert all(inside(word, box) for box in around)
    whole = (0, 0, picture.width, picture.height)
    assert all(inside(mark, whole) for mark in (*boxes, *words))
    for line in of_kind(picture, Line):
        if line.curved:  # an edge: it meets nodes at their border, and crosses no box but that of its label
            crossed = {
                box for box in boxes for x, y in along(line) if inside((x - 2, y - 2, x + 2, y + 2), box)
            }
            assert len(crossed) <= 1
            levels = {round(y, 3) for _, y in line.points}
            assert all(round((box[1] + box[3]) / 2, 3) in levels for box in crossed)


def test_random_and_published_genotypes_are_readable(shared_data):
    for space in SPACES:
        for genotype in sample(space, 50):
            assert_readable(draw_genotype(genotype))
    published = json.loads((shared_data / "genotypes.json").read_text())
    assert len(published) >= 10
    for fields in published.values():
        assert_readable(draw_genotype(DartsSpace().parse(fields)))


def test_overlaps_would_be_noticed():
    picture = draw_genotype(sample("darts", 1)[0])
    marks = flat(picture)
    label = next(mark for mark in marks if isinstance(mark, Text) and "×" in mark.text)
    with pytest.raises(AssertionError):
        assert_readable(Picture(picture.width, picture.height, [*marks, label]))


def test_every_operation_and_node_is_drawn_once():
    for genotype in (*sample("darts", 10), *sample("nasbench201", 10)):
        for _, cell in genotype:
            picture = draw_cell(cell)
            shown = texts(picture)
            expected = [op_label(edge.op) for edge in cell.edges if edge.op != "none"]
            assert sorted(text for text in shown if text in set(expected)) == sorted(expected)
            inner = cell.nodes - cell.inputs - (len(cell.output) == 1)
            assert [str(n) in shown for n in range(inner)] == [True] * inner
            assert shown.count("c") == cell.inputs + 1
            gathered = len(cell.output) if len(cell.output) > 1 else 0
            assert sum(line.curved for line in of_kind(picture, Line)) == len(cell.edges) + gathered


def test_edges_lead_from_source_to_target_in_the_color_of_their_kind():
    cell = Cell(
        [("max_pool_3x3", 0, 2), ("skip_connect", 1, 2), ("dil_conv_5x5", 2, 3), ("none", 0, 3)], 2, [2, 3]
    )
    picture, centers = draw_cell(cell, "one"), lay_out(cell).nodes
    edges = [line for line in of_kind(picture, Line) if line.curved]
    for edge, line in zip(cell.edges, edges, strict=False):
        for point, node in ((line.points[0], edge.source), (line.points[-1], edge.target)):
            at = (point[0] - 11, point[1] - 11)  # the border of the picture
            near = min(centers, key=lambda n: (centers[n][0] - at[0]) ** 2 + (centers[n][1] - at[1]) ** 2)
            assert near == node
        assert line.color == f"kind-{kind(edge.op).key}"
    assert "skip of c k−1" in picture.label


def test_unusual_cells_are_readable():
    parallel = Cell(
        [("avg_pool_3x3", 0, 2), ("avg_pool_3x3", 0, 2), ("an_operation_of_my_own", 0, 3)], 2, [2, 3]
    )
    empty = NasBench201().parse("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|")
    tiny = Genotype("tiny", {"cell": Cell([("skip_connect", 0, 1)], 1, [1])})
    for picture in (draw_cell(parallel), draw_genotype(empty), draw_genotype(tiny)):
        assert_readable(picture)


def test_marked_edges_and_rows_are_attributes():
    cell = Cell([("skip_connect", 0, 2), ("max_pool_3x3", 1, 2)], 2, [2])
    svg = draw_cell(cell, rows={(0, 2): "normal/3"}, marked=cell.edges[:1]).svg()
    assert svg.count('class="edge marked"') == svg.count('data-row="normal/3"') == 1
    assert 'data-edge="1 2 max_pool_3x3"' in svg


def test_topologies_have_no_operations():
    wide = Cell([("sep_conv_3x3", 0, 2), ("skip_connect", 1, 2), ("avg_pool_3x3", 0, 3)], 2, [2, 3])
    deep = Cell([("sep_conv_3x3", 0, 2), ("skip_connect", 2, 3), ("skip_connect", 3, 4)], 2, [4])
    picture = draw_topologies({"wide: 2c, 2": wide, "deep: 1c, 3": deep, "again": wide})
    assert_readable(picture)
    assert sum(line.curved for line in of_kind(picture, Line)) == 5 + 3 + 5
    shown = texts(picture)
    assert {"wide: 2c, 2", "deep: 1c, 3", "again", "separable convolution", "pooling"} <= set(shown)
    assert not any("conv 3×3" in text for text in shown)


def test_isotonic_against_the_minimum_over_all_partitions():
    """The solution is constant on blocks, each at its weighted mean: try every partition (6 values, 32)."""
    chance = random.Random(0)
    for _ in range(20):
        values = [chance.uniform(-1, 1) for _ in range(6)]
        weights = [chance.uniform(0.1, 2) for _ in range(6)]
        best, least = None, float("inf")
        for cuts in itertools.product([False, True], repeat=5):
            starts = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), 6]
            level = []
            for a, b in itertools.pairwise(starts):
                mean = sum(w * v for v, w in zip(values[a:b], weights[a:b], strict=True)) / sum(weights[a:b])
                level += [mean] * (b - a)
            error = sum(w * (v - x) ** 2 for v, w, x in zip(values, weights, level, strict=True))
            if all(x <= y for x, y in itertools.pairwise(level)) and error < least:
                best, least = level, error
        assert isotonic(values, weights) == pytest.approx(best)
