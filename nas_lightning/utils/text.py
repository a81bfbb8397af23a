"""Formats of paths, numbers, durations, and quoted values."""

from __future__ import annotations

import os
import re
from pathlib import Path

_SCORE = re.compile(r"(train|valid|val|test)_(?!loss$|error$|accuracy)(.+)")
_PLAIN = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./%@?|~")


def quote_where_needed(text: str) -> str:
    """Quote a value for Hydra if necessary.

    >>> quote_where_needed("a/b"), quote_where_needed("a b")
    ('a/b', '"a b"')
    """
    return quote(text) if set(text) - _PLAIN else text


def quote(text: str) -> str:
    """Quote a value for Hydra."""
    return '"' + text.replace('"', '\\"') + '"'


def short_path(path: str | Path) -> str:
    """Return the path relative to the current folder if it is inside."""
    path = Path(path).absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def printable(path: str) -> str:
    r"""Escape the bytes of a path that are not UTF-8.

    >>> printable("caf\udce9.png"), printable("café.png")
    ('caf\\xe9.png', 'café.png')
    """
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def is_text(word: str) -> bool:
    r"""Return whether a string contains no undecodable bytes.

    >>> is_text("café.png"), is_text("caf\udce9.png")
    (True, False)
    """
    return not any("\ud800" <= letter <= "\udfff" for letter in word)


def format_number(value: float) -> str:
    """Format integers with thousands separators, others with four significant digits.

    >>> format_number(1234567), format_number(0.000123456), format_number(2.0)
    ('1,234,567', '0.0001235', '2')
    """
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def format_decimals(value: float, decimals: int = 4) -> str:
    """Format integers with thousands separators, others with a fixed number of decimals.

    >>> format_decimals(0.5), format_decimals(15625)
    ('0.5000', '15,625')
    """
    return format_number(value) if isinstance(value, int) else f"{value:.{decimals}f}"


def format_share(value: float) -> str:
    """Format a share in percent.

    >>> format_share(0.97254)
    '97.25 %'
    """
    return f"{100 * value:.2f} %"


def format_error(value: float, error: float | None, decimals: int = 3) -> str:
    """Format a number with its error or deviation, if any.

    >>> format_error(0.61234, 0.0211), format_error(2.7, None, 2)
    ('0.612 ± 0.021', '2.70')
    """
    return f"{value:.{decimals}f}" + ("" if error is None else f" ± {error:.{decimals}f}")


def duration(seconds: float) -> str:
    """Format seconds with at most two units.

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
    """Split the name of a task's score; return None for losses, accuracies, and other names.

    >>> split_score("valid_r2"), split_score("valid_loss"), split_score("entropy/cell")
    (('valid', 'r2'), None, None)
    """
    match = _SCORE.fullmatch(name)
    return None if match is None else (match[1], match[2])
