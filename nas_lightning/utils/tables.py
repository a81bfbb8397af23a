"""Tables with standard errors, as Markdown, CSV, and LaTeX."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from typing import NamedTuple, TypeVar

from nas_lightning.utils.text import format_error, format_number

T = TypeVar("T")


class Estimate(NamedTuple):
    """A number and its standard error.

    Args:
        value: the number.
        error: its standard error.

    >>> Estimate(0.5, error=0.1).value
    0.5
    """

    value: float
    error: float


class Spread(Estimate):
    """A mean, and the standard deviation of the values instead of a standard error.

    >>> format_cell(Spread(0.61234, 0.0211))
    '0.612 ± 0.021'
    """

    __slots__ = ()


Entry = str | int | float | Estimate | None


@dataclass(frozen=True)
class Table:
    """Rows under a header.

    Args:
        name: name of its files.
        title: title in one line.
        columns: the header.
        rows: one cell per column; None is empty.
        note: an explanation.
        long: whether only its path is printed.

    >>> table = Table("t", "What was found", ("cell", "ρ"), [["a", Estimate(0.5, 0.02)], ["b", None]])
    >>> print(table.markdown())
    **What was found**
    <BLANKLINE>
    | cell | ρ             |
    |------|---------------|
    | a    | 0.500 ± 0.020 |
    | b    |               |
    >>> print(table.csv(), end="")
    cell,ρ,ρ s.e.
    a,0.5,0.02
    b,,
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    note: str = ""
    long: bool = False

    def markdown(self) -> str:
        """Return title, table with aligned columns, and note."""
        body = align([list(self.columns), *([format_cell(cell) for cell in row] for row in self.rows)])
        title = f"**{self.title}**" if self.title else ""
        return "\n\n".join(filter(None, [title, body, self.note]))

    def csv(self) -> str:
        """Return all digits; a column of estimates is followed by one of their errors or deviations.

        Texts that a spreadsheet would evaluate are prefixed with an apostrophe.
        """
        estimated = [any(isinstance(row[i], Estimate) for row in self.rows) for i in range(len(self.columns))]
        text = StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        spread = [any(isinstance(row[i], Spread) for row in self.rows) for i in range(len(self.columns))]
        kinds = ["sd" if s else "s.e." for s in spread]
        pairs = zip(self.columns, estimated, kinds, strict=True)
        header = ([column, f"{column} {kind}"] if e else [column] for column, e, kind in pairs)
        writer.writerow([escape_formula(name) for names in header for name in names])
        for row in self.rows:
            values: list[str | int | float | None] = []
            for cell, estimate in zip(row, estimated, strict=True):
                parts = cell if isinstance(cell, Estimate) else (escape_formula(cell), None)
                values += parts if estimate else parts[:1]
            writer.writerow(values)
        return text.getvalue()

    def latex(self) -> str:
        """Return a tabular with rules of the package booktabs."""
        lines = [" & ".join(map(_escape_latex, self.columns)) + r" \\"]
        lines += [" & ".join(_escape_latex(format_cell(cell)) for cell in row) + r" \\" for row in self.rows]
        start = [rf"% {self.title}", rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}", r"\toprule"]
        return "\n".join([*start, lines[0], r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}", ""])


def format_cell(cell: Entry) -> str:
    """Format a cell for readers.

    >>> format_cell(Estimate(0.61234, 0.0211)), format_cell(1234), format_cell(0.000123456), format_cell(None)
    ('0.612 ± 0.021', '1,234', '0.0001235', '')
    """
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Estimate):
        return format_error(cell.value, cell.error)
    return format_number(cell)


def escape_formula(cell: str | float | None) -> str | float | None:
    """Escape texts that a spreadsheet would take for a formula, except numbers.

    >>> escape_formula("=1+1"), escape_formula("-0.5"), escape_formula("@me"), escape_formula("- a")
    ("'=1+1", '-0.5', "'@me", "'- a")
    """
    if not isinstance(cell, str) or not cell.lstrip().startswith(_FORMULAS):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


_FORMULAS = tuple("=+-@＝＋－＠")  # also the wide ones that some spreadsheets accept


def align(rows: Sequence[Sequence[str]]) -> str:
    r"""Return a Markdown table with aligned columns; the first row is its header.

    >>> print(align([["a", "b"], ["x|y", "2"]]))
    | a    | b |
    |------|---|
    | x\|y | 2 |
    """
    rows = [[" ".join(text.replace("|", r"\|").split()) for text in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(text.ljust(w) for text, w in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


_LATEX = {
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"±": r"$\pm$", "ρ": r"$\rho$", "τ": r"$\tau$", "κ": r"$\kappa$", "μ": r"$\mu$", "ν": r"$\nu$"},
    **{
        "√": r"$\surd$",
        "−": "$-$",
        "∞": r"$\infty$",
        "λ": r"$\lambda$",
        "×": r"$\times$",
        "|": r"\textbar{}",
    },
}


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def thin(entries: Sequence[T], most: int) -> list[T]:
    """Return at most so many entries, evenly spaced, with the first and the last.

    >>> thin(range(10), 4)
    [0, 3, 6, 9]
    """
    if len(entries) <= most:
        return list(entries)
    return [entries[round(number * (len(entries) - 1) / (most - 1))] for number in range(most)]
