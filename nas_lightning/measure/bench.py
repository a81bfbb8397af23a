"""Every figure of speed in one table: ours, the reference, their ratio and what is wanted of it.

    make bench, or python -m nas_lightning.measure.bench [--folder docs]

Runs the commands of this room one after another, each in a process of its own, and writes what they measured
to bench.csv and bench.md; a command that fails leaves its rows empty. A quarter of an hour on two idle cores.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import torch

from nas_lightning.measure.bench_lines import COMMANDS, LINES, NOT_MEASURED, Measured

ROOM = "nas_lightning.measure."
COLUMNS = ("work", "ours", "reference", "ratio", "target")
_MEASURED = re.compile(r"^(?P<name>\S.*?)  +(?P<value>[\d.]+) (?P<unit>\S+)$", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("docs"))
    options = parser.parse_args()
    start, load = time.perf_counter(), os.getloadavg()[0]
    measured = {name: measurements(run(*command)) for name, command in COMMANDS.items()}
    rows = [line.row(measured[line.command]) for line in LINES]
    minutes = (time.perf_counter() - start) / 60
    write(rows, options.folder, f"{describe_machine()}, {minutes:.0f} minutes, load {load:.1f} at the start")
    print((options.folder / "bench.md").read_text(encoding="utf-8"))


def run(module: str, *words: str) -> str:
    """What the command prints."""
    print(f"{module} {' '.join(words)}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", ROOM + module, *words], stdout=subprocess.PIPE, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else ""


def measurements(text: str) -> Measured:
    r"""Number and unit by the name of the work.

    >>> measurements("our weight step      12.5 ms\nours / theirs: 2.0 (target ≥ 1)")
    {'our weight step': (12.5, 'ms')}
    """
    return {m["name"]: (float(m["value"]), m["unit"]) for m in _MEASURED.finditer(text)}


def describe_machine() -> str:
    """What the figures are of."""
    return f"torch {torch.__version__.partition('+')[0]}, {os.cpu_count()} processors, one thread"


def write(rows: list[tuple[str, ...]], folder: Path, where: str) -> None:
    """The table as CSV and as Markdown."""
    with (folder / "bench.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    text = "\n".join(
        [
            "# Speed in one table\n",
            f"Written by `make bench`; see [performance](performance.md). {where}.\n",
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
