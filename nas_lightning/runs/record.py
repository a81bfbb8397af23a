"""The record of a run's start: what was typed, and what it composed to. Hydra's three files in `.hydra`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from nas_lightning.errors import InputError
from nas_lightning.utils.files import read_text, replacing, write_whole

RECORD = ".hydra"
MOST_VALUES = 100_000  # of a file: far above any configuration, and aliases of aliases are soon more
_WORDS, _CONFIG, _HYDRA = "overrides.yaml", "config.yaml", "hydra.yaml"


@dataclass(frozen=True)
class Record:
    """How a run was started.

    Args:
        words: the overrides that were typed.
        config: the composed configuration; references to other settings, such as `${run}`, stay.
        hydra: what Hydra says of itself: the script's name, choices of groups, folders of configurations.

    >>> Record(("seed=1",), {"seed": 1}, {"job": {"config_name": "search"}}).kind
    'search'
    """

    words: tuple[str, ...]
    config: Mapping[str, Any]
    hydra: Mapping[str, Any]

    @property
    def script(self) -> str:
        """The entry script: search, train or analyze."""
        return str(look_up(self.hydra, "job", "config_name") or "")

    @property
    def is_sweep(self) -> bool:
        """Whether it is a sweep as a whole, whose jobs have numbers and records of their own."""
        job = look_up(self.hydra, "job")
        return self.in_sweep and look_up(job, "num") in (None, "???")

    @property
    def in_sweep(self) -> bool:
        """Whether it is a job of a sweep, or a sweep."""
        return look_up(self.hydra, "mode") == "MULTIRUN"

    def settings(self, *beginnings: str) -> list[str]:
        """Return the overrides of these keys.

        >>> record = Record(("strategy=darts", "++trainer.precision=16", "seed=1"), {}, {})
        >>> record.settings("trainer."), record.without("seed=")
        (['++trainer.precision=16'], ['strategy=darts', '++trainer.precision=16'])
        """
        return [word for word in self.words if word.lstrip("+").startswith(beginnings)]

    def without(self, *beginnings: str) -> list[str]:
        """Return the other overrides."""
        return [word for word in self.words if not word.lstrip("+").startswith(beginnings)]

    @property
    def kind(self) -> str | None:
        """Which of the facts' kinds the run will be; None where its script is not known."""
        if self.script == "train":
            return "training" if self.config.get("ensemble") is None else "ensemble"
        return {"search": "search", "analyze": "study"}.get(self.script)

    @property
    def choices(self) -> Mapping[str, str]:
        """The option that was chosen in each group."""
        chosen = look_up(self.hydra, "runtime", "choices")
        return dict(chosen) if isinstance(chosen, Mapping) else {}

    @property
    def folders(self) -> tuple[Path, ...]:
        """The user's own folders of configurations."""
        sources = look_up(self.hydra, "runtime", "config_sources")
        own = [
            source
            for source in (sources if isinstance(sources, list) else [])
            if look_up(source, "provider") == "command-line"
        ]
        return tuple(Path(str(look_up(source, "path"))) for source in own)

    def write(self, run: Path) -> None:
        """Write the files, all or none; what an earlier version's start has left half done goes."""
        contents = {_WORDS: list(self.words), _CONFIG: self.config, _HYDRA: {"hydra": self.hydra}}
        if (run / RECORD).exists() and not has_record(run):
            shutil.rmtree(run / RECORD)
        with replacing(run / RECORD) as folder:
            folder.mkdir()
            for name, content in contents.items():
                write_whole(folder / name, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def has_record(run: Path) -> bool:
    """Whether the folder has the record of a start, whole: Hydra itself wrote the words last."""
    return (run / RECORD / _WORDS).is_file()


def remove_record(run: Path) -> None:
    """Take it away, the words first: what a kill leaves is no record, and if they stay all does."""
    (run / RECORD / _WORDS).unlink(missing_ok=True)
    shutil.rmtree(run / RECORD, ignore_errors=True)


def read_record(run: Path) -> Record:
    """The record in a run's folder, which may be a stranger's: of each file only plain values are read.

    A missing file is an empty one; a damaged one is an `InputError`.
    """
    words, config, hydra = (_read(run / RECORD / name) for name in (_WORDS, _CONFIG, _HYDRA))
    if not isinstance(words or [], list) or not all(isinstance(word, str) for word in words or []):
        raise InputError("expected a list of settings", got=words, where=run / RECORD / _WORDS)
    for name, content in ((_CONFIG, config), (_HYDRA, hydra)):
        if not isinstance(content or {}, dict):
            raise InputError("expected names and values", got=content, where=run / RECORD / name)
    own = (hydra or {}).get("hydra") or {}
    if not isinstance(own, dict):
        raise InputError("expected names and values", got=own, where=run / RECORD / _HYDRA)
    return Record(tuple(words or ()), config or {}, own)


def read_config_text(run: Path) -> str:
    """The composed configuration in a run's folder, as it is written there."""
    file = run / RECORD / _CONFIG
    try:
        return read_text(file, errors="replace")
    except OSError:
        raise InputError(f"expected {RECORD}/{_CONFIG}, which the scripts write") from None


def look_up(record: object, *names: str) -> Any:
    """A value by its path of names; None where there is none.

    >>> look_up({"hydra": {"runtime": 3}}, "hydra", "runtime"), look_up({"hydra": []}, "hydra", "runtime")
    (3, None)
    """
    for name in names:
        record = record.get(name) if isinstance(record, Mapping) else None
    return record


def _read(file: Path) -> Any:
    try:
        content = yaml.safe_load(read_text(file))
    except OSError:
        return None
    except InputError:
        raise
    except RecursionError:
        raise InputError("expected yaml that is not nested so deeply", where=file) from None
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"expected yaml: {' '.join(str(error).split())}", where=file) from None
    if len(list(islice(_values(content), MOST_VALUES))) == MOST_VALUES:
        raise InputError(f"expected less than {MOST_VALUES:,} values", where=file)
    return content


def _values(content: Any) -> Iterator[Any]:
    """Every value in there as often as it is named, which in a file of aliases may be without end."""
    waiting = [content]
    while waiting:
        value = waiting.pop()
        yield value
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def read_start(run: Path) -> Record:
    """Read how a run was started; an empty record if a file is damaged."""
    try:
        return read_record(run)
    except (InputError, RecursionError):
        return Record((), {}, {})
