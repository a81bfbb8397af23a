"""All speed and memory figures in one table: ours, the reference, their ratio, and its target.

    make bench, or python -m benchmarks.bench [--folder benchmarks/results] [--only kernel start]

Runs the other benchmarks one after another, each in its own process, and writes bench.csv, from which
`python -m docs.make_pages` makes docs/benchmarks.md. The rows of a command that fails stay empty. `--only`
measures some again and takes the others from bench.csv. Takes eight minutes on two idle cores.
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
from typing import NamedTuple

import torch

from benchmarks.ntk import BOTH, OURS, PUBLISHED, SAME_LAYOUT

COLUMNS = ("work", "ours", "reference", "ratio", "target")
_MEASURED = re.compile(r"^(?P<name>\S.*?)  +(?P<value>[\d.]+) (?P<unit>\S+)$", re.MULTILINE)
Measured = dict[str, tuple[float, str]]
"""Number and unit by the name of the work."""

COMMANDS = {
    "supernet": ("supernet_step", "--rounds", "3"),
    "supernet64": ("supernet_step", "--rounds", "3", "--batch", "64", "--weights"),
    "strategies": ("strategy_step", "--rounds", "3"),
    "training": ("training_step", "--rounds", "3"),
    "lightning": ("retrain_step", "--steps", "30"),
    "kernel": ("ntk", "--rounds", "5"),
    "zero_cost": ("zero_cost", "--rounds", "3"),
    "metrics": ("metrics_shared", "--rounds", "2", "--quick"),
    "inference": ("inference", "--rounds", "20"),
    "pool": ("pool", "--rounds", "2"),
    "processes": ("processes", "--rounds", "8"),
    "start": ("start", "--rounds", "4"),
    "memory": ("memory", "--ways", "ours", "checkpointed"),
    "images": ("input_pipeline",),
}


class Line(NamedTuple):
    """A row of the table: the ratio of two pieces of work of one command.

    Args:
        work: name of the row.
        command: key of `COMMANDS`.
        ours: name of our work in the output.
        reference: name of the reference in the output; None: the number itself is compared with the target.
        target: target of the ratio.
        larger: whether the ratio must be at least the target.
        inverse: whether the ratio is reference / ours.
    """

    work: str
    command: str
    ours: str
    reference: str | None
    target: float
    larger: bool = True
    inverse: bool = True

    def row(self, measured: Measured) -> tuple[str, ...]:
        """Return the cells of the row."""
        target = f"{'≥' if self.larger else '≤'} {self.target:g}"
        if self.ours not in measured or self.reference not in {None, *measured}:
            return self.work, "", "", "its command failed", target
        ours, unit = measured[self.ours]
        if self.reference is None:
            return self.work, f"{ours:g} {unit}", "", f"{ours:g} {unit}", target
        reference, _ = measured[self.reference]
        ratio = reference / ours if self.inverse else ours / reference
        return self.work, f"{ours:g} {unit}", f"{reference:g} {unit}", f"{ratio:.2f}", target


def quicker(work: str, command: str, ours: str, reference: str, target: float) -> Line:
    """Return a row of reference / ours, which should be large."""
    return Line(work, command, ours, reference, target)


def costs(work: str, command: str, ours: str, reference: str | None, target: float) -> Line:
    """Return a row of ours / reference, which should be small."""
    return Line(work, command, ours, reference, target, larger=False, inverse=False)


_STEP = "published way / DARTS"
_WEIGHTS = "plain weight step"
LINES = (
    quicker(f"{_STEP} weight step, batch 16", "supernet", "our weight step", _WEIGHTS, 3.1),
    quicker(f"{_STEP} weight step, batch 64", "supernet64", "our weight step", _WEIGHTS, 3.5),
    quicker(
        f"{_STEP} architecture step", "supernet", "our architecture step", "plain architecture step", 4.7
    ),
    costs("unrolled step / weight step", "supernet", "our unrolled step", "our weight step", 3.4),
    costs("sampled path / its network", "supernet", "single path", "discrete network", 1.02),
    costs("PR-DARTS / DARTS, weight step", "strategies", "PR-DARTS weight step", "DARTS weight step", 0.29),
    costs("PR-DARTS / DARTS, architecture step", "strategies", "PR-DARTS arch step", "DARTS arch step", 0.31),
    quicker(
        "published way / DARTS_V2 training step",
        "training",
        "our training step",
        "published training step",
        1.8,
    ),
    costs("Lightning step / bare loop", "lightning", "Lightning step", "bare PyTorch step", 1.03),
    quicker("full Jacobian in NCHW / kernel", "kernel", OURS, PUBLISHED, 2.0),
    quicker("full Jacobian, channels last / kernel", "kernel", OURS, SAME_LAYOUT, 2.7),
    quicker("a kernel each for trace and κ / both of one", "kernel", OURS, BOTH, 5.2),
    costs(
        "memory of the kernel / of a full Jacobian",
        "kernel",
        f"memory of {OURS}",
        f"memory of {PUBLISHED}",
        0.5,
    ),
    quicker(
        "six zero-cost metrics, one by one / together, 3×3 cell",
        "zero_cost",
        "3×3 cell, together",
        "3×3 cell, one by one",
        2.8,
    ),
    quicker("the same, mixed cell", "zero_cost", "mixed cell, together", "mixed cell, one by one", 3.5),
    quicker("all metrics one at a time / together", "metrics", "together", "one at a time", 2.2),
    quicker(
        "the same without vkdnw, which shares nothing",
        "metrics",
        "together, without vkdnw",
        "one at a time, without vkdnw",
        2.2,
    ),
    quicker(
        "a pool: one process of two threads / two of one",
        "pool",
        "2 processes, 1 thread",
        "1 process, 2 threads",
        1.2,
    ),
    quicker("one image: torch / optimize=True", "inference", "frozen", "torch", 1.4),
    quicker('one image: torch / runtime="onnx"', "inference", "ONNX Runtime", "torch", 3.3),
    costs('runtime="onnx" / bare session', "inference", "ONNX Runtime", "bare session", 1.1),
    costs(
        "two processes of half the batch / one",
        "processes",
        "two processes, averaged",
        "one process, the whole batch",
        1.22,
    ),
    costs(
        "search.py to its first step / import torch",
        "start",
        "search.py to its first step",
        "import torch",
        1.85,
    ),
    costs("nas_lightning.load / import torch", "start", "import nas_lightning.load", "import torch", 1.1),
    costs("nas-table --help", "start", "nas-table --help", None, 0.3),
    costs("search.py --help", "start", "search.py --help", None, 0.3),
    costs("peak memory of a weight step, batch 64", "memory", "ours weight step", None, 4.5),
    costs("peak memory of an architecture step, batch 64", "memory", "ours arch step", None, 4.5),
    costs("the same with checkpoint_cells, weights", "memory", "checkpointed weight step", None, 4),
    quicker("augmentation: per-image PIL / ours", "images", "batches from memory", "image by image", 5),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--only", nargs="+", choices=[*COMMANDS], default=[*COMMANDS])
    options = parser.parse_args()
    start, load = time.perf_counter(), os.getloadavg()[0]
    before = {} if options.only == [*COMMANDS] else read(options.folder)
    measured = {name: measurements(run(*COMMANDS[name])) for name in options.only}
    rows = [
        line.row(measured[line.command]) if line.command in measured else before[line.work] for line in LINES
    ]
    write(rows, options.folder)
    print((options.folder / "bench.csv").read_text(encoding="utf-8"))
    minutes = (time.perf_counter() - start) / 60
    print(f"{minutes:.0f} minutes, load {load:.1f} at the start; `python -m docs.make_pages` writes the page")


def run(module: str, *words: str) -> str:
    """Return the output of a command."""
    print(f"{module} {' '.join(words)}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *words], stdout=subprocess.PIPE, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else ""


def measurements(text: str) -> Measured:
    r"""Return number and unit by the name of the work; names with two numbers are left out.

    >>> measurements("our weight step      12.5 ms\nours / theirs: 2.0 (target ≥ 1)")
    {'our weight step': (12.5, 'ms')}
    """
    matches = list(_MEASURED.finditer(text))
    counts = Counter(match["name"] for match in matches)
    return {m["name"]: (float(m["value"]), m["unit"]) for m in matches if counts[m["name"]] == 1}


def describe_machine() -> str:
    """Return a description of the machine."""
    return f"torch {torch.__version__.partition('+')[0]}, {os.cpu_count()} processors, one thread"


def read(folder: Path) -> dict[str, tuple[str, ...]]:
    """Read the rows of an earlier table, by name."""
    with (folder / "bench.csv").open(encoding="utf-8", newline="") as file:
        return {cells[0]: tuple(cells) for cells in csv.reader(file)}


def write(rows: list[tuple[str, ...]], folder: Path) -> None:
    """Write the table, and the machine that it is from."""
    with (folder / "bench.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    (folder / "machine.txt").write_text(describe_machine() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
