"""What all figures share: colors by kind of operation, how axes look, how figures are written."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from nas_lightning.utils.files import replacing

INK = "#22262b"
GRAY = "#8a9099"
FAINT = "#d5d9de"


class Kind(NamedTuple):
    """A family of operations.

    Args:
        key: part of the operations' names, and of the CSS names of the family.
        name: in legends.
        color: on white (after Okabe & Ito, for every eye; darker where lines were too faint).
        dark: on a dark page.
    """

    key: str
    name: str
    color: str
    dark: str


KINDS = (  # the first whose key is in an operation's name decides
    Kind("none", "none (computes nothing)", "#7d848d", "#8f98a3"),
    Kind("skip", "skip connection", "#b57a00", "#e69f00"),
    Kind("pool", "pooling", "#008f68", "#2bbd93"),
    Kind("sep_conv", "separable convolution", "#0072b2", "#4aa8e0"),
    Kind("dil_conv", "dilated convolution", "#b8588f", "#d98cb9"),
    Kind("conv", "convolution", "#d55e00", "#f0823c"),
    Kind("other", "other", "#2f8fc2", "#7cc6f2"),
)


def kind(op: str) -> Kind:
    """The family of an operation, by its name.

    >>> kind("max_pool_3x3").name
    'pooling'
    """
    return next((family for family in KINDS if family.key in op), KINDS[-1])


class Color(NamedTuple):
    """A color of lines and bars.

    Args:
        light: on white.
        dark: on a dark page.
    """

    light: str
    dark: str


SERIES = (
    Color("#0072b2", "#4aa8e0"),
    Color("#d55e00", "#f0823c"),
    Color("#008f68", "#2bbd93"),
    Color("#b8588f", "#d98cb9"),
    Color("#b57a00", "#e69f00"),
    Color("#2f8fc2", "#7cc6f2"),
)
"""Of what is compared, in this order."""
COLORS = tuple(color.light for color in SERIES)


def op_label(op: str) -> str:
    """An operation's name as pictures show it.

    >>> op_label("sep_conv_3x3"), op_label("skip_connect"), op_label("nor_conv_1x1"), op_label("conv_7x1_1x7")
    ('sep conv 3×3', 'skip', 'conv 1×1', 'conv 7×1 1×7')
    """
    words = re.sub(r"(\d)x(\d)", r"\1×\2", op.rpartition(".")[2]).split("_")
    return " ".join(word for word in words if word not in ("connect", "nor"))


def node_name(node: int, inputs: int) -> str:
    """Inputs are outputs c_{k-i} of the cells before; inner nodes count from 0."""
    return f"$c_{{k-{inputs - node}}}$" if node < inputs else str(node - inputs)


def node_label(node: int, inputs: int) -> str:
    """The same without mathematical typesetting.

    >>> node_label(0, 2), node_label(3, 2)
    ('c k−2', '1')
    """
    return f"c k−{inputs - node}" if node < inputs else str(node - inputs)


DASHES: tuple[tuple[float, ...], ...] = ((), (4, 1.5), (1, 1), (4, 1, 1, 1))


def dash_patterns(ops: Sequence[str]) -> list[tuple[float, ...]]:
    """The dashes of each operation's line, in line widths; operations of one kind share a color.

    >>> dash_patterns(["sep_conv_3x3", "skip_connect", "sep_conv_5x5"])
    [(), (), (4, 1.5)]
    """
    seen: dict[str, int] = {}
    patterns = []
    for op in ops:
        family = kind(op).name
        patterns.append(DASHES[seen.get(family, 0) % len(DASHES)])
        seen[family] = seen.get(family, 0) + 1
    return patterns


def tidy(axes: Axes) -> None:
    """Light axes: two spines, a faint grid, small ink."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRAY)
    axes.tick_params(colors=INK, labelsize=8, color=GRAY, length=3)
    axes.grid(True, color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)


def label_axes(axes: Axes, x: str, y: str) -> None:
    """What the axes show, small."""
    axes.set_xlabel(x, fontsize=8, color=INK)
    axes.set_ylabel(y, fontsize=8, color=INK)


def legend_above(axes: Axes, columns: int) -> None:
    """The legend above the axes, where it covers nothing."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        borderaxespad=0,
        frameon=False,
        fontsize=7,
        labelcolor=INK,
    )


# The salt of an SVG's identifiers is a global setting of matplotlib.
_settings = threading.Lock()


def save(figure: Figure, path: Path) -> tuple[Path, Path]:
    """Write `path`.png, then `path`.svg: where that is, both are. The same figure gives the same bytes."""
    svg, png = (path.with_name(path.name + suffix) for suffix in (".svg", ".png"))
    _leave_names(figure)
    with replacing(png) as partial:
        figure.savefig(partial, format="png", dpi=160, metadata={"Software": None}, facecolor="white")
    salted = mpl.rc_context({"svg.hashsalt": path.name, "svg.fonttype": "path"})
    with _settings, salted, replacing(svg) as partial:
        undated = {"Date": None, "Creator": None}
        figure.savefig(partial, format="svg", metadata=undated, facecolor="white")
    return svg, png


# A node's name, and a number of an axis with powers of ten.
_FORMULAS = re.compile(r"(\$c_(k|\{k-\d+\})\$|\$\\mathdefault\{([\d.^{}−-]|\\times)*\}\$|[^$])*")


def _leave_names(figure: Figure) -> None:
    """A name of somebody's is no formula, whatever is in it: those are our own, and matplotlib's numbers."""
    for axes in figure.axes:
        axes.get_xticklabels()  # which gives the ticks their texts
        axes.get_yticklabels()
    for text in figure.findobj(Text):
        text.set_parse_math(_FORMULAS.fullmatch(text.get_text()) is not None)


_THEME = {INK: "var(--ink)", "#000000": "var(--ink)", GRAY: "var(--soft)", FAINT: "var(--line)"}
_SMALLEST = 11.2  # pixels that text on a page is high, exponents as well
_LEAST, _MOST = 1.6, 2.24  # pixels a point


def theme_svg(figure: Figure, name: str) -> str:
    """A figure for a page: text as text, lines and letters in the page's colors, identifiers of its own."""
    text = StringIO()
    _leave_names(figure)
    with _settings, mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    svg = text.getvalue()
    svg = re.sub(r"<(metadata|style).*?</\1>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    for color, variable in _THEME.items():
        svg = svg.replace(color, variable)
    heights = [float(height) for height in re.findall(r"font(?:-size)?: ?([\d.]+)px", svg)]
    scale = min(max(_LEAST, _SMALLEST / min(heights, default=_SMALLEST)), _MOST)

    def enlarge(size: re.Match[str]) -> str:
        return f'{size[1]}="{scale * float(size[2]):.0f}"'

    return re.sub(r'(width|height)="([\d.]+)pt"', enlarge, svg, count=2)
