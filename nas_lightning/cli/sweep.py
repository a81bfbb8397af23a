"""The end of a sweep: one table over its jobs, on the screen and as Markdown."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from nas_lightning.cli.run import SUMMARY
from nas_lightning.studies.tables import markdown

COLUMNS = ("valid_accuracy", "valid_loss", "val_accuracy", "test_accuracy", "true_accuracy", "true_rank")
SIZES = {"parameters": "params", "multiply-adds": "macs"}


class SweepTable(Callback):
    """Hydra calls it when all jobs of a sweep have ended."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        jobs = [json.loads(path.read_text(encoding="utf-8")) for path in _by_number(folder)]
        if not jobs:
            sys.exit(f"error: expected the summary of at least one job, got none (in {folder})")
        table = markdown(rows(jobs))
        (folder / "table.md").write_text(table + "\n", encoding="utf-8")
        print(f"\n{table}\n\n{folder / 'table.md'}")
        if any("error" in job for job in jobs):
            sys.exit(1)


def _by_number(folder: Path) -> list[Path]:
    found = [path for path in folder.glob(f"*/{SUMMARY}") if path.parent.name.isdigit()]
    return sorted(found, key=lambda path: int(path.parent.name))


def rows(jobs: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A header and one row a job: what was varied, what came out."""
    varied = sorted({o for job in jobs for o in job["overrides"]})
    shared = {o for o in varied if all(o in job["overrides"] for job in jobs)}
    metrics = [name for name in COLUMNS if any(name in job.get("metrics", {}) for job in jobs)]
    sizes = {name: key for name, key in SIZES.items() if any(key in job for job in jobs)}
    header = ["job", "settings", *metrics, *sizes, "seconds"]
    table = [header]
    for number, job in enumerate(jobs):
        settings = " ".join(o for o in job["overrides"] if o not in shared) or "–"
        if "error" in job:
            table.append([str(number), settings, job["error"], *[""] * (len(header) - 3)])
            continue
        values = [_number(job["metrics"].get(name)) for name in metrics]
        values += [_number(job.get(key)) for key in sizes.values()]
        table.append([str(number), settings, *values, f"{job['seconds']:.0f}"])
    return table


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
