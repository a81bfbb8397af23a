"""The table of what searches in NAS-Bench-201 have found, beside what papers report."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nas_lightning.objectives.tables import TabularNasBench201
from nas_lightning.runs.facts import mean_with_deviation

DATASETS = ("cifar10", "cifar100", "imagenet16-120")
COSTS = ("pool", "evaluations", "seconds")
REPORTED = {
    "hnas ntk_trace": "94.07 / 72.30 / 45.93",
    "hnas grad_norm": "94.04 / 71.75 / 45.91",
    "hnas snip": "93.94 / 71.49 / 46.07",
    "hnas grasp": "94.13 / 72.59 / 46.24",
    "hnas ntk_frobenius": "94.19 / 72.94 / 46.31",
    "hnas synflow": "94.13 / 72.50 / 45.47",
    "eigen_nas": "93.46 / 71.42 / 45.54",
    "knas": "93.38 / 70.78 / 44.63",
    "nasi": "93.55 / 71.20 / 44.84",
}
"""Of the papers, whose pools, training and numbers of rounds are their own."""


def report(rows: Mapping[str, Sequence[Mapping[str, Any]]], benchmark: TabularNasBench201) -> None:
    print("\n| strategy | scored | evaluated | " + " | ".join(DATASETS) + " | seconds | reported |")
    print("|---|" + "---|" * (len(DATASETS) + 4))
    for name, runs in rows.items():
        line(name, runs, benchmark)


def line(name: str, runs: Sequence[Mapping[str, Any]], benchmark: TabularNasBench201) -> None:
    archs_of = {
        dataset: [run.get("of", {}).get(dataset, run["arch"]) for run in runs] for dataset in DATASETS
    }
    cells = [
        mean_with_deviation([benchmark.table[name][arch] for arch in archs], 2)
        for name, archs in archs_of.items()
    ]
    mean = {key: statistics.mean(run.get(key, 0) for run in runs) for key in COSTS}
    counts = f"{mean['pool']:.0f} | {mean['evaluations']:.0f}"
    end = f"{mean['seconds']:.1f} | {REPORTED.get(name, '–')}"
    print(f"| {name} | {counts} | {' | '.join(cells)} | {end} |")


def read_rows(path: Path | None) -> dict[str, list[dict[str, Any]]]:
    """Runs of other searches, by strategy; none without a file."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path else []:
        run = json.loads(text)
        rows.setdefault(run["strategy"], []).append(run)
    return rows
