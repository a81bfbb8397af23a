"""The record of a run's start: overrides and composed configuration, as Hydra's three files in `.hydra`."""

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
MOST_VALUES = 100_000  # far above any configuration; nested yaml aliases can expand without end
_OVERRIDES, _CONFIG, _HYDRA = "overrides.yaml", "config.yaml", "hydra.yaml"


@dataclass(frozen=True)
class Record:
    """The record of a run's start.

    Args:
        overrides: the overrides on the command line.
        config: the composed configuration, with interpolations such as `${run}`.
        hydra: the node `hydra`: script, chosen options, and config folders.

    >>> Record(("seed=1",), {"seed": 1}, {"job": {"config_name": "search"}}).kind
    'search'
    """

    overrides: tuple[str, ...]
    config: Mapping[str, Any]
    hydra: Mapping[str, Any]

    @property
    def script(self) -> str:
        """The entry script: search, train, or analyze."""
        return str(look_up(self.hydra, "job", "config_name") or "")

    @property
    def is_sweep(self) -> bool:
        """Whether this is the record of a sweep as a whole, not of one of its jobs."""
        job = look_up(self.hydra, "job")
        return self.in_sweep and look_up(job, "num") in (None, "???")

    @property
    def in_sweep(self) -> bool:
        """Whether this is the record of a sweep or of a job of a sweep."""
        return look_up(self.hydra, "mode") == "MULTIRUN"

    def settings(self, *beginnings: str) -> list[str]:
        """Return the overrides of these keys.

        >>> record = Record(("strategy=darts", "++trainer.precision=16", "seed=1"), {}, {})
        >>> record.settings("trainer."), record.without("seed=")
        (['++trainer.precision=16'], ['strategy=darts', '++trainer.precision=16'])
        """
        return [word for word in self.overrides if word.lstrip("+").startswith(beginnings)]

    def without(self, *beginnings: str) -> list[str]:
        """Return the other overrides."""
        return [word for word in self.overrides if not word.lstrip("+").startswith(beginnings)]

    @property
    def kind(self) -> str | None:
        """The `kind` of the run's facts, None if the script is unknown."""
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
        """The folders of `--config-dir`."""
        sources = look_up(self.hydra, "runtime", "config_sources")
        own = [
            source
            for source in (sources if isinstance(sources, list) else [])
            if look_up(source, "provider") == "command-line"
        ]
        return tuple(Path(str(look_up(source, "path"))) for source in own)

    def write(self, run: Path) -> None:
        """Write all files atomically; replace an incomplete record."""
        contents = {_OVERRIDES: list(self.overrides), _CONFIG: self.config, _HYDRA: {"hydra": self.hydra}}
        if (run / RECORD).exists() and not has_record(run):
            shutil.rmtree(run / RECORD)
        with replacing(run / RECORD) as folder:
            folder.mkdir()
            for name, content in contents.items():
                write_whole(folder / name, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def has_record(run: Path) -> bool:
    """Return whether the folder has a complete record; its overrides are written last."""
    return (run / RECORD / _OVERRIDES).is_file()


def remove_record(run: Path) -> None:
    """Remove the record; the overrides first, so that an interrupted removal leaves no valid record."""
    (run / RECORD / _OVERRIDES).unlink(missing_ok=True)
    shutil.rmtree(run / RECORD, ignore_errors=True)


def read_record(run: Path) -> Record:
    """Read the record in a run's folder.

    The folder may come from somebody else, so only plain values are read. Missing files count as empty.

    Raises:
        InputError: A file is damaged.
    """
    overrides, config, hydra = (_read(run / RECORD / name) for name in (_OVERRIDES, _CONFIG, _HYDRA))
    if not isinstance(overrides or [], list) or not all(isinstance(word, str) for word in overrides or []):
        raise InputError(
            "The file must have a list of overrides", got=overrides, where=run / RECORD / _OVERRIDES
        )
    for name, content in ((_CONFIG, config), (_HYDRA, hydra)):
        if not isinstance(content or {}, dict):
            raise InputError("The file must have a mapping", got=content, where=run / RECORD / name)
    own = (hydra or {}).get("hydra") or {}
    if not isinstance(own, dict):
        raise InputError("The file must have a mapping", got=own, where=run / RECORD / _HYDRA)
    return Record(tuple(overrides or ()), config or {}, own)


def read_config_text(run: Path) -> str:
    """Return the text of the composed configuration in a run's folder."""
    file = run / RECORD / _CONFIG
    try:
        return read_text(file, errors="replace")
    except OSError:
        raise InputError(f"There is no {RECORD}/{_CONFIG}, which the commands write") from None


def look_up(record: object, *names: str) -> Any:
    """Return a nested value by its path of names, None if it does not exist.

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
        raise InputError("The yaml is nested too deeply", where=file) from None
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"Cannot read the yaml: {' '.join(str(error).split())}", where=file) from None
    if len(list(islice(_values(content), MOST_VALUES))) == MOST_VALUES:
        raise InputError(f"There can be at most {MOST_VALUES:,} values", where=file)
    return content


def _values(content: Any) -> Iterator[Any]:
    """Yield every nested value, repeatedly if yaml aliases repeat it; this may not end."""
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
