"""The file of what a search thought after each epoch: one line of JSON an epoch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nas_lightning.errors import InputError
from nas_lightning.files import json_text, parse_json

HISTORY_FILE = "history.jsonl"

FIGURES = "figures"


def history_line(entry: Mapping[str, Any]) -> str:
    return json_text(entry) + "\n"


def read_history(path: Path) -> list[dict[str, Any]]:
    """The entries of a history in their order; a last line that a kill cut off does not count."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError("expected a history in UTF-8", where=path) from None
    entries = []
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
        try:
            entry = parse_json(line)
            _check_names(entry.get("groups", {}))
            entries.append({"epoch": int(entry["epoch"]), **entry})
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise InputError(f"expected an epoch in JSON: {error!r}", where=f"{path}:{number}") from None
    return entries


def _check_names(groups: Mapping[str, Any]) -> None:
    """The groups' names become names of files."""
    for name in groups:
        if not re.fullmatch(r"\w[\w-]*", name):
            raise InputError("expected a group with a plain name", got=name)
