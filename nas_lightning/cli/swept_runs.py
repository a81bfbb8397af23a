"""Runs of earlier sweeps as what a sweep goes over.

train.py -m genotype=file genotype.path=SWEEP        the runs of that sweep that have an architecture
train.py -m genotype=file 'genotype.path=glob(a/*)'  the folders of that name
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from glob import glob
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, Glob, Override

from nas_lightning.cli.composition import parse
from nas_lightning.errors import InputError
from nas_lightning.report.record import job_folders
from nas_lightning.runs.folder import RunFolder
from nas_lightning.utils.text import quote

_KEY = "genotype.path"


def expand_runs(word: str) -> str:
    """The word with a sweep's runs, and what a pattern stands for, in its place; other words as they are."""
    if word.lstrip("+").partition("=")[0] != _KEY:
        return word
    (override,) = parse([word])
    paths = [run for path in _paths(override) for run in _runs(path)]
    if paths == _plain(override):
        return word
    return f"{word.partition('=')[0]}={','.join(map(quote, paths))}"


def _plain(override: Override) -> list[str]:
    """The paths that are typed, patterns among them."""
    value = override.value()
    values: Iterable[Any] = value.list if isinstance(value, ChoiceSweep) else [value]
    return [str(getattr(entry, "text", entry)) for entry in values]


def _paths(override: Override) -> Iterator[str]:
    value = override.value()
    if not isinstance(value, Glob):
        yield from _plain(override)
        return
    fitting = sorted({path for pattern in value.include for path in glob(pattern)})
    found = [path for path in fitting if not any(fnmatch(path, pattern) for pattern in value.exclude)]
    if not found:
        raise InputError("expected a pattern of runs that are there", got=override.input_line, where=_KEY)
    yield from found


def _runs(path: str) -> list[str]:
    """Of a sweep its runs with an architecture, in their order; of anything else itself."""
    folder = RunFolder(path)
    if not (folder.has_record and folder.record.is_sweep):
        return [path]
    runs = [job for job in job_folders(folder.path) if RunFolder(job).genotype.is_file()]
    if not runs:
        raise InputError("expected a sweep with architectures", got=path, where=_KEY)
    return [str(run) for run in runs]
