"""What a run's folder says of the run; what is damaged is left out, as the page's sections say."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from nas_lightning.files import read_text
from nas_lightning.genotype import FILE_NAME
from nas_lightning.report.summaries import is_number, read_start
from nas_lightning.runs.facts import KINDS, RunFacts
from nas_lightning.runs.folder import SUMMARY
from nas_lightning.runs.history import HISTORY_FILE
from nas_lightning.runs.programs import IN_PYTHON, program
from nas_lightning.runs.record import Record, look_up
from nas_lightning.text import quote_where_needed

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
    def score(self) -> str:
        """The metric that the run's task maximises."""
        score = look_up(self.config, "task", "score")
        return score if isinstance(score, str) else "accuracy"

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
        path = quote_where_needed(place)
        if not self.facts:
            words = [*program(_SCRIPTS[self.kind]), f"resume={path}"]
            yield "Go on where it stopped", shlex.join(words)
        elif self.kind == "search":
            several = ["ensemble=all"] if len(self.notations) > 1 else []
            several = ["genotype.index=knee"] if "knee" in self.facts else several
            words = [*program("train"), "genotype=file", f"genotype.path={path}", *several]
            yield "Train it", shlex.join([*words, *self._plain_words()])
        elif self.kind == "training":
            yield IN_PYTHON, f"network = nas_lightning.load({place!r})"
            yield "Predict the images of a folder", f"{shlex.join([*program('predict'), place])} …"

    def _plain_words(self) -> Iterator[str]:
        """The images and sizes of the run as words for another: none of those that could name code."""
        dataset = self.choices.get("dataset", self.facts.get("dataset"))
        if dataset is not None:
            yield f"dataset={quote_where_needed(str(dataset))}"
        root = look_up(self.config, "dataset", "root")
        if isinstance(root, str) and "${" not in root:
            typed_in = str(look_up(self.start_record.hydra, "runtime", "cwd") or ".")
            folder = os.path.abspath(os.path.join(typed_in, os.path.expanduser(root)))
            yield f"dataset.root={quote_where_needed(folder)}"
        yield from filter(_PLAIN_WORD.fullmatch, self.start_record.words)


def _read_facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}
