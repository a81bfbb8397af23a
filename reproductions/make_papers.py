"""Write reproductions/papers.md: the claims of each paper, the command that tests each, and the results.

    python -m reproductions.make_papers

The entries are in reproductions/papers/<paper>.yaml. The tables that a command wrote are stored unchanged in
reproductions/results/<study>/, in a subfolder named after the space in the command or by the entry's key
`kept`. In `ours`, `{table|row|column|format}` inserts a number of such a table and
`{table|row|column - other|format}` the difference of two columns, so no number is typed by hand. The duration
of a run is in seconds.csv in the same folder, under `seconds` or `processor seconds`.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
PAPERS, RESULTS, PAGE = HERE / "papers", HERE / "results", HERE / "papers.md"
START = """# The papers, place by place

The claims of five papers, the command that tests each, and its result. Run the commands in a checkout of the
repository. Numbers under *here* are read from the tables that the command wrote, which are in
`reproductions/results`; numbers under *reported* are the papers'. Where *here* is empty, *so* says where the
numbers are, or that the command is a recipe for larger machines.
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
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(PAPERS.glob("*.yaml"))
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
    return RESULTS / (study[1] if study else "") / place


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
