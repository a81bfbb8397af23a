"""Pictures, judged by what was rendered: boxes that overlap, ink that is there, bytes that repeat."""

import itertools
import json
import random
import subprocess
import sys
import threading

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path
from matplotlib.transforms import Bbox

from nas_lightning.errors import InputError
from nas_lightning.genotype import Cell, Genotype
from nas_lightning.plots import draw_cell, draw_curves, draw_genotype, draw_weights, save
from nas_lightning.plots.cells import isotonic
from nas_lightning.plots.curves import by_epoch
from nas_lightning.plots.style import kind, op_label
from nas_lightning.spaces import DartsSpace, NasBench201

SPACES = {"darts": DartsSpace(), "nasbench201": NasBench201()}


def sample_path(space, count):
    generator = torch.Generator().manual_seed(1)
    return [SPACES[space].sample(generator) for _ in range(count)]


def assert_readable(figure):
    """No text over another, no label over a node, no edge through a node or another edge's label."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    whole = figure.bbox
    for axes in figure.axes:
        texts = [text.get_window_extent(renderer) for text in axes.texts if text.get_text()]
        boxes = [
            p.get_window_extent(renderer) for p in axes.patches if isinstance(p, FancyBboxPatch | Circle)
        ]
        arrows = [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
        labeled = len(boxes) - sum(is_node(text) for text in axes.texts)
        for a, b in [*itertools.combinations(texts, 2), *itertools.combinations(boxes, 2)]:
            assert Bbox.intersection(a, b) is None
        for text in texts:  # each stands inside a box, or outside of all of them as the title does
            around = [box for box in boxes if Bbox.intersection(box, text) is not None]
            assert len(around) <= 1
            assert all(contains(box, text) for box in around)
        assert all(contains(whole, box) for box in (*texts, *boxes))
        crossed = []
        for arrow in arrows:
            line = arrow.get_path().to_polygons(closed_only=False)[0]
            points = axes.transData.transform(Path(line).interpolated(50).vertices)
            crossed.append(sum(touches(core(box), points) for box in boxes))
        # an edge meets its nodes at their border, and crosses no box but its own label's
        assert sorted(crossed) == [0] * (len(arrows) - labeled) + [1] * labeled


def is_node(text):
    return text.get_text().startswith("$c_") or text.get_text().isdigit()


def core(box):
    """The middle of a box, or where it is square of the disc in it."""
    square = abs(box.width - box.height) < 1
    return box.expanded(0.7, 0.7) if square else box.padded(-2)


def contains(outer, inner, slack=0.6):
    return (
        outer.x0 <= inner.x0 + slack
        and outer.x1 >= inner.x1 - slack
        and outer.y0 <= inner.y0 + slack
        and outer.y1 >= inner.y1 - slack
    )


def touches(box, points):
    return bool(((points > (box.x0, box.y0)) & (points < (box.x1, box.y1))).all(axis=1).any())


def labels(axes):
    return [text.get_text() for text in axes.texts]


@pytest.mark.parametrize("space", SPACES)
def test_fifty_random_genotypes_are_readable(space):
    for genotype in sample_path(space, 50):
        assert_readable(draw_genotype(genotype))


def test_all_published_cells_are_readable(shared_data):
    published = json.loads((shared_data / "genotypes.json").read_text())
    assert len(published) >= 10
    for fields in published.values():
        assert_readable(draw_genotype(DartsSpace().parse(fields)))


def test_overlaps_would_be_noticed():
    figure = draw_genotype(sample_path("darts", 1)[0])
    first, second = [
        text for text in figure.axes[0].texts if "×" in text.get_text() or text.get_text() == "skip"
    ][:2]
    second.set_position(first.get_position())
    with pytest.raises(AssertionError):
        assert_readable(figure)


@pytest.mark.parametrize("space", SPACES)
def test_every_operation_and_node_is_drawn_once(space):
    for genotype in sample_path(space, 10):
        figure = draw_genotype(genotype)
        for axes, (_, cell) in zip(figure.axes, genotype, strict=True):
            shown = labels(axes)
            expected = [op_label(edge.op) for edge in cell.edges if edge.op != "none"]
            assert sorted(text for text in shown if text in set(expected)) == sorted(expected)
            inner = cell.nodes - cell.inputs - (len(cell.output) == 1)
            assert [str(n) in shown for n in range(inner)] == [True] * inner
            assert shown.count("$c_k$") + shown.count("$c_{k-1}$") == 2
            gathered = len(cell.output) if len(cell.output) > 1 else 0
            arrows = [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
            assert len(arrows) == len(cell.edges) + gathered


def test_edges_lead_from_source_to_target_in_the_color_of_their_kind():
    cell = Cell(
        [("max_pool_3x3", 0, 2), ("skip_connect", 1, 2), ("dil_conv_5x5", 2, 3), ("none", 0, 3)], 2, [2, 3]
    )
    axes = draw_cell(cell, "one").axes[0]
    arrows = [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
    names = {"$c_{k-2}$": 0, "$c_{k-1}$": 1, "0": 2, "1": 3}
    where = {names[t.get_text()]: t.get_position() for t in axes.texts if t.get_text() in names}
    for edge, arrow in zip(cell.edges, arrows[: len(cell.edges)], strict=True):
        vertices = arrow._path_original.vertices
        for point, node in ((vertices[0], edge.source), (vertices[-1], edge.target)):
            near = min(where, key=lambda n: (where[n][0] - point[0]) ** 2 + (where[n][1] - point[1]) ** 2)
            assert near == node
        assert arrow.get_edgecolor() == to_rgba(kind(edge.op).color)


def test_parallel_edges_and_wide_or_unknown_operations_are_readable():
    parallel = Cell(
        [("avg_pool_3x3", 0, 2), ("avg_pool_3x3", 0, 2), ("an_operation_of_my_own", 0, 3)], 2, [2, 3]
    )
    assert_readable(draw_cell(parallel))
    empty = NasBench201().parse("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|")
    assert_readable(draw_genotype(empty))


def test_one_cell_genotype_of_one_edge():
    assert_readable(draw_genotype(Genotype("tiny", {"cell": Cell([("skip_connect", 0, 1)], 1, [1])})))


def test_kinds_are_told_apart_by_color():
    ops = ["none", "skip_connect", "max_pool_3x3", "sep_conv_3x3", "dil_conv_3x3", "nor_conv_3x3", "mine"]
    assert len({kind(op).color for op in ops}) == len(ops)
    assert kind("avg_pool_3x3") == kind("max_pool_3x3")


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


def history(space, epochs):
    groups = SPACES[space].groups
    return [
        {
            "epoch": epoch,
            "groups": {
                name: {"edges": g.edges, "ops": g.ops, "scores": torch.rand(g.shape).softmax(-1).tolist()}
                for name, g in groups.items()
            },
        }
        for epoch in range(epochs)
    ]


def test_weights_hold_every_score():
    entries = history("darts", 3)
    figure = draw_weights(entries, "reduce")
    panels = [axes for axes in figure.axes if axes.lines]
    assert len(panels) == 14
    expected = {
        tuple(entry["groups"]["reduce"]["scores"][edge][op] for entry in entries)
        for edge in range(14)
        for op in range(8)
    }
    assert {tuple(line.get_ydata()) for axes in panels for line in axes.lines} == expected
    bold = [line for axes in panels for line in axes.lines if line.get_linewidth() > 1.5]
    tops = [max(row) for row in entries[-1]["groups"]["reduce"]["scores"]]
    assert [line.get_ydata()[-1] for line in bold] == tops


def test_weights_of_a_chain_wrap_and_text_does_not_overlap():
    chain = {"edges": [[n, n + 1] for n in range(9)], "ops": ["a", "b"], "scores": [[0.3, 0.7]] * 9}
    figure = draw_weights([{"epoch": 0, "groups": {"activation": chain}}], "activation")
    assert len([axes for axes in figure.axes if axes.lines]) == 9
    for drawn in (figure, draw_weights(history("darts", 4), "normal")):
        renderer = FigureCanvasAgg(drawn).get_renderer()
        drawn.draw_without_rendering()
        titles = [axes.title for axes in drawn.axes] + [
            t for legend in drawn.legends for t in legend.get_texts()
        ]
        extents = [text.get_window_extent(renderer) for text in titles if text.get_text()]
        for a, b in itertools.combinations(extents, 2):
            assert Bbox.intersection(a, b) is None
        assert all(contains(drawn.bbox, box) for box in extents)


def test_weights_of_an_unknown_group():
    with pytest.raises(InputError, match="expected a history with scores of the group 'cell'"):
        draw_weights(history("darts", 1), "cell")


ROWS = [
    {"step": 4, "epoch": 0, "train_loss": 2.0, "train_accuracy": 0.3, "entropy/normal": 1.0},
    {"step": 4, "epoch": 0, "valid_loss": 2.5, "test_accuracy": 0.4},
    {"step": 9, "epoch": 1, "train_loss": 1.0, "train_accuracy": 0.6, "learning_rate": 0.1},
]


def test_curves():
    panels = {axes.get_title("left"): axes for axes in draw_curves(ROWS).axes}
    assert set(panels) == {"Loss", "Accuracy", "Entropy"}
    lines = {line.get_label(): line for line in panels["Loss"].lines}
    assert set(lines) == {"train", "valid"}
    assert list(lines["train"].get_xdata()) == [1, 2]
    assert list(lines["train"].get_ydata()) == [2.0, 1.0]
    assert [line.get_label() for line in panels["Accuracy"].lines] == ["train"]


def test_curves_without_anything_to_draw():
    with pytest.raises(InputError, match="expected losses or accuracies"):
        draw_curves([{"epoch": 0, "learning_rate": 0.1}])


def test_last_value_of_an_epoch_counts():
    assert by_epoch([{"epoch": 0, "a": 1.0}, {"epoch": 0, "a": 2.0}, {"a": 5.0}]) == {"a": {0: 2.0}}


def test_files_repeat_byte_for_byte_also_from_threads(tmp_path):
    genotype = sample_path("darts", 1)[0]
    first = save(draw_genotype(genotype), tmp_path / "a" / "cells.v1")
    assert [path.name for path in first] == ["cells.v1.svg", "cells.v1.png"]

    def again(folder):
        save(draw_genotype(genotype), tmp_path / folder / "cells.v1")

    threads = [threading.Thread(target=again, args=(name,)) for name in "bcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in "bcd":
        for path in first:
            assert (tmp_path / name / path.name).read_bytes() == path.read_bytes()


def test_pyplot_stays_out():
    """Its global state breaks threads and opens windows."""
    code = "import sys, nas_lightning.plots; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
