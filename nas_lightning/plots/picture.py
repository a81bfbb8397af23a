"""Pictures as shapes and text: SVG for pages and files, and a matplotlib figure of the same for PNG files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from nas_lightning.plots.style import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

Point = tuple[float, float]
LegendEntry = tuple[str, str, Sequence[float]]
"""Name, color, and dashes of a line."""

PIXELS_PER_INCH = 108  # 12 pixels are 8 points
MIDDLE = 0.35  # from the middle of a line of text to its baseline, in font sizes
_FONT = "DejaVu Sans, Verdana, system-ui, sans-serif"
_ADVANCES = {  # of letters, in thousandths of the font size
    **dict.fromkeys("hnu", 634),
    **dict.fromkeys("bdgpq", 635),
    **dict.fromkeys("ijl", 278),
    **dict.fromkeys("vxy", 592),
    **{" ": 318, "a": 613, "c": 550, "e": 615, "f": 352, "k": 579, "m": 974, "o": 612, "r": 411, "s": 521},
    **{"t": 392, "w": 818, "z": 525},
}


def text_width(text: str, size: float = 12) -> float:
    """Return the width of a text in pixels, as the font DejaVu Sans sets it; most others are narrower.

    >>> round(text_width("sep conv 3×3"))
    81
    """
    return size * sum(_ADVANCES.get(letter, 660) for letter in text) / 1000


@dataclass(frozen=True)
class Line:
    """A line through points.

    Args:
        points: in pixels, from the left and from above.
        color: a name in `PALETTE`.
        width: of the line.
        dashes: lengths of dashes and gaps, in pixels.
        curved: whether the line is level at each point, instead of straight between them.
        filled: whether the line bounds a filled shape, instead.
    """

    points: Sequence[Point]
    color: str
    width: float = 1.5
    dashes: Sequence[float] = ()
    curved: bool = False
    filled: bool = False


@dataclass(frozen=True)
class Box:
    """A rectangle, or with a radius of half its size a disc.

    Args:
        center: in pixels.
        size: width and height.
        radius: of its corners.
        fill: a name in `PALETTE`.
        color: of the border, a name in `PALETTE`; empty: there is none.
    """

    center: Point
    size: Point
    radius: float
    fill: str
    color: str = ""


@dataclass(frozen=True)
class Text:
    """A line of text.

    Args:
        place: where it begins, has its middle, or ends; vertically its middle.
        text: plain, whatever is in it.
        size: of the font, in pixels.
        color: a name in `PALETTE`.
        align: start, middle or end.
        bold: whether it is bold.
        index: small and below the line, after the text.
    """

    place: Point
    text: str
    size: float = 12
    color: str = "ink"
    align: str = "middle"
    bold: bool = False
    index: str = ""


@dataclass(frozen=True)
class Group:
    """Marks that belong together.

    Args:
        marks: drawn in this order.
        title: shown on a page while the pointer is on the marks.
        link: an address that the marks lead to.
        attributes: of the SVG element.
        offset: added to the coordinates of the marks.
    """

    marks: Sequence[Mark]
    title: str = ""
    link: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    offset: Point = (0.0, 0.0)


Mark = Line | Box | Text | Group


@dataclass(frozen=True)
class Picture:
    """A picture of a size in pixels.

    Args:
        width: of the picture.
        height: of the picture.
        marks: drawn in this order.
        label: the picture in words.
        kind: CSS class on a page.
        attributes: further ones of the SVG element on a page.

    >>> picture = Picture(20, 10, [Line([(0, 5), (20, 5)], "ink")], "A line")
    >>> 'd="M0 5L20 5"' in picture.svg(), len(picture.figure().axes[0].patches)
    (True, 1)
    """

    width: float
    height: float
    marks: Sequence[Mark]
    label: str = ""
    kind: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)

    def svg(self) -> str:
        """Return an SVG element for a page, whose style sheet has the colors of `PALETTE` as variables."""
        attributes = {
            "class": self.kind,
            "width": _number(self.width),
            "height": _number(self.height),
            "viewBox": f"0 0 {_number(self.width)} {_number(self.height)}",
            "role": "img",
            "aria-label": self.label,
            **self.attributes,
        }
        return _element("svg", attributes, "\n".join(map(_svg, self.marks)))

    def file_svg(self) -> str:
        """Return an SVG file, in the colors for white paper."""
        body = re.sub(r"var\(--([\w-]+)\)", lambda name: PALETTE[name[1]].light, self.svg())
        head = f'<svg xmlns="http://www.w3.org/2000/svg" font-family="{_FONT}"'
        background = f'<rect width="100%" height="100%" fill="{PALETTE["card"].light}"/>'
        opened, _, rest = body.partition(">")
        return f"{opened.replace('<svg', head, 1)}>\n{background}\n{rest}\n"

    def __html__(self) -> str:
        return self.svg()  # in a template

    def _repr_svg_(self) -> str:
        return self.file_svg()  # in a notebook

    def figure(self) -> Figure:
        """Return the picture as a matplotlib figure."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(self.width / PIXELS_PER_INCH, self.height / PIXELS_PER_INCH))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, self.width), ylim=(self.height, 0))
        axes.set_axis_off()
        for number, mark in enumerate(self.marks):
            _paint(axes, mark, (0.0, 0.0), number)
        return figure


def side_by_side(pictures: Sequence[Picture], columns: int, gap: float = 14, margin: float = 10) -> Picture:
    """Return one picture of several, so many in a row."""
    return in_grid({divmod(number, columns): one for number, one in enumerate(pictures)}, gap, margin)


def in_grid(pictures: Mapping[tuple[int, int], Picture], gap: float = 14, margin: float = 10) -> Picture:
    """Return one picture of several by their rows and columns."""
    heights = dict.fromkeys(sorted({row for row, _ in pictures}), 0.0)
    widths = dict.fromkeys(sorted({column for _, column in pictures}), 0.0)
    for (row, column), picture in pictures.items():
        heights[row] = max(heights[row], picture.height)
        widths[column] = max(widths[column], picture.width)
    lefts, tops = (_starts(sizes, gap, margin) for sizes in (widths, heights))
    marks = [
        Group(picture.marks, offset=(lefts[column], tops[row])) for (row, column), picture in pictures.items()
    ]
    label = "; ".join(dict.fromkeys(picture.label for picture in pictures.values() if picture.label))
    width, height = (sum(s.values()) + gap * (len(s) - 1) + 2 * margin for s in (widths, heights))
    return Picture(width, height, marks, label)


def draw_legend(entries: Sequence[LegendEntry], width: float) -> Picture:
    """Draw lines with their names: (name, color, dashes), in as many rows as the width needs."""
    size, sample, gap, height = 11.5, 26.0, 16.0, 18.0
    marks: list[Mark] = []
    x, y, widest = 0.0, height / 2, 0.0
    for name, color, dashes in entries:
        needed = sample + 6 + text_width(name, size)
        if x and x + needed > width:
            x, y = 0.0, y + height
        marks.append(Line([(x, y), (x + sample, y)], color, 2.5, dashes))
        marks.append(Text((x + sample + 6, y), name, size, align="start"))
        widest = max(widest, x + needed)
        x += needed + gap
    return Picture(widest, y + height / 2, marks)


def _starts(sizes: Mapping[int, float], gap: float, margin: float) -> dict[int, float]:
    starts, at = {}, margin
    for key, size in sizes.items():
        starts[key] = at
        at += size + gap
    return starts


# SVG


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _element(name: str, attributes: Mapping[str, str], content: str = "") -> str:
    written = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items() if value)
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def _svg(mark: Mark) -> str:
    if isinstance(mark, Group):
        return _group_svg(mark)
    if isinstance(mark, Line):
        return _line_svg(mark)
    return _box_svg(mark) if isinstance(mark, Box) else _text_svg(mark)


def _group_svg(group: Group) -> str:
    content = _element("title", {}, escape(group.title)) if group.title else ""
    content += "".join(map(_svg, group.marks))
    if group.link:
        content = _element("a", {"href": group.link, "aria-label": group.title}, content)
    x, y = map(_number, group.offset)
    moved = f"translate({x} {y})" if (x, y) != ("0", "0") else ""
    return _element("g", {**group.attributes, "transform": moved}, content)


def _line_svg(line: Line) -> str:
    points = [(_number(x), _number(y)) for x, y in line.points]
    data = "M{} {}".format(*points[0])
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = _number((float(x0) + float(x1)) / 2)
        data += f"C{middle} {y0} {middle} {y1} {x1} {y1}" if line.curved else f"L{x1} {y1}"
    color = f"var(--{line.color})"
    if line.filled:
        return _element("path", {"d": data + "z", "fill": color})
    dashes = " ".join(map(_number, line.dashes))
    stroke = {"stroke": color, "stroke-width": _number(line.width), "stroke-dasharray": dashes}
    return _element("path", {"d": data, "fill": "none", **stroke})


def _box_svg(box: Box) -> str:
    (x, y), (width, height) = box.center, box.size
    corner = {"x": _number(x - width / 2), "y": _number(y - height / 2)}
    size = {"width": _number(width), "height": _number(height), "rx": _number(box.radius)}
    border = {"stroke": f"var(--{box.color})", "stroke-width": "1.5"} if box.color else {}
    return _element("rect", {**corner, **size, "fill": f"var(--{box.fill})", **border})


def _text_svg(text: Text) -> str:
    x, y = text.place
    place = {"x": _number(x), "y": _number(y + MIDDLE * text.size)}
    style = {"font-size": _number(text.size), "fill": f"var(--{text.color})"}
    anchor = "" if text.align == "start" else text.align
    weight = "700" if text.bold else ""
    index = _element("tspan", {"dy": "4", "font-size": "11"}, escape(text.index)) if text.index else ""
    content = escape(text.text, quote=False) + index
    return _element("text", {**place, **style, "text-anchor": anchor, "font-weight": weight}, content)


# matplotlib


_POINTS = 72 / PIXELS_PER_INCH  # in a pixel


def _paint(axes: Axes, mark: Mark, offset: Point, order: float) -> None:
    if isinstance(mark, Group):
        for inner in mark.marks:
            _paint(axes, inner, (offset[0] + mark.offset[0], offset[1] + mark.offset[1]), order)
    elif isinstance(mark, Line):
        _paint_line(axes, mark, offset, order)
    elif isinstance(mark, Box):
        _paint_box(axes, mark, offset, order)
    else:
        _paint_text(axes, mark, offset, order)


def _paint_line(axes: Axes, line: Line, offset: Point, order: float) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    points = [(x + offset[0], y + offset[1]) for x, y in line.points]
    vertices, codes = points[:1], [Path.MOVETO]
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (x0 + x1) / 2
        vertices += [(middle, y0), (middle, y1), (x1, y1)] if line.curved else [(x1, y1)]
        codes += [Path.CURVE4] * 3 if line.curved else [Path.LINETO]
    color, path = PALETTE[line.color].light, Path(vertices, codes)
    if line.filled:
        axes.add_patch(PathPatch(path, facecolor=color, linewidth=0, zorder=order))
        return
    dashes = (0, [length / line.width for length in line.dashes]) if line.dashes else "-"
    width = line.width * _POINTS
    stroke = PathPatch(path, fill=False, edgecolor=color, linewidth=width, linestyle=dashes, zorder=order)
    stroke.set_capstyle("butt")
    axes.add_patch(stroke)


def _paint_box(axes: Axes, box: Box, offset: Point, order: float) -> None:
    from matplotlib.patches import Circle, FancyBboxPatch

    (x, y), (width, height) = box.center, box.size
    x, y = x + offset[0], y + offset[1]
    if width == height == 2 * box.radius:
        patch: Patch = Circle((x, y), box.radius)
    else:
        corners = f"round,pad=0,rounding_size={box.radius}"
        patch = FancyBboxPatch((x - width / 2, y - height / 2), width, height, boxstyle=corners)
    patch.set_facecolor(PALETTE[box.fill].light)
    patch.set_edgecolor(PALETTE[box.color].light if box.color else "none")
    patch.set_linewidth(1.5 * _POINTS)
    patch.set_zorder(order)
    axes.add_patch(patch)


def _paint_text(axes: Axes, text: Text, offset: Point, order: float) -> None:
    axes.text(
        text.place[0] + offset[0],
        text.place[1] + offset[1] + MIDDLE * text.size,
        f"${text.text}_{{{text.index}}}$" if text.index else text.text,
        parse_math=bool(text.index),
        size=text.size * _POINTS,
        color=PALETTE[text.color].light,
        ha={"start": "left", "middle": "center", "end": "right"}[text.align],
        va="baseline",
        weight="bold" if text.bold else "normal",
        zorder=order,
    )
