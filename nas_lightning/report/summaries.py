"""The summaries that finished runs leave; whatever is wrong with one is an `InputError` of one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from nas_lightning.errors import InputError
from nas_lightning.files import parse_json, read_text
from nas_lightning.genotype import FILE_NAME
from nas_lightning.runs.facts import not_finite_as_nan
from nas_lightning.runs.folder import SUMMARY
from nas_lightning.runs.record import Record, has_record, read_record
from nas_lightning.runs.repetitions import Job

MOST_SECONDS = 1e10  # centuries


def job_folders(sweep: Path) -> list[Path]:
    """The folders of a sweep's jobs in their order; of anything else none.

    They are called as `hydra.sweep.subdir` says. Where there is no record of the sweep, a number names each.
    """
    if has_record(sweep) and read_start(sweep).is_sweep:
        return sorted(_runs_below(sweep), key=lambda run: _natural_key(run.relative_to(sweep)))
    return sorted(
        (path for path in sweep.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name)
    )


def _runs_below(folder: Path) -> Iterator[Path]:
    """The runs that are in a folder and in none of them, such as the members of an ensemble are."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            is_run = has_record(path) or any((path / name).is_file() for name in (SUMMARY, FILE_NAME))
            yield from [path] if is_run else _runs_below(path)


def _natural_key(path: Path) -> list[tuple[int, str]]:
    """Numbers in names count as such: job 10 comes after job 9.

    >>> sorted([Path("seed=10"), Path("seed=9"), Path("b")], key=_natural_key)[1]
    PosixPath('seed=9')
    """
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", str(path))]


def read_summary(run: Path) -> Job:
    """What a run has come to: `overrides`, and `metrics` and `seconds` where it has no `error`.

    >>> read_summary(Path("nowhere"))
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: expected a run that is finished (in nowhere)
    """
    try:
        text = read_text(run / SUMMARY)
    except OSError:
        raise InputError("expected a run that is finished", where=run) from None
    except UnicodeDecodeError:
        raise InputError("expected a summary in UTF-8", where=run / SUMMARY) from None
    job = parse_json(text, "expected a summary in JSON", run / SUMMARY)
    if not isinstance(job, dict):
        raise InputError("expected a summary of names and values", got=job, where=run / SUMMARY)
    typed = job.get("overrides")
    if not isinstance(typed, list) or not all(isinstance(line, str) for line in typed):
        raise InputError("expected the list `overrides`", got=typed, where=run / SUMMARY)
    if "error" not in job:
        metrics = job["metrics"] = not_finite_as_nan(job.get("metrics"))
        if not isinstance(metrics, dict) or not all(map(is_number, metrics.values())):
            raise InputError("expected numbers in `metrics`", got=metrics, where=run / SUMMARY)
        check_values(job, run, numbers=["seconds"])
        if not 0 <= job["seconds"] < MOST_SECONDS:
            raise InputError("expected `seconds` ≥ 0", got=job["seconds"], where=run / SUMMARY)
    return job


def check_values(job: Job, run: Path, *, numbers: Iterable[str] = (), texts: Iterable[str] = ()) -> None:
    """Raise unless these entries of a summary are there and of that type."""
    for name in numbers:
        if not is_number(job.get(name)):
            raise InputError(f"expected a number `{name}`", got=job.get(name), where=run / SUMMARY)
    for name in texts:
        if not isinstance(job.get(name), str):
            raise InputError(f"expected a text `{name}`", got=job.get(name), where=run / SUMMARY)


def is_number(value: object) -> bool:
    """Whether a value of JSON is a number that arithmetic is safe with.

    >>> is_number(0.5), is_number("0.5"), is_number(True), is_number(10**400)
    (True, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return not isinstance(value, int) or abs(value) < 10**300


def read_start(run: Path) -> Record:
    """How a run was started; an empty record where one of its files is damaged."""
    try:
        return read_record(run)
    except (InputError, RecursionError):
        return Record((), {}, {})
