"""The file of a scored pool: a line an architecture, and beside it the settings that it was made with."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from nas_lightning.errors import InputError
from nas_lightning.files import check_file, json_text, parse_json, read_text, write_whole

MetricValues = dict[str, float]


class PoolFile:
    """A CSV file `arch, <metrics>`, appended to line by line, and `<path>.json` with its settings.

    A kill can cut no line but the last, which is dropped when the file is read.

    Args:
        path: the CSV file.
        metrics: its columns behind `arch`.
        settings: what the scores depend on; a file that was made with others is refused.
    """

    def __init__(self, path: Path, metrics: Sequence[str], settings: Mapping[str, Any]) -> None:
        if not path.name:
            raise InputError("expected the name of a file for the scores", got=str(path))
        self.path, self.header, self.settings = path, ["arch", *metrics], dict(settings)
        self.facts = path.with_name(f"{path.name}.json")

    def check(self) -> None:
        """Raise for a file that cannot be gone on with; nothing is written."""
        self._parse(self._whole_lines())

    def read(self) -> dict[str, MetricValues]:
        """What an earlier call left, if it was made with these settings; otherwise the file is begun."""
        whole = self._whole_lines()
        found = self._parse(whole)
        if whole:
            os.truncate(self.path, len(whole))
        else:
            write_whole(self.facts, json_text(self.settings, 2) + "\n")
            write_whole(self.path, _line(self.header))
        return found

    def _parse(self, whole: bytes) -> dict[str, MetricValues]:
        if not whole:
            self._check_free()
            return {}
        self._check_settings()
        try:
            header, *rows = csv.reader(StringIO(whole.decode("utf-8"), newline=""))
        except (UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"expected a pool's CSV file: {error}", where=self.path) from None
        if header != self.header:
            raise InputError(f"expected the columns {', '.join(self.header)}", got=header, where=self.path)
        return dict(self._scores(number, row) for number, row in enumerate(rows, 2))

    def append(self, name: str, scores: MetricValues) -> None:
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(_line([name, *(scores[metric] for metric in self.header[1:])]))

    def _whole_lines(self) -> bytes:
        check_file(self.path)
        content = self.path.read_bytes() if self.path.is_file() else b""
        return content[: content.rfind(b"\n") + 1]

    def _check_free(self) -> None:
        """Raise where either file's place is taken by what is not ours."""
        if self.path.exists() and not self._is_begun():
            raise InputError("expected a pool's CSV file, or none yet", got="something else", where=self.path)
        if self.facts.exists() and not self._are_settings():
            raise InputError("expected the pool's settings, or none yet", got="others", where=self.facts)

    def _is_begun(self) -> bool:
        """Whether the file is empty, or has no more than a part of the header."""
        return self.path.is_file() and _line(self.header).encode().startswith(self.path.read_bytes())

    def _are_settings(self) -> bool:
        """Whether there are some of a pool, whose lines may never have come."""
        try:
            found = parse_json(read_text(self.facts))
        except (OSError, ValueError):
            return False
        return isinstance(found, dict) and found.keys() >= self.settings.keys()

    def _check_settings(self) -> None:
        try:
            text = read_text(self.facts)
        except (OSError, UnicodeDecodeError):
            raise InputError("expected the pool's settings beside it", got="none", where=self.facts) from None
        before = parse_json(text, "expected the pool's settings", where=self.facts)
        for key, value in self.settings.items():
            old = before.get(key) if isinstance(before, dict) else before
            if old != value:
                raise InputError(
                    f"expected {key} {old}, as in the file's other lines", got=value, where=self.path
                )

    def _scores(self, number: int, row: Sequence[str]) -> tuple[str, MetricValues]:
        try:
            return row[0], {name: float(text) for name, text in zip(self.header[1:], row[1:], strict=True)}
        except (ValueError, IndexError):
            expected = f"expected an architecture and {len(self.header) - 1} numbers"
            raise InputError(expected, got=",".join(row), where=f"{self.path}, line {number}") from None


def _line(values: Sequence[Any]) -> str:
    text = StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()
