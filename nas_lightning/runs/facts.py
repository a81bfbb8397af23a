"""The facts of a run: what it was, what it cost and what came out, as `summary.json` has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from nas_lightning.errors import InputError
from nas_lightning.files import json_text, parse_json, read_text
from nas_lightning.version import __version__

KINDS = ("search", "training", "ensemble", "study")
SIZES = ("params", "macs", "seconds")
"""What a run has cost, and other runs can be compared by."""
_IN_JSON = {"words": "overrides"}  # since version 0.1


def _versions() -> dict[str, str]:
    import torch

    return {"nas_lightning": __version__, "torch": str(torch.__version__)}


@dataclass(frozen=True)
class RunFacts:
    """What there is to say of a run.

    Args:
        kind: search, training, ensemble or study.
        seed: that all its random numbers came from.
        metrics: the last value of each.
        seconds: that it took, in all its starts; a study, which keeps no clock, in its last one.
        words: what was typed for it.
        space: the name of the search space.
        space_settings: what the space was made with.
        dataset: the name of the data set.
        strategy: the class that searched.
        study: the name of the study.
        members: networks of an ensemble.
        params: parameters of the (first) network.
        macs: its multiply-adds for one image.
        notation: each architecture as its space writes it.
        knee: of a front, which of its architectures is the knee.
        files: tables and figures of a study, from the run's folder on.
        versions: of the libraries.
        error: why it failed, in one line; all else may be missing then.
        note: what there is to know of its result, in one line.

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
    words: tuple[str, ...] = ()
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

    @property
    def numbers(self) -> dict[str, float]:
        """What an objective can name: the metrics, and `params`, `macs` and `seconds` where they are known.

        >>> RunFacts("search", metrics={"valid_accuracy": 0.9}, params=10).numbers
        {'valid_accuracy': 0.9, 'params': 10}
        """
        sizes = {name: getattr(self, name) for name in SIZES}
        return {**self.metrics, **{name: size for name, size in sizes.items() if size is not None}}

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without what is not known; what was typed stands there in any case."""
        pairs = ((_IN_JSON.get(f.name, f.name), getattr(self, f.name)) for f in fields(self))
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in pairs}
        kept = ("metrics", "overrides")
        return {name: v for name, v in plain.items() if name in kept or v not in (None, [], {})}

    def of_result(self) -> dict[str, Any]:
        """What two equal runs agree in: all but how long it took and what was typed for it."""
        return {name: v for name, v in self.as_dict().items() if name not in ("seconds", "overrides")}

    @classmethod
    def from_dict(cls, data: object, where: object = None) -> RunFacts:
        """The inverse of `as_dict`; what version 0.1 wrote has no kind and is told by what else it has."""
        if not isinstance(data, Mapping):
            raise InputError("expected the facts of a run", got=data, where=where)
        known = {_IN_JSON.get(f.name, f.name): f.name for f in fields(cls)}
        values = {known[name]: value for name, value in data.items() if name in known}
        values["metrics"] = not_finite_as_nan(values.get("metrics", {}))
        values = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return cls(**{"kind": _kind(data), "versions": {}, **values})


def _kind(data: Mapping[str, Any]) -> str:
    marks = {"strategy": "search", "study": "study", "members": "ensemble"}
    return next((kind for mark, kind in marks.items() if mark in data), "training")


def not_finite_as_nan(metrics: object) -> object:
    """Metrics with nan where JSON has null, which stands for a number that is not finite.

    >>> not_finite_as_nan({"loss": None, "error": 0.5})
    {'loss': nan, 'error': 0.5}
    """
    if not isinstance(metrics, dict):
        return metrics
    return {name: math.nan if value is None else value for name, value in metrics.items()}


def read_facts(file: Path) -> RunFacts:
    """The facts in `summary.json`, or beside the genotypes in `genotype.json`."""
    try:
        text = read_text(file)
    except (OSError, UnicodeDecodeError):
        raise InputError("expected the facts of a run", got="no such file", where=file) from None
    return RunFacts.from_dict(parse_json(text, where=file), file)


def facts_text(facts: RunFacts) -> str:
    """What `summary.json` says."""
    return json_text(facts.as_dict(), 2) + "\n"
