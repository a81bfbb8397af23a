"""A device: latencies that were measured there, and what they say of a space's other networks."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import torch

from nas_lightning.benchmarks.formats.columns import SETTING, read_settings
from nas_lightning.benchmarks.latency_table import LatencyTable
from nas_lightning.cost.latency.features import Features
from nas_lightning.cost.latency.model import LEAST, LatencyModel
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.files import write_whole
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace

_OF_TRAINING = ("auxiliary", "dropout")  # which no inference has
MOST = 300
"""Networks that others are foretold from and limits begin with: more would add little, and take long."""


class Device:
    """genotype → milliseconds: as measured; else as foretold, with a standard deviation on top.

    Args:
        name: a table of latencies; `table.csv:phone` is its column `phone`, which one of a single column
            does not need.
        space: of the networks.
        network: what the settings of the file have to agree with, where it names any.

    >>> from nas_lightning.spaces import NasBench201
    >>> Device("phone.csv", NasBench201())
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: expected a table of latencies, .csv or .parquet, got 'phone.csv'
    """

    def __init__(self, name: str, space: SearchSpace, network: dict[str, str] | None = None) -> None:
        path, column = _path_and_column(name)
        table = LatencyTable(path, space, gaps=True)
        if not table.devices:
            raise InputError("expected a column of milliseconds", got="none", where=path)
        if column is None and len(table.devices) > 1:
            expected = f"expected one of its devices, {path}:{', '.join(table.devices)}"
            raise InputError(expected, got="none", where="limits.device")
        column = next(iter(table.devices)) if column is None else column
        self.measured = table.choose([column])[column]
        if len(self.measured) < LEAST:
            raise InputError(
                f"expected {LEAST} measured networks or more", got=len(self.measured), where=path
            )
        _check_settings(Path(path), network or {})
        self.space = space
        order = torch.randperm(len(self.measured), generator=torch.Generator().manual_seed(0))
        names = list(self.measured)
        chosen = [names[index] for index in order[:MOST].tolist()]
        known = {space.parse(text): self.measured[text] for text in chosen}
        self.model = LatencyModel(Features(space), known)

    def __call__(self, genotype: Genotype) -> float:
        measured = self.measured.get(self.space.notation(genotype))
        if measured is not None:
            return measured
        (latency,) = self.model.predict([genotype])
        return latency.ms + latency.error

    def fastest(self, limit: float) -> list[Genotype]:
        """What was measured within so many milliseconds, at most `MOST`, the fastest first."""
        within = [name for name, ms in self.measured.items() if ms <= limit]
        return [self.space.parse(name) for name in sorted(within, key=self.measured.__getitem__)[:MOST]]


def _path_and_column(name: str) -> tuple[str, str | None]:
    """The file, and the column behind its ending where one is named; folders may have colons, too.

    >>> _path_and_column("tables/12:30/phones.csv:pixel:3"), _path_and_column("phone.csv")
    (('tables/12:30/phones.csv', 'pixel:3'), ('phone.csv', None))
    """
    found = re.fullmatch(r"(.*?\.(?:csv|parquet))(?::(.*))?", name, re.DOTALL)
    return (found[1], found[2]) if found else (name, None)


def _check_settings(path: Path, network: dict[str, str]) -> None:
    """Raise for a file that was measured with networks of other sizes."""
    settings = read_settings(path)
    for name, value in network.items():
        if settings.get(name, value) != value:
            expected = f"expected {name}={settings[name]}, with which {path} was measured"
            raise InputError(expected, got=value, where="limits.device")


def device_settings(space: SearchSpace, data: SearchData, sizes: Mapping[str, Any]) -> dict[str, str]:
    """What a latency depends on besides genotype and machine: the network's sizes, the images and classes."""
    shape = {"image": "x".join(map(str, data.image)), "classes": data.num_classes}
    of_network = {f"network.{name}": value for name, value in sizes.items() if name not in _OF_TRAINING}
    return {name: str(value) for name, value in {"space": space.name, **shape, **of_network}.items()}


def write_device(path: Path, name: str, measured: Mapping[str, float], settings: Mapping[str, str]) -> Path:
    """The file of a device: settings above, then a row for each architecture."""
    text = StringIO()
    text.writelines(f"{SETTING} {setting}: {value}\n" for setting, value in settings.items())
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([("genotype", name), *((notation, f"{ms:.6g}") for notation, ms in measured.items())])
    return write_whole(path, text.getvalue())
