"""Progress of a loop: a bar on a terminal, a line per minute in logs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

from tqdm import tqdm

from nas_lightning.utils.text import duration

Item = TypeVar("Item")
FIRST, APART = 10.0, 60.0  # seconds before the first line, and between two


class OutOfTimeError(Exception):
    """A time limit has ended the work."""


def never() -> bool:
    """Return False: the condition that ends a loop without a time limit."""
    return False


def follow(
    items: Iterable[Item], what: str, *, total: int | None = None, done: int = 0, shown: bool = True
) -> Iterator[Item]:
    """Yield the items and show the progress.

    Args:
        items: the items.
        what: their name in the plural.
        total: total number of items. Default: `len(items)` if it has a length.
        done: number of items that were processed earlier.
        shown: whether to show the progress.

    >>> [item for item in follow("ab", "letters")]
    ['a', 'b']
    """
    if total is None:
        with suppress(TypeError):
            total = done + len(items)  # type: ignore[arg-type]  # not every iterable has a length
    if not shown:
        yield from items
    elif sys.stderr.isatty():
        yield from tqdm(items, desc=what, total=total, initial=done, leave=False)
    else:
        yield from _in_lines(items, what, total, done)


def _in_lines(items: Iterable[Item], what: str, total: int | None, done: int) -> Iterator[Item]:
    start = time.monotonic()
    due = start + FIRST
    for number, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now >= due and done + number != total:
            print(line_of(what, number, done, total, now - start), file=sys.stderr, flush=True)
            due = now + APART


def line_of(what: str, number: int, done: int, total: int | None, seconds: float) -> str:
    """Return a line of progress after `number` items in `seconds`.

    >>> line_of("images", 30, 10, 100, 60.0)
    'images: 40 of 100, 30 a minute, about 2 min to go'
    >>> line_of("records", 50, 0, None, 5.0)
    'records: 50, 600 a minute'
    """
    count, rate = done + number, f"{60 * number / seconds:,.0f} a minute"
    if total is None:
        return f"{what}: {count:,}, {rate}"
    left = duration(seconds * (total - count) / number)
    return f"{what}: {count:,} of {total:,}, {rate}, about {left} to go"
