"""What all figures share: colours by kind of operation, how axes look, how figures are written."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK = "#22262b"
GREY = "#8a9099"
FAINT = "#d5d9de"


class Kind(NamedTuple):
    """A family of operations: its name in legends, and its colour (after Okabe & Ito, for every eye)."""

    name: str
    colour: str


_KINDS = {  # the first key found in an operation's name decides
    "none": Kind("none (computes nothing)", "#9aa0a8"),
    "skip": Kind("skip connection", "#e69f00"),
    "pool": Kind("pooling", "#009e73"),
    "sep_conv": Kind("separable convolution", "#0072b2"),
    "dil_conv": Kind("dilated convolution", "#cc79a7"),
    "conv": Kind("convolution", "#d55e00"),
}
_OTHER = Kind("other", "#56b4e9")


def kind(op: str) -> Kind:
    """The family of an operation, by its name.

    >>> kind("max_pool_3x3").name
    'pooling'
    """
    return next((family for key, family in _KINDS.items() if key in op), _OTHER)


def pretty(op: str) -> str:
    """An operation's name as pictures show it.

    >>> pretty("sep_conv_3x3"), pretty("skip_connect"), pretty("nor_conv_1x1"), pretty("conv_7x1_1x7")
    ('sep conv 3×3', 'skip', 'conv 1×1', 'conv 7×1 1×7')
    """
    words = re.sub(r"(\d)x(\d)", r"\1×\2", op).split("_")
    return " ".join(word for word in words if word not in ("connect", "nor"))


def node_name(node: int, inputs: int) -> str:
    """Inputs are outputs c_{k-i} of the cells before; inner nodes count from 0."""
    return f"$c_{{k-{inputs - node}}}$" if node < inputs else str(node - inputs)


def tidy(axes: Axes) -> None:
    """Light axes: two spines, a faint grid, small ink."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(colors=INK, labelsize=8, color=GREY, length=3)
    axes.grid(True, color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)


# The salt of an SVG's identifiers is a global setting of matplotlib.
_settings = threading.Lock()


def save(figure: Figure, path: Path) -> tuple[Path, Path]:
    """Write `path`.svg and `path`.png; the same figure gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    svg, png = (path.with_name(path.name + suffix) for suffix in (".svg", ".png"))
    with _settings, mpl.rc_context({"svg.hashsalt": path.name, "svg.fonttype": "path"}):
        figure.savefig(svg, metadata={"Date": None, "Creator": None}, facecolor="white")
    figure.savefig(png, dpi=160, metadata={"Software": None}, facecolor="white")
    return svg, png
