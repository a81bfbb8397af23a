"""A search's history for its page: the cell of every epoch, and how the weights of its edges moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.plots.style import SERIES, dash_patterns, kind, node_label, op_label
from nas_lightning.report.cell_shapes import CellShape, shape_genotype
from nas_lightning.report.charts import Chart, Line, draw_chart, fit_limits
from nas_lightning.runs.history import read_history
from nas_lightning.spaces.ops import NONE


@dataclass(frozen=True)
class Frame:
    """The cells after an epoch, or after several that changed nothing.

    Args:
        cells: with the edges marked that the epoch before did not have.
        changes: how many these are.
    """

    cells: Sequence[CellShape]
    changes: int


@dataclass(frozen=True)
class Timeline:
    """The entries of a history, one an epoch.

    Args:
        entries: {"epoch", "genotypes", "groups": {name: {"edges", "ops", "scores"}}}.

    >>> weights = {"edges": [[0, 1]], "ops": ["none", "skip_connect"], "scores": [[0.4, 0.6]]}
    >>> timeline = Timeline([{"epoch": 0, "genotypes": [], "groups": {"cell": weights}}])
    >>> timeline.epochs, timeline.rows
    ([1], {'cell': {(0, 1): 0}})
    """

    entries: Sequence[Mapping[str, Any]]

    @property
    def epochs(self) -> list[int]:
        """Counted from 1."""
        return [entry["epoch"] + 1 for entry in self.entries]

    @property
    def groups(self) -> Mapping[str, Any]:
        """The groups that have scores at the end, by name."""
        return self.entries[-1]["groups"]

    @property
    def rows(self) -> dict[str, dict[tuple[int, int], int]]:
        """{group: {(source, target): row}} of the groups whose decisions are operations on edges."""
        return {
            name: {(edge[0], edge[1]): row for row, edge in enumerate(group["edges"])}
            for name, group in self.groups.items()
            if all(len(edge) == 2 for edge in group["edges"])
        }

    def scores(self, group: str) -> list[list[list[float]]]:
        """(epochs, rows, candidates); epochs without this group are left out."""
        return [entry["groups"][group]["scores"] for entry in self.entries if group in entry["groups"]]

    @cached_property
    def genotypes(self) -> list[Genotype]:
        """Of every epoch; none where an epoch has several."""
        if not all(len(entry.get("genotypes", ())) == 1 for entry in self.entries):
            return []
        return [Genotype.from_dict(entry["genotypes"][0]) for entry in self.entries]

    def frames(self, result: Genotype) -> tuple[list[Frame], list[int]]:
        """The pictures of all epochs and of the result, and which of them each of these shows."""
        frames: dict[tuple[Genotype, Genotype], Frame] = {}
        order = []
        before = [*self.genotypes[:1], *self.genotypes]
        for earlier, genotype in zip(before, [*self.genotypes, result], strict=True):
            key = earlier, genotype
            if key not in frames:
                cells = shape_genotype(genotype, self.rows, {name: cell.edges for name, cell in earlier})
                marked = sum(edge.marked for cell in cells for edge in cell.edges)
                frames[key] = Frame(cells, marked)
            order.append(list(frames).index(key))
        return list(frames.values()), order

    def numbers(self, order: Sequence[int]) -> dict[str, Any]:
        """What the page's script looks up: epochs, their frames, and weights with four digits."""
        groups = {
            name: {
                "ops": [op_label(op) for op in self.groups[name]["ops"]],
                "styles": line_classes(self.groups[name]["ops"]),
                "scores": [[[float(f"{s:.4g}") for s in row] for row in e] for e in self.scores(name)],
            }
            for name in self.rows
            if all(name in entry["groups"] for entry in self.entries)
        }
        return {"epochs": self.epochs, "frames": order, "groups": groups}


def read_timeline(path: Path) -> Timeline:
    """The timeline of a history file, which has at least one epoch."""
    entries = read_history(path)
    if not entries:
        raise InputError("expected at least one epoch", where=path.name)
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry.get("groups"), dict):
            raise InputError("expected the scores of groups", where=f"{path.name}:{number}")
    return Timeline(entries)


@dataclass(frozen=True)
class WeightCharts:
    """The charts of a group.

    Args:
        name: of the group.
        charts: one a decision.
        legend: that they share: (name, CSS class, dashes) of each candidate.
        note: what they do not show.
    """

    name: str
    charts: Sequence[Chart]
    legend: Sequence[tuple[str, str, str]]
    note: str = ""


def line_classes(ops: Sequence[str]) -> list[str]:
    """The CSS classes of the candidates' colours: their kinds', and one of their own for those of no kind.

    >>> line_classes(["relu", "skip_connect", "tanh"])
    ['series-0', 'kind-skip', 'series-1']
    """
    others = [op for op in ops if kind(op).key == "other"]
    return [
        f"series-{others.index(op) % len(SERIES)}" if op in others else f"kind-{kind(op).key}" for op in ops
    ]


def draw_weight_charts(timeline: Timeline, group: str) -> WeightCharts:
    """One chart a row, all with the same axes; these fit the candidates that compute something."""
    last, scores = timeline.groups[group], timeline.scores(group)
    ops, edges = list(last["ops"]), last["edges"]
    computing = [column for column, op in enumerate(ops) if op != NONE]
    limits = fit_limits([row[column] for epoch in scores for row in epoch for column in computing])
    epochs = [
        e for e, entry in zip(timeline.epochs, timeline.entries, strict=True) if group in entry["groups"]
    ]
    dashes = dash_patterns(ops)
    inputs = min(edge[-1] for edge in edges)
    inside = [
        column
        for column in range(len(ops))
        if column in computing
        or all(limits[0] <= row[column] <= limits[1] for epoch in scores for row in epoch)
    ]
    styles = line_classes(ops)
    charts = []
    for row, edge in enumerate(edges):
        leader = max(range(len(ops)), key=lambda column: scores[-1][row][column])
        lines = [
            Line(
                op_label(ops[column]),
                {e: epoch[row][column] for e, epoch in zip(epochs, scores, strict=True)},
                styles[column],
                " ".join(map(str, dashes[column])),
                column == leader,
            )
            for column in inside
        ]
        name = " → ".join(node_label(n, inputs) for n in edge) if len(edge) == 2 else f"node {edge[0]}"
        charts.append(
            draw_chart(
                name,
                lines,
                width=236,
                height=132,
                limits=limits,
                note=op_label(ops[leader]),
                key=f"{group}/{row}",
            )
        )
    legend = [(op_label(ops[c]), styles[c], " ".join(map(str, dashes[c]))) for c in inside]
    note = "" if len(inside) == len(ops) else "The weights of none lie outside the axes."
    return WeightCharts(group, charts, legend, note)
