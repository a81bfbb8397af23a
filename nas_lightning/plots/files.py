"""Pictures and matplotlib figures as files and for pages."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas_lightning.genotype import Genotype
from nas_lightning.plots.cells import draw_genotype
from nas_lightning.plots.charts import draw_curves, draw_weights
from nas_lightning.plots.picture import Picture
from nas_lightning.plots.style import FAINT, GRAY, INK
from nas_lightning.utils.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(figure: Figure | Picture, path: Path) -> tuple[Path, Path]:
    """Write `path`.pdf, .png, and .svg, and return the last two; equal figures give equal bytes.

    Args:
        figure: of matplotlib, or a picture.
        path: without a suffix.
    """
    svg, png, pdf = (path.with_name(path.name + suffix) for suffix in (".svg", ".png", ".pdf"))
    drawn = figure.figure() if isinstance(figure, Picture) else _escape_formulas(figure)
    with replacing(pdf) as partial:
        undated = {"CreationDate": None, "Creator": None, "Producer": None}
        drawn.savefig(partial, format="pdf", metadata=undated, facecolor="white")
    with replacing(png) as partial:
        drawn.savefig(partial, format="png", dpi=160, metadata={"Software": None}, facecolor="white")
    text = figure.file_svg() if isinstance(figure, Picture) else _svg(figure, path.name, facecolor="white")
    with replacing(svg) as partial:
        partial.write_text(text, encoding="utf-8")
    return svg, png


_TICK = re.compile(r"(\$\\mathdefault\{([\d.^{}−-]|\\times)*\}\$|[^$])*")  # may have powers of ten


def _escape_formulas(figure: Figure) -> Figure:
    """Show names with dollar signs as they are; only matplotlib's numbers are typeset."""
    from matplotlib.text import Text

    for axes in figure.axes:
        axes.get_xticklabels()  # sets the texts of the ticks
        axes.get_yticklabels()
    for text in figure.findobj(Text):
        text.set_parse_math(_TICK.fullmatch(text.get_text()) is not None)
    return figure


_settings = threading.Lock()  # held while settings of matplotlib differ from the user's


def _svg(figure: Figure, name: str, fonts: str = "path", **options: Any) -> str:
    """Return a figure as SVG; matplotlib has the salt of identifiers and the fonts as settings only."""
    import matplotlib as mpl

    text = StringIO()
    with _settings, mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": fonts}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None}, **options)
    return text.getvalue()


_THEME = {INK: "var(--ink)", "#000000": "var(--ink)", GRAY: "var(--soft)", FAINT: "var(--line)"}
_SMALLEST = 11.2  # height of the smallest text on a page in pixels, exponents included
_LEAST, _MOST = 1.6, 2.24  # pixels per point


def theme_svg(figure: Figure | Picture, name: str) -> str:
    """Return a figure for a page: text as text, in the colors of the page, with identifiers of its own."""
    if isinstance(figure, Picture):
        return figure.svg()
    _escape_formulas(figure)
    svg = _svg(figure, name, "none", transparent=True)
    svg = re.sub(r"<(metadata|style).*?</\1>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    for color, variable in _THEME.items():
        svg = svg.replace(color, variable)
    heights = [float(height) for height in re.findall(r"font(?:-size)?: ?([\d.]+)px", svg)]
    scale = min(max(_LEAST, _SMALLEST / min(heights, default=_SMALLEST)), _MOST)

    def enlarge(size: re.Match[str]) -> str:
        return f'{size[1]}="{scale * float(size[2]):.0f}"'

    return re.sub(r'(width|height)="([\d.]+)pt"', enlarge, svg, count=2)


# The figures in the folder of a run: `genotype` (or `genotype_1`, …), `weights_<group>`, `curves`


def save_genotypes(genotypes: Sequence[Genotype], folder: Path) -> list[Path]:
    """Save a figure of each genotype that has cells; return the SVG files."""
    numbers = [f"_{number}" for number in range(1, len(genotypes) + 1)] if len(genotypes) > 1 else [""]
    return [
        save(draw_genotype(genotype), folder / f"genotype{number}")[0]
        for genotype, number in zip(genotypes, numbers, strict=True)
        if genotype.cells
    ]


def save_weights(history: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """Save a figure of each group that has scores; return the SVG files."""
    groups = history[-1]["groups"] if history else {}
    return [save(draw_weights(history, group), folder / f"weights_{group}")[0] for group in groups]


def save_curves(rows: Iterable[Mapping[str, float]], folder: Path) -> Path:
    """Save a figure of losses and accuracies; return the SVG file."""
    return save(draw_curves(rows), folder / "curves")[0]
