"""A training and the search whose architecture it trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import FILE_NAME, read_genotypes
from nas_lightning.report.record import RunRecord
from nas_lightning.runs.record import look_up


@dataclass(frozen=True)
class Joined:
    """A search and a training of what it found; None where the search itself is judged.

    Args:
        search: the search.
        training: the training.
        arm: what is compared.
        data: the data set.
    """

    search: RunRecord
    training: RunRecord | None
    arm: str
    data: str

    @property
    def judged(self) -> RunRecord:
        """The run whose metric counts."""
        return self.training or self.search


def search_of(training: RunRecord, searches: Sequence[RunRecord]) -> RunRecord:
    """The search that found what was trained: at the path that was typed, or else given and the same."""
    path = look_up(training.config, "genotype", "path")
    if training.choices.get("genotype") != "file" or not isinstance(path, str):
        raise InputError("expected genotype.path=SEARCH")
    there = RunRecord(Path(path).parent if Path(path).name == FILE_NAME else Path(path))
    if there.kind == "search" and there.facts.get("metrics") is not None:
        return there
    trained = read_genotypes(training.run)
    moved = [s for s in searches if s.run.name == there.run.name and trained[0] in read_genotypes(s.run)]
    if len(moved) != 1:
        raise InputError("expected the search that it is of, which may be given, too", got=path)
    return moved[0]


def setting_of(key: str, first: RunRecord | None, second: RunRecord | None) -> str:
    """A group's option or a setting's value, of the first run that has it."""
    names: set[str] = set()
    for record in filter(None, (first, second)):
        value = record.choices.get(key, look_up(record.config, *key.split(".")))
        if value is not None and not isinstance(value, Mapping):
            return str(value)
        names |= {*map(str, record.choices), *map(str, record.config)}
    where = first.run if first else None
    hint = near_match(key, [name for name in names if "/" not in name])
    raise InputError(f"expected a setting of the runs ({hint})", got=key, where=where)
