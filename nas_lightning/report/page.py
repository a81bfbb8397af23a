"""A run's page: `report.html` in its folder, one file that needs no other and no network.

What it shows is gathered here and in `sections`; how it looks is in `templates`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from nas_lightning.errors import InputError
from nas_lightning.files import write_whole
from nas_lightning.genotype import FILE_NAME
from nas_lightning.report.rendering import render
from nas_lightning.report.sections import (
    Section,
    read_architecture,
    read_configuration,
    read_curves,
    read_findings,
    read_results,
    read_section,
    read_weights,
)
from nas_lightning.runs.history import HISTORY_FILE
from nas_lightning.text import duration, format_number, format_share

if TYPE_CHECKING:
    from nas_lightning.runs.findings import Findings

REPORT_FILE = "report.html"
_ACCURACIES = ("test_accuracy", "ensemble_accuracy", "val_accuracy", "valid_accuracy")


def write_report(
    run: Path,
    seconds: float | None = None,
    following: Mapping[str, str] | None = None,
    findings: Findings | None = None,
) -> Path:
    """Describe a run by what its folder holds, and draw its figures; what is missing is named.

    Args:
        run: the folder.
        seconds: what it took, where that is known: no file has them before the run is over.
        following: what to type next, by what it is for.
        findings: tables and figures, instead of what is measured in epochs.
    """
    if not run.is_dir():
        raise InputError("expected a run's folder", got=str(run))
    facts = _facts(run)
    sections = [
        read_section("Architecture", "architecture.html", lambda: read_architecture(run, facts)),
        read_section("What to type next", "commands.html", lambda: _commands(run, facts, following or {})),
        read_section("Results", "results.html", lambda: read_results(run, facts)),
        *_measured(run, facts, findings),
        read_section("Configuration", "configuration.html", lambda: read_configuration(run)),
    ]
    page = render(
        "page.html",
        title=_title(run, facts),
        tiles=_tiles(run, facts, seconds),
        sections=[section for section in sections if section is not None],
    )
    return write_whole(run / REPORT_FILE, page)


def _measured(run: Path, facts: Mapping[str, Any], findings: Findings | None) -> list[Section | None]:
    """What the run found, or what it measured in its epochs."""
    if findings is not None:
        return [read_section("Tables and figures", "findings.html", lambda: read_findings(findings))]
    sections = [read_section("Curves", "curves.html", lambda: read_curves(run))]
    if _is_search(run, facts):
        sections.append(read_section("Weights over time", "weights.html", lambda: read_weights(run)))
    return sections


def _facts(run: Path) -> Mapping[str, Any]:
    """What stands beside the genotypes; nothing where the file is missing or broken (its section says so)."""
    try:
        facts = json.loads((run / FILE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _title(run: Path, facts: Mapping[str, Any]) -> str:
    values = {**_choices(run), **facts}
    where = " on ".join(str(values[key]) for key in ("space", "dataset") if key in values)
    what = str(values.get("strategy", "Training"))
    return (f"{what}: {where}" if where else what) + ("" if facts else " (not finished)")


def _choices(run: Path) -> dict[str, str]:
    """What was chosen on the command line, for a run that has no results yet."""
    path = run / ".hydra" / "hydra.yaml"
    if not path.is_file():
        return {}
    chosen = yaml.safe_load(path.read_text(encoding="utf-8"))["hydra"]["runtime"]["choices"]
    return {key: chosen[key] for key in ("strategy", "space", "dataset") if key in chosen}


def _tiles(run: Path, facts: Mapping[str, Any], seconds: float | None) -> dict[str, Any]:
    """The facts at the top, by name."""
    values = {**_choices(run), **facts}
    tiles: dict[str, Any] = {
        key: values[key] for key in ("strategy", "space", "dataset", "seed") if key in values
    }
    metrics = facts.get("metrics", {})
    for name in [name for name in _ACCURACIES if name in metrics][:1]:
        tiles[name.replace("_", " ")] = format_share(metrics[name])
    for name, key in (("parameters", "params"), ("multiply-adds", "macs")):
        if key in facts:
            tiles[name] = format_number(facts[key])
    if seconds is not None:
        tiles["took"] = duration(seconds)
    if facts:
        finished = datetime.fromtimestamp((run / FILE_NAME).stat().st_mtime)
        tiles["finished"] = f"{finished:%Y-%m-%d %H:%M}"
    return {**tiles, **facts.get("versions", {})}


def _is_search(run: Path, facts: Mapping[str, Any]) -> bool:
    return "strategy" in facts or (run / HISTORY_FILE).is_file()


def _commands(run: Path, facts: Mapping[str, Any], following: Mapping[str, str]) -> Mapping[str, Any] | None:
    """What to type next; how to go on with a run that was stopped."""
    if not facts:
        script = "search.py" if _is_search(run, facts) else "train.py"
        following = {"Go on where it stopped": f"python {script} {shlex.quote(f'resume={run}')}"}
    return {"commands": following} if following else None
