"""Writes docs/papers.md: what each paper says, where, the command that asks it, and what came of it here.

    python -m docs.make_papers

Entries stand in docs/papers/<paper>.yaml. What a command gave is kept in docs/papers/results/<study>/, in the
folder there of the space that it names, or in that which the entry calls `kept`: the tables of its run as
they are; `{table|row|column|format}` in `ours` is a number of these, `{table|row|column - other|format}` the
difference of two: none is typed. What a run took stands beside its tables in seconds.csv, under `seconds`
or `processor seconds`.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "papers"
PAGE = FOLDER.with_suffix(".md")
START = """# The papers, place by place

What five papers say, the command that asks it of this suite, and what it gave here. Numbers under *here* are
read from the tables that the command wrote, which stand in `docs/papers/results`; those under *reported* are
the papers'. Where nothing stands under *here*, *so* says where the numbers are, or that the command is a
recipe for larger machines.
"""
DURATIONS = """## How long they take

Minutes from a study's or search's start to its end, on two cores that had other work besides; where that took
most of them, those of a processor, of which each has one.

| command | minutes |
|---|---|"""
COLUMNS = {
    "place": "place",
    "says": "it says",
    "command": "command",
    "ours": "here",
    "theirs": "reported",
    "verdict": "so",
}


def papers() -> dict[str, Mapping[str, Any]]:
    """What is known of each paper, by the name of its file."""
    return {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.yaml"))
    }


def commands() -> Iterator[tuple[str, str]]:
    """The paper and the command of every entry that has one."""
    for name, paper in papers().items():
        yield from ((name, entry["command"]) for entry in paper["entries"])


def result(entry: Mapping[str, str]) -> Path:
    """Where the tables of its study are kept."""
    command = entry["command"]
    space = re.search(r"space=(\w+)", command)
    place = entry.get("kept", space[1] if space else "")
    study = re.search(r"study=(\w+)", command)
    return FOLDER / "results" / (study[1] if study else "") / place


def number(folder: Path, table: str, row: str, column: str, form: str) -> str:
    """A cell of a kept table; its row is named by its first cells."""
    names = row.split(";")
    with (folder / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        (found,) = [line for line in csv.DictReader(file) if list(line.values())[: len(names)] == names]
    if form == "s":
        return found[column]
    value, *less = (float(found[name]) for name in column.split(" - "))
    return format(value - sum(less), form)


def filled(entry: Mapping[str, str]) -> str:
    """What an entry says came of it here."""
    pattern = r"\{([^|{}]+)\|([^|{}]+)\|([^|{}]+)\|([^|{}]+)\}"
    return re.sub(pattern, lambda m: number(result(entry), *m.groups()), entry.get("ours", ""))


def durations() -> Iterator[tuple[str, str]]:
    """Every command whose numbers are kept, and the minutes that it took."""
    kept = {
        entry["command"]: result(entry) / "seconds.csv"
        for paper in papers().values()
        for entry in paper["entries"]
        if "ours" in entry
    }
    for command, file in sorted(kept.items()):
        yield command, in_minutes(file.read_text(encoding="utf-8"))


def in_minutes(text: str) -> str:
    """Seconds of a file whose header says what sort they are."""
    kind, seconds = text.splitlines()
    return f"{float(seconds) / 60:.1f}{' of a processor' if kind.startswith('processor') else ''}"


def page() -> str:
    """The page as Markdown."""
    parts = [START]
    for paper in papers().values():
        rows = [
            {**entry, "command": f"`{entry['command']}`", "ours": filled(entry)} for entry in paper["entries"]
        ]
        parts += [
            f"## {paper['title']}\n",
            *([f"{paper['notes']}\n"] if "notes" in paper else []),
            "| " + " | ".join(COLUMNS.values()) + " |",
            "|---" * len(COLUMNS) + "|",
        ]
        parts += [
            "| " + " | ".join(row.get(key, "").replace("|", r"\|") for key in COLUMNS) + " |" for row in rows
        ]
        parts.append("")
    parts += [DURATIONS, *(f"| `{command}` | {minutes} |" for command, minutes in durations()), ""]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
