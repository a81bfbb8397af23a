"""What a run's folder says of the run; what is damaged is left out, as the page's sections say."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from nas_lightning.genotype import FILE_NAME
from nas_lightning.report.summaries import is_number, read_start
from nas_lightning.runs.facts import KINDS, RunFacts
from nas_lightning.runs.folder import SUMMARY
from nas_lightning.runs.history import HISTORY_FILE
from nas_lightning.runs.record import Record

ACCURACIES = ("test_accuracy", "ensemble_accuracy", "val_accuracy", "valid_accuracy")
_SCRIPTS = {"search": "search.py", "training": "train.py", "ensemble": "train.py", "study": "analyze.py"}


@dataclass(frozen=True)
class RunRecord:
    """A run by its folder.

    Args:
        run: the folder.

    >>> RunRecord(Path("/nowhere")).title
    'Training (not finished)'
    >>> dict(RunRecord(Path("/nowhere")).commands())
    {'Go on where it stopped': 'python train.py resume=/nowhere'}
    """

    run: Path

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """What the run ended in; nothing where it has not ended."""
        return {**_read_facts(self.run / SUMMARY), **_read_facts(self.run / FILE_NAME)}

    @cached_property
    def start_record(self) -> Record:
        """How it was started; empty where that is damaged or not known."""
        return read_start(self.run)

    @property
    def config(self) -> Mapping[str, Any]:
        """The composed configuration."""
        return self.start_record.config

    @property
    def choices(self) -> Mapping[str, Any]:
        """What was chosen of each group of options."""
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
        """The numbers that the run ended in."""
        metrics = self.facts.get("metrics")
        return {n: v for n, v in metrics.items() if is_number(v)} if isinstance(metrics, dict) else {}

    @property
    def accuracy(self) -> float | None:
        """The first that the run has of test images, then of others."""
        return next((self.metrics[name] for name in ACCURACIES if name in self.metrics), None)

    @property
    def versions(self) -> Mapping[str, Any]:
        """Of the packages."""
        versions = self.facts.get("versions")
        return versions if isinstance(versions, dict) else {}

    @property
    def notations(self) -> list[str]:
        """Of the genotypes, as others' code reads them."""
        notations = self.facts.get("notation")
        return [str(notation) for notation in notations] if isinstance(notations, list) else []

    @property
    def end_time(self) -> str:
        """When, to the minute; empty where the run has not ended."""
        ends = [path for path in (self.run / FILE_NAME, self.run / SUMMARY) if path.is_file()]
        if not self.facts:
            return ""
        end = datetime.fromtimestamp(ends[0].stat().st_mtime) if ends else datetime.now()
        return f"{end:%Y-%m-%d %H:%M}"

    @property
    def title(self) -> str:
        """What was done, in which space, on which images."""
        values = {**self.choices, **self.facts}
        ending = "" if self.facts else " (not finished)"
        if self.kind == "study":
            return f"Study {values.get('study', '')}".rstrip() + ending
        where = " on ".join(str(values[key]) for key in ("space", "dataset") if key in values)
        return str(values.get("strategy", self.kind.capitalize())) + (f": {where}" if where else "") + ending

    def commands(self) -> Iterator[tuple[str, str]]:
        """What to type next, from any folder: what for, and the command."""
        place = str(self.run.absolute())
        if not self.facts:
            resume = shlex.quote(f"resume={place}")
            yield "Go on where it stopped", f"python {_SCRIPTS[self.kind]} {resume}"
        elif self.kind == "search":
            several = " ensemble=all" if len(self.notations) > 1 else ""
            data = f" dataset={shlex.quote(str(self.facts['dataset']))}" if "dataset" in self.facts else ""
            source = shlex.quote(f"genotype.path={place}")
            yield "Train it", f"python train.py genotype=file {source}{several}{data}"
        elif self.kind == "training":
            yield "Use it in Python", f"network = nas_lightning.load({place!r})"


def _read_facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}
