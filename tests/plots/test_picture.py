"""Pictures: the same marks as SVG and in matplotlib, and files that repeat byte for byte."""

import subprocess
import sys
import threading
from xml.etree import ElementTree

import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath

from nas_lightning.plots import draw_genotype, save
from nas_lightning.plots.files import theme_svg
from nas_lightning.plots.picture import Box, Group, Line, Picture, Text, side_by_side, text_width
from nas_lightning.plots.style import KINDS, PALETTE, kind
from nas_lightning.spaces import DartsSpace
from tests.plots.flat import flat

EVIL = "</text><script>alert('$x$')</script>&"


def genotype():
    return DartsSpace().sample(torch.Generator().manual_seed(1))


def test_text_widths_against_the_font():
    for text in ("sep conv 3×3", "max pool 3×3", "skip", "an operation of my own", "zwölf", "123"):
        width = TextToPath().get_text_width_height_descent(text, FontProperties(size=12), ismath=False)[0]
        assert text_width(text) == pytest.approx(width, rel=0.06)


def test_svg_and_matplotlib_have_the_same_marks():
    picture = draw_genotype(genotype())
    marks = flat(picture)
    tree = ElementTree.fromstring(picture.file_svg())
    tags = [element.tag.rpartition("}")[2] for element in tree.iter()]
    axes = picture.figure().axes[0]
    assert tags.count("text") == len(axes.texts) == sum(isinstance(mark, Text) for mark in marks)
    boxes, lines = (sum(isinstance(mark, shape) for mark in marks) for shape in (Box, Line))
    assert tags.count("rect") == boxes + 1  # and the background
    assert tags.count("path") == lines
    assert len(axes.patches) == boxes + lines
    assert "var(" not in picture.file_svg()


def test_text_is_escaped_and_no_formula():
    picture = Picture(50, 20, [Group([Text((0, 10), EVIL)], EVIL, attributes={"data-row": '"'})], EVIL)
    root = ElementTree.fromstring(picture.svg())
    assert root.attrib["aria-label"] == EVIL
    assert [element.text for element in root.iter() if element.tag in ("text", "title")] == [EVIL, EVIL]
    (text,) = picture.figure().axes[0].texts
    assert (text.get_text(), text.get_parse_math()) == (EVIL, False)


def test_pictures_stand_beside_each_other():
    one = Picture(10, 20, [Text((0, 0), "a")], "one")
    both = side_by_side([one, one], 2, gap=5, margin=3)
    assert (both.width, both.height, both.label) == (10 + 5 + 10 + 6, 26, "one")
    assert [mark.place for mark in flat(both)] == [(3, 3), (18, 3)]


def test_files_repeat_byte_for_byte_also_from_threads(tmp_path):
    figure = Figure()
    figure.subplots().plot([0, 1])
    for name, drawn in (("cells.v1", draw_genotype(genotype())), ("plot", figure)):
        first = save(drawn, tmp_path / "a" / name)
        assert [path.name for path in first] == [f"{name}.svg", f"{name}.png"]
    pictures = [draw_genotype(genotype()) for _ in "bc"]
    threads = [
        threading.Thread(target=save, args=(picture, tmp_path / folder / "cells.v1"))
        for picture, folder in zip(pictures, "bc", strict=True)
    ]
    for thread in threads:
        thread.start()
    save(figure, tmp_path / "b" / "plot")
    for thread in threads:
        thread.join()
    for path in (tmp_path / "a").iterdir():
        again = [tmp_path / folder / path.name for folder in "bc"]
        assert all(other.read_bytes() == path.read_bytes() for other in again if other.is_file())


def test_a_matplotlib_figure_takes_the_colors_of_the_page():
    figure = Figure()
    figure.subplots().set_title("A <title> $x$", color=PALETTE["ink"].light)
    svg = theme_svg(figure, "one")
    assert "A &lt;title&gt; $x$</text>" in svg
    assert "fill: var(--ink)" in svg
    assert PALETTE["ink"].light not in svg
    assert theme_svg(draw_genotype(genotype()), "two").startswith("<svg")


def test_kinds_differ_in_color():
    ops = ["none", "skip_connect", "max_pool_3x3", "sep_conv_3x3", "dil_conv_3x3", "nor_conv_3x3", "mine"]
    assert len({kind(op).color for op in ops}) == len({family.dark for family in KINDS}) == len(ops)
    assert kind("avg_pool_3x3") == kind("max_pool_3x3")


def test_pyplot_is_not_imported():
    code = "import sys, nas_lightning.plots; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
