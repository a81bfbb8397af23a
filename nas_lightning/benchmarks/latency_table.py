"""A table of latencies: a column `arch` or `genotype`, and one of milliseconds for every device.

arch,raspi4,pixel3
|skip_connect~0|+|…,12.9,5.1
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from nas_lightning.benchmarks.formats.columns import READERS
from nas_lightning.errors import InputError, near_match
from nas_lightning.spaces.base import SearchSpace

MOST_MS = 10**9  # eleven days for an image; sums over a table stay far from the largest float
_NAMES = ("arch", "genotype")


class LatencyTable:
    """What devices took for architectures of a space; all of it is read and checked at once.

    Args:
        path: the file, `.csv` or `.parquet`.
        space: that the architectures are of.
        gaps: whether devices may lack architectures; nothing or a number below 0 stands there then.

    >>> from nas_lightning.spaces import NasBench201
    >>> LatencyTable("phone.txt", NasBench201())
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: expected a table of latencies, .csv or .parquet, got 'phone.txt'
    """

    def __init__(self, path: str | Path, space: SearchSpace, *, gaps: bool = False) -> None:
        path = Path(path)
        if path.suffix not in READERS or not path.is_file():
            raise InputError("expected a table of latencies, .csv or .parquet", got=str(path))
        columns = dict(READERS[path.suffix](path))
        named = [name for name in _NAMES if name in columns]
        if not named:
            raise InputError("expected a column arch or genotype", got=", ".join(columns), where=path)
        self.names = _notations(columns.pop(named[0]), space, path)
        self.devices = {
            device: _milliseconds(dict(zip(self.names, values, strict=True)), device, path, gaps)
            for device, values in columns.items()
        }

    def choose(self, devices: Sequence[str]) -> dict[str, dict[str, float]]:
        """The columns of some devices: device → architecture → milliseconds."""
        for device in devices:
            if device not in self.devices:
                expected = f"expected a device of the table ({near_match(device, [*self.devices])})"
                raise InputError(expected, got=device)
        return {device: self.devices[device] for device in devices}


def _notations(texts: Sequence[str], space: SearchSpace, path: Path) -> list[str]:
    names = []
    for number, text in enumerate(texts, 1):
        try:
            names.append(space.notation(space.parse(text)))
        except InputError as error:
            raise InputError(str(error), where=f"{path}, row {number}") from None
    first: dict[str, int] = {}
    for row, name in enumerate(names, 1):
        if first.setdefault(name, row) != row:
            where = f"{path}, row {row}"
            raise InputError("expected distinct architectures", got=f"that of row {first[name]}", where=where)
    if not names:
        raise InputError("expected distinct architectures, at least one", got=0, where=path)
    return names


def _milliseconds(values: Mapping[str, str | float], device: str, path: Path, gaps: bool) -> dict[str, float]:
    numbers = {}
    for row, (name, value) in enumerate(values.items(), 1):
        try:
            ms = float(value)
        except (TypeError, ValueError):
            ms = -math.inf if value == "" else math.nan
        if gaps and ms < 0:
            continue
        if not 0 < ms <= MOST_MS:
            expected = f"expected {device} as milliseconds above 0 and of at most {MOST_MS:,}"
            raise InputError(expected, got=value, where=f"{path}, row {row}")
        numbers[name] = ms
    return numbers
