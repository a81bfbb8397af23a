"""The end of a sweep: a table over its jobs and one over their seeds, on the screen and as Markdown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from nas_lightning.errors import near_match
from nas_lightning.runs.folder import SUMMARY
from nas_lightning.runs.repetitions import by_settings, varied, with_deviation
from nas_lightning.tables import markdown

COLUMNS = ("valid_accuracy", "valid_loss", "val_accuracy", "test_accuracy", "true_accuracy", "true_rank")
SIZES = {"parameters": "params", "multiply-adds": "macs"}


class SweepTable(Callback):
    """Hydra calls it when all jobs of a sweep have ended."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        jobs = [json.loads(path.read_text(encoding="utf-8")) for path in _by_number(folder)]
        if not jobs:
            sys.exit(f"error: expected the summary of at least one job, got none (in {folder})")
        objective = config.get("objective")
        tables = [rows(jobs, objective), *over_seeds(jobs, objective)]
        table = "\n\n".join([*map(markdown, tables), *unknown(jobs, objective)])
        (folder / "table.md").write_text(table + "\n", encoding="utf-8")
        print(f"\n{table}\n\n{folder / 'table.md'}")
        if any("error" in job for job in jobs):
            sys.exit(1)


def _by_number(folder: Path) -> list[Path]:
    found = [path for path in folder.glob(f"*/{SUMMARY}") if path.parent.name.isdigit()]
    return sorted(found, key=lambda path: int(path.parent.name))


def rows(jobs: Sequence[dict[str, Any]], objective: str | None = None) -> list[list[str]]:
    """A header and one row a job: what was varied, what came out."""
    typed = sorted({o for job in jobs for o in job["overrides"]})
    shared = {o for o in typed if all(o in job["overrides"] for job in jobs)}
    metrics = _metrics(jobs, objective)
    sizes = {name: key for name, key in SIZES.items() if any(key in job for job in jobs)}
    header = ["job", "settings", *metrics, *sizes, "seconds"]
    table = [header]
    for number, job in enumerate(jobs):
        settings = " ".join(o for o in job["overrides"] if o not in shared) or "–"
        if "error" in job:
            table.append([str(number), settings, job["error"], *[""] * (len(header) - 3)])
            continue
        values = [_number(job["metrics"].get(name), name == objective) for name in metrics]
        values += [_number(job.get(key)) for key in sizes.values()]
        table.append([str(number), settings, *values, f"{job['seconds']:.0f}"])
    return table


def over_seeds(jobs: Sequence[dict[str, Any]], objective: str | None = None) -> Iterable[list[list[str]]]:
    """The means and standard deviations of the jobs that differ in their seed only, where there are such."""
    finished = [job for job in jobs if "error" not in job]
    groups = by_settings(finished)
    if len(groups) == len(finished):
        return
    metrics = _metrics(finished, objective)
    table = [["settings", "seeds", *metrics]]
    for group, settings in zip(groups, varied(groups), strict=True):
        found = ([job["metrics"][name] for job in group if name in job["metrics"]] for name in metrics)
        table.append([settings, str(len(group)), *(with_deviation(values, ".4f") for values in found)])
    yield table


def unknown(jobs: Sequence[dict[str, Any]], objective: str | None) -> Iterable[str]:
    """One line where jobs have no objective."""
    finished = [(number, job["metrics"]) for number, job in enumerate(jobs) if "error" not in job]
    without = [str(number) for number, metrics in finished if objective not in metrics]
    if objective is not None and without:
        names = {name for _, metrics in finished for name in metrics}
        hint = f" ({near_match(objective, names)})" if len(without) == len(finished) and names else ""
        yield f"objective={objective}: not among the metrics of job {', '.join(without)}{hint}"


def _metrics(jobs: Sequence[dict[str, Any]], objective: str | None) -> list[str]:
    """The columns: what any job has, the objective among them."""
    known = dict.fromkeys([*COLUMNS, *filter(None, [objective])])
    return [name for name in known if any(name in job.get("metrics", {}) for job in jobs)]


def _number(value: float | None, objective: bool = False) -> str:
    if value is None:
        return "not measured" if objective else ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
