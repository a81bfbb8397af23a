"""Every figure of speed in one table: ours, the reference, their ratio and what is wanted of it.

    make bench, or python -m nas_lightning.measure.bench [--folder docs]

Runs the commands of this room one after another, each in a process of its own, and writes what they measured
to bench.csv and bench.md. Some minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from nas_lightning.measure.ntk import OURS, PUBLISHED

ROOM = "nas_lightning.measure."
COMMANDS = {
    "supernet_step": ("--rounds", "3"),
    "strategy_step": ("--rounds", "2"),
    "retrain_step": (),
    "ntk": ("--rounds", "2"),
    "inference": ("--rounds", "10"),
    "start": ("--rounds", "3"),
}
COLUMNS = ("work", "ours", "reference", "ratio", "target")
_MEASURED = re.compile(r"^(?P<name>\S.*?)  +(?P<value>[\d.]+) (?P<unit>\S+)$", re.MULTILINE)


class Line(NamedTuple):
    """A row: two pieces of work of one command, and which of them is divided by which.

    Args:
        work: what is measured.
        command: the module of this room.
        ours: the name of our work in its output.
        reference: the name of what it is compared with.
        target: of the ratio.
        faster: whether the ratio is reference / ours, which should be large, or the inverse.
    """

    work: str
    command: str
    ours: str
    reference: str
    target: float
    faster: bool = True

    def row(self, measured: dict[str, tuple[float, str]]) -> tuple[str, ...]:
        """The cells of its row."""
        (ours, unit), (reference, _) = measured[self.ours], measured[self.reference]
        ratio = reference / ours if self.faster else ours / reference
        target = f"{'≥' if self.faster else '≤'} {self.target}"
        return self.work, f"{ours:g} {unit}", f"{reference:g} {unit}", f"{ratio:.2f}", target


LINES = (
    Line(
        "DARTS weight step against the published way",
        "supernet_step",
        "our weight step",
        "plain weight step",
        3.1,
    ),
    Line(
        "DARTS architecture step against the published way",
        "supernet_step",
        "our architecture step",
        "plain architecture step",
        4.7,
    ),
    Line(
        "unrolled step over a weight step",
        "supernet_step",
        "our unrolled step",
        "our weight step",
        3.4,
        False,
    ),
    Line("sampled path over its network", "supernet_step", "single path", "discrete network", 1.02, False),
    Line(
        "PR-DARTS weight step over DARTS'",
        "strategy_step",
        "PR-DARTS weight step",
        "DARTS weight step",
        0.29,
        False,
    ),
    Line(
        "PR-DARTS architecture step over DARTS'",
        "strategy_step",
        "PR-DARTS arch step",
        "DARTS arch step",
        0.31,
        False,
    ),
    Line(
        "retraining step in Lightning over a bare loop",
        "retrain_step",
        "Lightning step",
        "bare PyTorch step",
        1.03,
        False,
    ),
    Line("kernel against a full Jacobian", "ntk", OURS, PUBLISHED, 2.0),
    Line("one image through a frozen network against the network", "inference", "frozen", "torch", 1.4),
    Line(
        "search.py to its first step over import torch",
        "start",
        "search.py to its first step",
        "import torch",
        1.85,
        False,
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("docs"))
    options = parser.parse_args()
    measured = {command: measurements(run(command)) for command in COMMANDS}
    rows = [line.row(measured[line.command]) for line in LINES]
    write(rows, options.folder)
    print((options.folder / "bench.md").read_text(encoding="utf-8"))


def run(command: str) -> str:
    """What the command prints."""
    words = [sys.executable, "-m", ROOM + command, *COMMANDS[command]]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def measurements(text: str) -> dict[str, tuple[float, str]]:
    r"""Number and unit by the name of the work.

    >>> measurements("our weight step      12.5 ms\nours / theirs: 2.0 (target ≥ 1)")
    {'our weight step': (12.5, 'ms')}
    """
    return {m["name"]: (float(m["value"]), m["unit"]) for m in _MEASURED.finditer(text)}


def write(rows: list[tuple[str, ...]], folder: Path) -> None:
    """The table as CSV and as Markdown."""
    with (folder / "bench.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    lines = [COLUMNS, ("---",) * len(COLUMNS), *rows]
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    head = "# Speed in one table\n\nWritten by `make bench`; see [performance](performance.md).\n\n"
    (folder / "bench.md").write_text(head + text, encoding="utf-8")


if __name__ == "__main__":
    main()
