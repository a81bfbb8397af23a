"""Charts: every value at its place, names that do not overlap, and a size that does not grow with epochs."""

import itertools
import math

import pytest
import torch

from nas_lightning.errors import InputError
from nas_lightning.plots import draw_curves, draw_front, draw_weights
from nas_lightning.plots.charts import (
    Dot,
    Dots,
    Series,
    by_epoch,
    curve_charts,
    line_chart,
    scatter,
    weight_charts,
)
from nas_lightning.plots.picture import Box, Line, Text
from nas_lightning.spaces import DartsSpace
from tests.plots.flat import extent, inside, of_kind, overlap, texts

ROWS = [
    {"step": 4, "epoch": 0, "train_loss": 2.0, "train_accuracy": 0.3, "entropy/normal": 1.0},
    {"step": 4, "epoch": 0, "valid_loss": 2.5, "test_accuracy": 0.4},
    {"step": 9, "epoch": 1, "train_loss": 1.0, "train_accuracy": 0.6, "learning_rate": 0.1},
]


def history(epochs):
    groups = DartsSpace().groups
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


def values_of(chart, lines, limits):
    """The values that lines of a chart show, by the area that the chart names."""
    _, _, top, bottom = map(float, chart.attributes["data-area"].split())
    low, high = limits
    return [[low + (bottom - y) / (bottom - top) * (high - low) for _, y in line.points] for line in lines]


def strokes(chart):
    return [line for line in of_kind(chart, Line) if line.color not in ("line", "soft") and line.width != 2.5]


def assert_in_order(picture):
    words = [extent(mark) for mark in of_kind(picture, Text)]
    for a, b in itertools.combinations(words, 2):
        assert not overlap(a, b, slack=1.5)
    assert all(inside(word, (-1, -1, picture.width + 20, picture.height + 1)) for word in words)


def test_curves():
    charts = curve_charts(ROWS)
    assert [chart.label for chart in charts] == [
        "Loss over epochs: train, valid",
        "Accuracy over epochs: train",
        "Entropy over epochs: normal",
    ]
    (loss,) = strokes(charts[0])  # one epoch of the other is a dot
    assert len(of_kind(charts[0], Box)) == 1
    assert loss.points[0][1] < loss.points[1][1]  # falls
    assert {"1", "2", "train", "valid"} <= set(texts(charts[0]))
    assert_in_order(draw_curves(ROWS))
    with pytest.raises(InputError, match="There must be losses or accuracies of at least one epoch"):
        draw_curves([{"epoch": 0, "learning_rate": 0.1}])


def test_the_last_value_of_an_epoch_counts():
    assert by_epoch([{"epoch": 0, "a": 1.0}, {"epoch": 0, "a": 2.0}, {"a": 5.0}]) == {"a": {0: 2.0}}


def test_weights_show_every_score():
    entries = history(3)
    drawn = weight_charts(entries, "reduce")
    assert len(drawn.charts) == 14
    for row, chart in enumerate(drawn.charts):
        scores = torch.tensor([entry["groups"]["reduce"]["scores"][row] for entry in entries])
        lines = strokes(chart)
        bold = [line.width == 3 for line in lines]
        leader = scores[-1].argmax().item()
        if len(lines) == scores.shape[1]:
            assert bold.index(True) == leader
        assert sum(bold) == 1
    both = [s for e in entries for row in e["groups"]["reduce"]["scores"] for s in row[1:]]
    margin = 0.04 * (max(both) - min(both))
    limits = min(both) - margin, max(both) + margin
    found = values_of(drawn.charts[0], strokes(drawn.charts[0])[-7:], limits)
    expected = [[e["groups"]["reduce"]["scores"][0][op] for e in entries] for op in range(1, 8)]
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), atol=1e-3, rtol=0)


def test_names_of_weights_do_not_overlap():
    chain = {"edges": [[n, n + 1] for n in range(9)], "ops": ["a", "b"], "scores": [[0.3, 0.7]] * 9}
    picture = draw_weights([{"epoch": 0, "groups": {"activation": chain}}], "activation")
    assert sum(text.startswith(("c k", "0 →", "1 →")) for text in texts(picture)) >= 3
    for drawn in (picture, draw_weights(history(4), "normal")):
        assert_in_order(drawn)
    with pytest.raises(InputError, match="The history must have scores of the group 'cell'"):
        draw_weights(history(1), "cell")


def test_charts_of_a_thousand_epochs_are_as_small_as_those_of_a_hundred():
    def size(epochs):
        points = [(epoch, math.sin(epoch)) for epoch in range(1, epochs + 1)]
        return len(line_chart("Loss", [Series("train", points, "ink")]).svg())

    assert size(1000) < 1.3 * size(120)


def test_a_front_has_its_knee_and_leaves_out_what_is_not_finite():
    values = {"accuracy": [0.1, 0.5, 0.4], "params": [1e5, 2e5, math.inf]}
    best = {name: of[:2] for name, of in values.items()}
    picture = draw_front(values, best, 1)
    dots = of_kind(picture, Box)
    assert [dot.color or dot.fill for dot in dots] == ["soft"] * 2 + ["series-0"] * 2 + ["series-1"]
    assert dots[-1].center == dots[3].center == dots[1].center
    assert dots[0].center[0] < dots[1].center[0]
    assert dots[0].center[1] > dots[1].center[1]


def test_dots_lead_to_their_links():
    svg = scatter("a", "b", [Dots("runs", [Dot("<first>", 1, 2, "#run-0")], "series-0")]).svg()
    assert '<a href="#run-0" aria-label="&lt;first&gt;">' in svg
    assert "<title>&lt;first&gt;</title>" in svg
