"""The record of a run for its pages."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from nas_lightning.errors import InputError
from nas_lightning.genotype import FILE_NAME
from nas_lightning.report.timeline import Timeline, read_timeline
from nas_lightning.runs.facts import HISTORY_FILE, KINDS, Job, RunFacts, not_finite_as_nan
from nas_lightning.runs.folder import SUMMARY
from nas_lightning.runs.programs import IN_PYTHON, program
from nas_lightning.runs.record import Record, look_up, read_start
from nas_lightning.utils.files import parse_json, read_text
from nas_lightning.utils.text import quote_where_needed

# The summaries of finished runs; a damaged one raises an `InputError`.

MOST_SECONDS = 1e10  # centuries


def read_summary(run: Path) -> Job:
    """Read the summary of a run: `overrides`, and `metrics` and `seconds` if it has no `error`.

    >>> read_summary(Path("nowhere"))
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: The run is not finished (in nowhere)
    """
    try:
        text = read_text(run / SUMMARY)
    except OSError:
        raise InputError("The run is not finished", where=run) from None
    except UnicodeDecodeError:
        raise InputError("The summary must be in UTF-8", where=run / SUMMARY) from None
    job = parse_json(text, "The summary must be JSON", run / SUMMARY)
    if not isinstance(job, dict):
        raise InputError("The summary must be a mapping", got=job, where=run / SUMMARY)
    typed = job.get("overrides")
    if not isinstance(typed, list) or not all(isinstance(line, str) for line in typed):
        raise InputError("`overrides` must be a list", got=typed, where=run / SUMMARY)
    if "error" not in job:
        metrics = job["metrics"] = not_finite_as_nan(job.get("metrics"))
        if not isinstance(metrics, dict) or not all(map(is_number, metrics.values())):
            raise InputError("`metrics` must contain numbers", got=metrics, where=run / SUMMARY)
        check_values(job, run, numbers=["seconds"])
        if not 0 <= job["seconds"] < MOST_SECONDS:
            raise InputError("`seconds` must be at least 0", got=job["seconds"], where=run / SUMMARY)
    return job


def check_values(job: Job, run: Path, *, numbers: Iterable[str] = (), texts: Iterable[str] = ()) -> None:
    """Raise an `InputError` unless a summary has these entries with that type."""
    for name in numbers:
        if not is_number(job.get(name)):
            raise InputError(f"`{name}` must be a number", got=job.get(name), where=run / SUMMARY)
    for name in texts:
        if not isinstance(job.get(name), str):
            raise InputError(f"`{name}` must be a string", got=job.get(name), where=run / SUMMARY)


def is_number(value: object) -> bool:
    """Return whether a value of JSON is a number that floats can represent.

    >>> is_number(0.5), is_number("0.5"), is_number(True), is_number(10**400)
    (True, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return not isinstance(value, int) or abs(value) < 10**300


# A run by its folder, without damaged files

ACCURACIES = ("test_accuracy", "ensemble_accuracy", "val_accuracy", "valid_accuracy")
_SCRIPTS = {"search": "search", "training": "train", "ensemble": "train", "study": "analyze"}
_PLAIN_WORD = re.compile(r"dataset\.(?!root=)[a-z]\w*=[\w.]+|network\.[a-z]\w*=[\d.]+")


@dataclass(frozen=True)
class RunRecord:
    """A run by its folder.

    Args:
        run: the folder.

    >>> RunRecord(Path("/nowhere")).title
    'Training (not finished)'
    >>> RunRecord(Path("/nowhere")).kind
    'training'
    """

    run: Path

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """The facts of the result; empty until the run has finished."""
        return {**_read_facts(self.run / SUMMARY), **_read_facts(self.run / FILE_NAME)}

    @cached_property
    def start_record(self) -> Record:
        """How the run was started; empty if that is damaged or unknown."""
        return read_start(self.run)

    @cached_property
    def timeline(self) -> Timeline | None:
        """The history of a search; None without one. Raises an `InputError` if it is damaged."""
        history = self.run / HISTORY_FILE
        return read_timeline(history) if history.is_file() else None

    @property
    def config(self) -> Mapping[str, Any]:
        """The composed configuration."""
        return self.start_record.config

    @property
    def score(self) -> str:
        """The metric that the run's task maximizes."""
        score = look_up(self.config, "task", "score")
        return score if isinstance(score, str) else "accuracy"

    @property
    def choices(self) -> Mapping[str, Any]:
        """The chosen option of each config group."""
        return self.start_record.choices

    @cached_property
    def kind(self) -> str:
        """One of `KINDS`: search, training, ensemble or study."""
        if self.facts:
            kind = RunFacts.from_dict(self.facts).kind
            return kind if kind in KINDS else "training"
        has_weights = (self.run / HISTORY_FILE).is_file()
        return self.start_record.kind or ("search" if has_weights else "training")

    @property
    def metrics(self) -> dict[str, float]:
        """The final metrics."""
        metrics = self.facts.get("metrics")
        return {n: v for n, v in metrics.items() if is_number(v)} if isinstance(metrics, dict) else {}

    @property
    def accuracy(self) -> float | None:
        """The first of `ACCURACIES` that the run has."""
        return next((self.metrics[name] for name in ACCURACIES if name in self.metrics), None)

    @property
    def versions(self) -> Mapping[str, Any]:
        """Versions of packages."""
        versions = self.facts.get("versions")
        return versions if isinstance(versions, dict) else {}

    @property
    def notations(self) -> list[str]:
        """The notations of the genotypes."""
        notations = self.facts.get("notation")
        return [str(notation) for notation in notations] if isinstance(notations, list) else []

    @property
    def end_time(self) -> str:
        """When the run finished, to the minute; empty until then."""
        ends = [path for path in (self.run / FILE_NAME, self.run / SUMMARY) if path.is_file()]
        if not self.facts:
            return ""
        end = datetime.fromtimestamp(ends[0].stat().st_mtime) if ends else datetime.now()
        return f"{end:%Y-%m-%d %H:%M}"

    @property
    def title(self) -> str:
        """Strategy, space, and data set."""
        values = {**self.choices, **self.facts}
        ending = "" if self.facts else " (not finished)"
        if self.kind == "study":
            return f"Study {values.get('study', '')}".rstrip() + ending
        where = " on ".join(str(values[key]) for key in ("space", "dataset") if key in values)
        return str(values.get("strategy", self.kind.capitalize())) + (f": {where}" if where else "") + ending

    def commands(self) -> Iterator[tuple[str, str]]:
        """Yield what to type next, in any folder: purpose and command."""
        place = str(self.run.absolute())
        path = quote_where_needed(place)
        if not self.facts:
            command = [*program(_SCRIPTS[self.kind]), f"resume={path}"]
            yield "Resume it", shlex.join(command)
        elif self.kind == "search":
            several = ["ensemble=all"] if len(self.notations) > 1 else []
            several = ["genotype.index=knee"] if "knee" in self.facts else several
            command = [*program("train"), "genotype=file", f"genotype.path={path}", *several]
            yield "Train it", shlex.join([*command, *self._plain_overrides()])
        elif self.kind == "training":
            yield IN_PYTHON, f"network = nas_lightning.load({place!r}, with_normalization=True)"
            yield "Predict the images of a folder", f"{shlex.join([*program('predict'), place])} …"
            yield "Export it", shlex.join([*program("export"), place, f"{place}/model.onnx"])

    def _plain_overrides(self) -> Iterator[str]:
        """Yield overrides for the same images and sizes, without those that could name code."""
        dataset = self.choices.get("dataset", self.facts.get("dataset"))
        if dataset is not None:
            yield f"dataset={quote_where_needed(str(dataset))}"
        root = look_up(self.config, "dataset", "root")
        if isinstance(root, str) and "${" not in root:
            typed_in = str(look_up(self.start_record.hydra, "runtime", "cwd") or ".")
            folder = os.path.abspath(os.path.join(typed_in, os.path.expanduser(root)))
            yield f"dataset.root={quote_where_needed(folder)}"
        yield from filter(_PLAIN_WORD.fullmatch, self.start_record.overrides)


def _read_facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}
