"""Colors and labels of all pictures, and the style of matplotlib axes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#22262b"
GRAY = "#8a9099"
FAINT = "#d5d9de"


class Color(NamedTuple):
    """A color.

    Args:
        light: on white.
        dark: on a dark page.
    """

    light: str
    dark: str


class Kind(NamedTuple):
    """A family of operations.

    Args:
        key: part of the operations' names; its color is `kind-<key>` in `PALETTE`.
        name: in legends.
        color: on white, after Okabe & Ito (2008), darker where lines would be too faint.
        dark: on a dark page.
    """

    key: str
    name: str
    color: str
    dark: str


KINDS = (  # the first whose key is in an operation's name counts
    Kind("none", "none (computes nothing)", "#7d848d", "#8f98a3"),
    Kind("skip", "skip connection", "#b57a00", "#e69f00"),
    Kind("pool", "pooling", "#008f68", "#2bbd93"),
    Kind("sep_conv", "separable convolution", "#0072b2", "#4aa8e0"),
    Kind("dil_conv", "dilated convolution", "#b8588f", "#d98cb9"),
    Kind("conv", "convolution", "#d55e00", "#f0823c"),
    Kind("other", "other", "#2f8fc2", "#7cc6f2"),
)

SERIES = (
    Color("#0072b2", "#4aa8e0"),
    Color("#d55e00", "#f0823c"),
    Color("#008f68", "#2bbd93"),
    Color("#b8588f", "#d98cb9"),
    Color("#b57a00", "#e69f00"),
    Color("#2f8fc2", "#7cc6f2"),
)
"""Colors of what is compared, in this order."""
COLORS = tuple(color.light for color in SERIES)

PALETTE = {
    "ink": Color(INK, "#e6e8eb"),
    "soft": Color("#5a626c", "#a3acb6"),
    "card": Color("#ffffff", "#1e2227"),
    "line": Color("#dfe3e8", "#3a424b"),
    "node": Color("#eceff3", "#2d333a"),
    **{f"kind-{family.key}": Color(family.color, family.dark) for family in KINDS},
    **{f"series-{number}": color for number, color in enumerate(SERIES)},
}
"""Colors by the names that pictures use; variables of the same names in the style sheet of pages."""


def kind(op: str) -> Kind:
    """Return the family of an operation, by its name.

    >>> kind("max_pool_3x3").name
    'pooling'
    """
    return next((family for family in KINDS if family.key in op), KINDS[-1])


def op_label(op: str) -> str:
    """Return the name of an operation as pictures show it.

    >>> op_label("sep_conv_3x3"), op_label("skip_connect"), op_label("nor_conv_1x1"), op_label("conv_7x1_1x7")
    ('sep conv 3×3', 'skip', 'conv 1×1', 'conv 7×1 1×7')
    """
    words = re.sub(r"(\d)x(\d)", r"\1×\2", op.rpartition(".")[2]).split("_")
    return " ".join(word for word in words if word not in ("connect", "nor"))


def node_label(node: int, inputs: int) -> str:
    """Return the name of a node: outputs c_{k-i} of earlier cells, then inner nodes from 0.

    >>> node_label(0, 2), node_label(3, 2)
    ('c k−2', '1')
    """
    return f"c k−{inputs - node}" if node < inputs else str(node - inputs)


DASHES: tuple[tuple[float, ...], ...] = ((), (6, 3), (2, 2), (6, 2, 2, 2))


def dash_patterns(ops: Sequence[str]) -> list[tuple[float, ...]]:
    """Return the dashes of the line of each operation in pixels; operations of one kind share a color.

    >>> dash_patterns(["sep_conv_3x3", "skip_connect", "sep_conv_5x5"])
    [(), (), (6, 3)]
    """
    seen: dict[str, int] = {}
    patterns = []
    for op in ops:
        family = kind(op).name
        patterns.append(DASHES[seen.get(family, 0) % len(DASHES)])
        seen[family] = seen.get(family, 0) + 1
    return patterns


def tidy(axes: Axes) -> None:
    """Give axes two spines, a faint grid, and small labels."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRAY)
    axes.tick_params(colors=INK, labelsize=8, color=GRAY, length=3)
    axes.grid(True, color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)


def label_axes(axes: Axes, x: str, y: str) -> None:
    """Label both axes in a small font."""
    axes.set_xlabel(x, fontsize=8, color=INK)
    axes.set_ylabel(y, fontsize=8, color=INK)


def legend_above(axes: Axes, columns: int) -> None:
    """Put the legend above the axes, where it hides nothing."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        borderaxespad=0,
        frameon=False,
        fontsize=7,
        labelcolor=INK,
    )
