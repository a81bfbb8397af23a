"""Tables and a figure of two posteriors (Y. Shu's thesis, 2022, figure 5.5 and table 5.7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nas_lightning.runs.findings import Findings
from nas_lightning.studies import figures
from nas_lightning.studies.statistics import Values, mean_estimate
from nas_lightning.tables import Entry, Estimate, Table

POST, BEST = "post-training", "best-response"
KINDS = (POST, BEST)
_SINGLE = (
    "Test errors (%) with inherited weights; best: of all that were judged, on the same test images, which "
    "favours it; ρ: of probability and −loss, random architectures. Mean ± standard error over trials"
)
_SETS = "Test errors (%), mean ± standard error over trials; difference: of the same trial's supernets"
Records = Sequence[Mapping[str, Any]]


def findings(records: Mapping[str, Any], trials: int, samplers: Sequence[str], images: str) -> Findings:
    """What was recorded of each trial, `<kind>_<number>`."""
    of = {kind: [records[f"{kind}_{trial + 1}"] for trial in range(trials)] for kind in KINDS}
    sets = {kind: [record["ensembles"] for record in found] for kind, found in of.items()}
    single, single_figure = _single(of, f"{trials} supernets on {images}")
    rows = [row for sampler in samplers for row in _of_sampler(sampler, sets)]
    columns = ["sampler", "weights", BEST, POST, "difference"]
    title = f"Ensembles by either posterior: {trials} supernets on {images}"
    return Findings([single, Table("ensembles", title, columns, rows, _SETS)], {"posteriors": single_figure})


def _single(of: Mapping[str, Records], what: str) -> tuple[Table, Figure]:
    """Figure 5.5."""
    rows: list[list[Entry]] = []
    panel: dict[str, dict[str, Estimate | None]] = {}
    for kind, records in of.items():
        probable, best, mean = (100 * _column(records, key) for key in ("probable", "best", "mean"))
        panel[kind] = {"best": mean_estimate(best), "most probable": mean_estimate(probable)}
        rho = (
            None
            if any(record["rho"] is None for record in records)
            else mean_estimate(_column(records, "rho"))
        )
        rows.append([kind, *map(mean_estimate, (probable, best, probable - best, mean)), rho])
    columns = ["posterior", "most probable", "best", "gap", "mean of random ones", "Spearman's ρ"]
    table = Table("posteriors", f"What a posterior says of architectures: {what}", columns, rows, _SINGLE)
    return table, figures.lines({"inherited weights": panel}, "test error (%)")


def _of_sampler(sampler: str, sets: Mapping[str, Records]) -> Iterator[list[Entry]]:
    """Table 5.7: a row with inherited weights, and one of trained members where they are."""
    for weights in ("inherited", "trained"):
        if all(weights in record[sampler] for records in sets.values() for record in records):
            best, post = (
                100 * _column([record[sampler] for record in sets[kind]], weights) for kind in (BEST, POST)
            )
            yield [sampler, weights, *map(mean_estimate, (best, post, best - post))]


def _column(records: Records, key: str) -> Values:
    return np.array([record[key] for record in records])
