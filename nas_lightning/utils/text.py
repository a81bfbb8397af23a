"""Text that people and Hydra read: paths, numbers, durations, quoted values."""

from __future__ import annotations

import os
import re
from pathlib import Path

_SCORE = re.compile(r"(train|valid|val|test)_(?!loss$|error$|accuracy)(.+)")
_PLAIN = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./%@?|~")


def quote_where_needed(text: str) -> str:
    """A text as Hydra takes it.

    >>> quote_where_needed("a/b"), quote_where_needed("a b")
    ('a/b', '"a b"')
    """
    return quote(text) if set(text) - _PLAIN else text


def quote(text: str) -> str:
    """A value that Hydra takes as it is, whatever characters it has."""
    return '"' + text.replace('"', '\\"') + '"'


def short_path(path: str | Path) -> str:
    """A path as short as it is unambiguous: from the current folder where it is below it."""
    path = Path(path).absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def printable(path: str) -> str:
    r"""A path whose bytes that are no UTF-8 are written out, so that any file can have it.

    >>> printable("caf\udce9.png"), printable("café.png")
    ('caf\\xe9.png', 'café.png')
    """
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def is_text(word: str) -> bool:
    r"""Whether a word is text, and none of its bytes something else.

    >>> is_text("café.png"), is_text("caf\udce9.png")
    (True, False)
    """
    return not any("\ud800" <= letter <= "\udfff" for letter in word)


def format_number(value: float) -> str:
    """Whole numbers with their thousands, others with four significant digits.

    >>> format_number(1234567), format_number(0.000123456), format_number(2.0)
    ('1,234,567', '0.0001235', '2')
    """
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def format_decimals(value: float, decimals: int = 4) -> str:
    """Whole numbers with their thousands, others with so many decimals, for columns that are compared.

    >>> format_decimals(0.5), format_decimals(15625)
    ('0.5000', '15,625')
    """
    return format_number(value) if isinstance(value, int) else f"{value:.{decimals}f}"


def format_share(value: float) -> str:
    """A share of one in percent.

    >>> format_share(0.97254)
    '97.25 %'
    """
    return f"{100 * value:.2f} %"


def format_error(value: float, error: float | None, decimals: int = 3) -> str:
    """A number with its error or deviation, where it has one.

    >>> format_error(0.61234, 0.0211), format_error(2.7, None, 2)
    ('0.612 ± 0.021', '2.70')
    """
    return f"{value:.{decimals}f}" + ("" if error is None else f" ± {error:.{decimals}f}")


def duration(seconds: float) -> str:
    """Two units at most.

    >>> duration(7.4), duration(95), duration(3 * 3600 + 62), duration(90_000), duration(0.02)
    ('7 s', '1 min 35 s', '3 h 1 min', '1 d 1 h', '0.02 s')
    """
    if seconds < 2:
        return f"{seconds:.2g} s"
    left = round(seconds)
    parts: list[tuple[int, str]] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts:
            parts.append((count, unit))
    return " ".join(f"{count} {unit}" for count, unit in parts[:2] if count)


def split_score(name: str) -> tuple[str, str] | None:
    """The side and what a task measures of it; None of losses, accuracies and whatever else there is.

    >>> split_score("valid_r2"), split_score("valid_loss"), split_score("weights/cell/0_1/skip")
    (('valid', 'r2'), None, None)
    """
    match = _SCORE.fullmatch(name)
    return None if match is None else (match[1], match[2])
