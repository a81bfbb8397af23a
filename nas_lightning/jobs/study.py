"""Run a study with the parts that it names, and write its results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.jobs.parts import Parts
from nas_lightning.runs.facts import Findings, RunFacts
from nas_lightning.runs.folder import RunFolder
from nas_lightning.studies.base import Study


def study(
    question: Study, parts: Parts[SearchData], *, name: str | None = None, overrides: Sequence[str] = ()
) -> RunFacts:
    """Run a study, and write its tables and figures to the folder.

    Args:
        question: the study.
        parts: the parts that it can name, and the folder of the run.
        name: name of the study. Default: the name of its class.
        overrides: the overrides of the run, for its summary.
    """
    start = time.monotonic()
    findings = question.run(**named_parts(question, parts))
    seconds = time.monotonic() - start
    return write_findings(findings, parts, name or type(question).__name__, seconds, overrides)


def named_parts(question: Study, parts: Parts[SearchData]) -> dict[str, Any]:
    """Return the parts that a study names.

    Raises:
        InputError: A required part is missing, or images or network sizes are invalid.
    """
    named = question.wants()
    if "data" in named:
        parts.data.setup()
    if "network" in named:
        parts.check_network()
    handed = {name: getattr(parts, name) for name in named}
    missing = [name for name, needed in named.items() if needed and handed[name] is None]
    if missing:
        raise InputError(f"The study needs a {missing[0]}: pass {missing[0]}=… (`--help` lists the options).")
    return handed


def write_findings(
    findings: Findings, parts: Parts[SearchData], name: str, seconds: float, overrides: Sequence[str] = ()
) -> RunFacts:
    """Write the results of a study and its summary."""
    files = findings.write(parts.folder)
    facts = RunFacts(
        "study",
        seed=parts.seed,
        metrics=dict(findings.numbers),
        seconds=round(seconds, 1),
        overrides=tuple(overrides),
        study=name,
        files=tuple(str(path.relative_to(parts.folder)) for path in files),
    )
    RunFolder(parts.folder).finish(facts)
    return facts
