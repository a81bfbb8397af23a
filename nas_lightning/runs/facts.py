"""The facts of a run: what it was, what it cost, and its results."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from nas_lightning.errors import InputError
from nas_lightning.utils.files import json_text, parse_json, read_text, write_whole
from nas_lightning.utils.tables import Table, thin
from nas_lightning.utils.text import format_error, format_number
from nas_lightning.validation import DISTINCT, NonNegativeInt, check_argument, entries
from nas_lightning.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from nas_lightning.plots import Picture


# The facts of a run, as `summary.json` stores them.

KINDS = ("search", "training", "ensemble", "study")
SIZES = ("params", "macs", "seconds")
"""Costs that runs can be compared by."""


def _versions() -> dict[str, str]:
    import torch

    return {"nas_lightning": __version__, "torch": str(torch.__version__)}


@dataclass(frozen=True)
class RunFacts:
    """The facts of a run.

    Args:
        kind: search, training, ensemble or study.
        seed: seed of all random numbers.
        metrics: the last value of each metric.
        seconds: duration of all starts; of a study only the last one.
        overrides: the overrides that were typed.
        space: the name of the search space.
        space_settings: arguments of the space.
        dataset: the name of the data set.
        strategy: name of the strategy's class.
        study: the name of the study.
        members: networks of an ensemble.
        params: parameters of the (first) network.
        macs: its multiply-adds for one image.
        notation: each architecture in its space's notation.
        knee: index of the knee in a front's architectures.
        files: tables and figures of a study, relative to the run's folder.
        versions: versions of the libraries.
        error: the error of a failed run in one line; the rest may be missing then.
        note: a remark about the result in one line.
        limits: costs of the network that have a limit: `value` and `limit` by name; a latency also has the
            `error` of a prediction, and the `source`.
        measured: latency of the network on this machine: `ms`, `error`, and `conditions`.

    >>> facts = RunFacts("search", seed=1, metrics={"valid_accuracy": 0.9}, versions={})
    >>> facts.as_dict()
    {'kind': 'search', 'seed': 1, 'metrics': {'valid_accuracy': 0.9}, 'overrides': []}
    >>> RunFacts.from_dict(facts.as_dict()) == facts
    True
    """

    kind: str
    seed: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None
    overrides: tuple[str, ...] = ()
    space: str | None = None
    space_settings: Mapping[str, Any] = field(default_factory=dict)
    dataset: str | None = None
    strategy: str | None = None
    study: str | None = None
    members: int | None = None
    params: int | None = None
    macs: int | None = None
    notation: tuple[str, ...] = ()
    knee: int | None = None
    files: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=_versions)
    error: str | None = None
    note: str | None = None
    limits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)

    @property
    def numbers(self) -> dict[str, float]:
        """The metrics, and `params`, `macs`, and `seconds` if known: the names that an objective can have.

        >>> RunFacts("search", metrics={"valid_accuracy": 0.9}, params=10).numbers
        {'valid_accuracy': 0.9, 'params': 10}
        """
        sizes = {name: getattr(self, name) for name in SIZES}
        return {**self.metrics, **{name: size for name, size in sizes.items() if size is not None}}

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, without unknown ones."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        kept = ("metrics", "overrides")
        return {name: v for name, v in plain.items() if name in kept or v not in (None, [], {})}

    def comparable(self) -> dict[str, Any]:
        """Return all facts in which equal runs agree: without overrides and measured times."""
        of_one_run = ("seconds", "overrides", "measured")
        return {name: v for name, v in self.as_dict().items() if name not in of_one_run}

    @property
    def costs(self) -> dict[str, str]:
        """The costs of the network beside their limits, in words.

        >>> latency = {"value": 0.5, "error": 0.02, "limit": 0.6, "source": "laptop.csv"}
        >>> here = {"ms": 0.52, "error": 0.01, "conditions": "PyTorch, 1 thread, wall clock"}
        >>> RunFacts("search", limits={"latency_ms": latency}, measured=here).costs
        {'latency_ms': '0.5 ± 0.02 predicted by laptop.csv (limit 0.6)', \
'latency_ms here': '0.52 ± 0.01 measured on this machine (PyTorch, 1 thread, wall clock)'}
        """
        texts = {}
        try:
            for name, cost in self.limits.items():
                limit = f" (limit {_format_cost(cost['limit'])})" if "limit" in cost else ""
                error = cost.get("error")
                spread = f" ± {error:.1g} predicted" if error else " measured" if "source" in cost else ""
                source = f" by {cost['source']}" if "source" in cost else ""
                texts[name] = f"{_format_cost(cost['value'])}{spread}{source}{limit}"
            if self.measured:
                ms, error, how = (self.measured[key] for key in ("ms", "error", "conditions"))
                texts["latency_ms here"] = f"{ms:.3g} ± {error:.1g} measured on this machine ({how})"
        except (KeyError, TypeError, ValueError, AttributeError) as wrong:
            raise InputError(f"`limits` must have costs and their limits: {wrong!r}") from None
        return texts

    @classmethod
    def from_dict(cls, data: object, where: object = None) -> RunFacts:
        """Return the facts in the values of `as_dict`."""
        if not isinstance(data, Mapping):
            raise InputError("The file must have the facts of a run", got=data, where=where)
        known = {f.name for f in fields(cls)}
        values = {name: value for name, value in data.items() if name in known}
        values["metrics"] = not_finite_as_nan(values.get("metrics", {}))
        values = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return cls(**{"kind": _infer_kind(data), "versions": {}, **values})


def _format_cost(value: float) -> str:
    """Format a count with all its digits, and other costs with four."""
    return format_number(int(value) if value == int(value) else value)


def _infer_kind(data: Mapping[str, Any]) -> str:
    """Return the kind of facts that do not name it, such as those of a file written by hand."""
    marks = {"strategy": "search", "study": "study", "members": "ensemble"}
    return next((kind for mark, kind in marks.items() if mark in data), "training")


def not_finite_as_nan(metrics: object) -> object:
    """Replace null, which stands for a number that is not finite, by nan.

    >>> not_finite_as_nan({"loss": None, "error": 0.5})
    {'loss': nan, 'error': 0.5}
    """
    if not isinstance(metrics, dict):
        return metrics
    return {name: math.nan if value is None else value for name, value in metrics.items()}


def read_facts(file: Path) -> RunFacts:
    """Read the facts in `summary.json` or `genotype.json`."""
    try:
        text = read_text(file)
    except (OSError, UnicodeDecodeError):
        raise InputError("There is no such file", where=file) from None
    return RunFacts.from_dict(parse_json(text, where=file), file)


def facts_text(facts: RunFacts) -> str:
    """Return the text of `summary.json`."""
    return json_text(facts.as_dict(), 2) + "\n"


# Results of a study or an evaluation, and their files in a run's folder.

TABLES = "tables"


@dataclass(frozen=True)
class Findings:
    """The results of a study.

    Args:
        tables: written to `tables/<name>.csv`, `.md`, and `.tex`; printed in this order unless long.
        figures: written to `figures/<name>.svg` and `.png`.
        numbers: numbers for the run's summary, by name.
    """

    tables: Sequence[Table]
    figures: Mapping[str, Figure | Picture] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)

    def write(self, folder: Path) -> list[Path]:
        """Write all files; return the Markdown of each table and the PNG of each figure."""
        from nas_lightning.plots.files import save

        written = []
        for table in self.tables:
            path = folder / TABLES / f"{table.name}.md"
            written.append(write_whole(path, table.markdown() + "\n"))
            write_whole(path.with_suffix(".csv"), table.csv())
            write_whole(path.with_suffix(".tex"), table.latex())
        for name, figure in self.figures.items():
            written.append(save(figure, folder / "figures" / name)[1])
        return written


# The history of a search: one line of JSON per epoch.

HISTORY_FILE = "history.jsonl"

FIGURES = "figures"

_KINDS = {
    "edges": Annotated[Sequence[Annotated[Sequence[NonNegativeInt], entries(1)]], entries(1)],
    "ops": Annotated[Sequence[str], entries(1), DISTINCT],
    "scores": Sequence[Sequence[float]],
}


def history_line(entry: Mapping[str, Any]) -> str:
    return json_text(entry) + "\n"


def read_history(path: Path, most: int | None = None) -> list[dict[str, Any]]:
    """Return the entries of a history without an incomplete last line; at most so many, evenly spaced."""
    try:
        text = read_text(path)
    except UnicodeDecodeError:
        raise InputError("The history must be in UTF-8", where=path) from None
    epochs: list[dict[str, Any]] = []
    lines = [*enumerate(text[: text.rfind("\n") + 1].splitlines(), 1)]
    for number, line in lines if most is None else thin(lines, most):
        try:
            entry = parse_json(line)
            check_argument("epoch", entry["epoch"], NonNegativeInt, "epoch")
            for name, group in entry.get("groups", {}).items():
                _check_group(name, group, epochs[-1].get("groups", {}).get(name, group) if epochs else group)
            epochs.append(entry)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(
                f"Each line must be an epoch in JSON: {error!r}", where=f"{path}:{number}"
            ) from None
    return epochs


def _check_group(name: str, group: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Raise unless the group's name can name files and its scores have the shape of the epoch before."""
    if not re.fullmatch(r"\w[\w-]*", name):
        raise InputError("Names of groups must be plain names", got=name)
    for key, hint in _KINDS.items():
        check_argument(key, group[key], hint, name)
    edges, ops = group["edges"], group["ops"]
    if (edges, ops) != (before["edges"], before["ops"]):
        raise InputError("Edges and operations must be those of the epoch before", where=name)
    if [len(row) for row in group["scores"]] != [len(ops)] * len(edges):
        raise InputError("Each candidate of each decision must have a score", where=name)


# Runs that differ only in their seeds, as one row: mean ± standard deviation.

Job = Mapping[str, Any]
"""The content of a run's `summary.json`."""

_OF_ONE_RUN = ("seed=", "dataset.seed=", "run=", "resume=", "launcher=", "hydra.")


def settings(job: Job) -> tuple[str, ...]:
    """Return the overrides of a run without those that differ between repetitions."""
    return tuple(sorted(line for line in job["overrides"] if not line.startswith(_OF_ONE_RUN)))


def group_by_settings(jobs: Iterable[Job]) -> list[list[Job]]:
    """Group runs of equal settings, in order of first appearance.

    >>> one, two, other = ({"overrides": ["lr=1", f"seed={seed}"]} for seed in (0, 1, 0))
    >>> [len(group) for group in group_by_settings([one, {"overrides": ["lr=2"]}, two])]
    [2, 1]
    """
    groups: dict[tuple[str, ...], list[Job]] = {}
    for job in jobs:
        groups.setdefault(settings(job), []).append(job)
    return list(groups.values())


def differing_settings(groups: Sequence[Sequence[Job]]) -> list[str]:
    """Return the settings in which each group differs from the others, or a dash."""
    each = [settings(group[0]) for group in groups]
    shared = set(each[0]).intersection(*each[1:])
    return [" ".join(line for line in lines if line not in shared) or "–" for lines in each]


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Return mean and sample standard deviation, which is None for a single value."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def mean_with_deviation(values: Sequence[float], decimals: int) -> str:
    """Format mean and deviation in one cell, empty without values.

    >>> mean_with_deviation([2.7, 2.9, 2.8], 2), mean_with_deviation([2.7], 2), mean_with_deviation([], 2)
    ('2.80 ± 0.10', '2.70', '')
    """
    return format_error(*mean_and_deviation(values), decimals) if values else ""
