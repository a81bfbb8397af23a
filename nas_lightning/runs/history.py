"""The file of what a search thought after each epoch: one line of JSON an epoch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from nas_lightning.checks import DISTINCT, NonNegativeInt, check_argument, entries
from nas_lightning.errors import InputError
from nas_lightning.files import json_text, parse_json, read_text

HISTORY_FILE = "history.jsonl"

FIGURES = "figures"

_KINDS = {
    "edges": Annotated[Sequence[Annotated[Sequence[NonNegativeInt], entries(1)]], entries(1)],
    "ops": Annotated[Sequence[str], entries(1), DISTINCT],
    "scores": Sequence[Sequence[float]],
}


def history_line(entry: Mapping[str, Any]) -> str:
    return json_text(entry) + "\n"


def read_history(path: Path) -> list[dict[str, Any]]:
    """The entries of a history in their order; a last line that a kill cut off does not count."""
    try:
        text = read_text(path)
    except UnicodeDecodeError:
        raise InputError("expected a history in UTF-8", where=path) from None
    epochs: list[dict[str, Any]] = []
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
        try:
            entry = parse_json(line)
            check_argument("epoch", entry["epoch"], NonNegativeInt, "epoch")
            for name, group in entry.get("groups", {}).items():
                _check_group(name, group, epochs[-1].get("groups", {}).get(name, group) if epochs else group)
            epochs.append(entry)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"expected an epoch in JSON: {error!r}", where=f"{path}:{number}") from None
    return epochs


def _check_group(name: str, group: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """The name becomes that of files; each candidate of each decision has a score, epoch after epoch."""
    if not re.fullmatch(r"\w[\w-]*", name):
        raise InputError("expected a group with a plain name", got=name)
    for key, hint in _KINDS.items():
        check_argument(key, group[key], hint, name)
    edges, ops = group["edges"], group["ops"]
    if (edges, ops) != (before["edges"], before["ops"]):
        raise InputError("expected the edges and operations of the epoch before", where=name)
    if [len(row) for row in group["scores"]] != [len(ops)] * len(edges):
        raise InputError("expected a score for each candidate of each decision", where=name)
