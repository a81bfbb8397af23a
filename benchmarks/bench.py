"""Every figure of speed in one table: ours, the reference, their ratio and what is wanted of it.

    make bench, or python -m benchmarks.bench [--folder benchmarks/results] [--only kernel start]

Runs the commands of this room one after another, each in a process of its own, and writes what they measured
to bench.csv and bench.md; a command that fails leaves its rows empty. `--only` measures some anew, and takes
the others from bench.csv. Eight minutes on two idle cores, half an hour on two that twenty processes share.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import torch

from benchmarks.bench_lines import COMMANDS, LINES, NOT_MEASURED, Measured

ROOM = "benchmarks."
COLUMNS = ("work", "ours", "reference", "ratio", "target")
_MEASURED = re.compile(r"^(?P<name>\S.*?)  +(?P<value>[\d.]+) (?P<unit>\S+)$", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--only", nargs="+", choices=[*COMMANDS], default=[*COMMANDS])
    options = parser.parse_args()
    start, load = time.perf_counter(), os.getloadavg()[0]
    before = {} if options.only == [*COMMANDS] else read(options.folder)
    measured = {name: measurements(run(*COMMANDS[name])) for name in options.only}
    rows = [
        line.row(measured[line.command]) if line.command in measured else before[line.work] for line in LINES
    ]
    minutes = (time.perf_counter() - start) / 60
    facts = f"{describe_machine()}, load {load:.1f} at the start, {minutes:.0f} minutes"
    partly = "" if not before else f" for {', '.join(options.only)}, the other rows from an earlier run"
    write(rows, options.folder, facts + partly)
    print((options.folder / "bench.md").read_text(encoding="utf-8"))


def run(module: str, *words: str) -> str:
    """What the command prints."""
    print(f"{module} {' '.join(words)}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", ROOM + module, *words], stdout=subprocess.PIPE, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else ""


def measurements(text: str) -> Measured:
    r"""Number and unit by the name of the work; nothing of a name that has two numbers.

    >>> measurements("our weight step      12.5 ms\nours / theirs: 2.0 (target ≥ 1)")
    {'our weight step': (12.5, 'ms')}
    """
    matches = list(_MEASURED.finditer(text))
    counts = Counter(match["name"] for match in matches)
    return {m["name"]: (float(m["value"]), m["unit"]) for m in matches if counts[m["name"]] == 1}


def describe_machine() -> str:
    """What the figures are of."""
    return f"torch {torch.__version__.partition('+')[0]}, {os.cpu_count()} processors, one thread"


def read(folder: Path) -> dict[str, tuple[str, ...]]:
    """The rows of an earlier table, by their work."""
    with (folder / "bench.csv").open(encoding="utf-8", newline="") as file:
        return {cells[0]: tuple(cells) for cells in csv.reader(file)}


def write(rows: list[tuple[str, ...]], folder: Path, where: str) -> None:
    """The table as CSV and as Markdown."""
    with (folder / "bench.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    text = "\n".join(
        [
            "# Speed in one table\n",
            f"Written by `make bench`; see [performance](../../docs/performance.md). {where}.\n",
            *_table([COLUMNS, ("---",) * len(COLUMNS), *rows]),
            "\n| not in it | why |",
            *_table([("---", "---"), *NOT_MEASURED]),
        ]
    )
    (folder / "bench.md").write_text(text + "\n", encoding="utf-8")


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in rows]


if __name__ == "__main__":
    main()
