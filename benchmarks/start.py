"""What it takes from a command to its first step, as a multiple of `import torch`; and the small commands.

    python -m benchmarks.start [--rounds 5]

Processor time of whole processes, in turn, medians. The last line is the ratio for `search.py` (target
≤ 1.85).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from typing import Any

import pytorch_lightning as pl

SEARCH = "from nas_lightning.cli import search; search()"
STOP, STOP_AFTER = (
    f"+callbacks.stop._target_=benchmarks.start.{name}" for name in ("StopAtFirstStep", "StopAfterFirstStep")
)
COMMANDS = {
    "import torch": ("import torch", ()),
    "torch and its first optimizer": (
        "import torch; torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.1)",
        (),
    ),
    "search.py --help": (SEARCH, ("--help",)),
    "nas-table --help": ("from nas_lightning.report.comparison import main; main()", ("--help",)),
    "import nas_lightning.load": ("from nas_lightning import load", ()),
    "search.py to its first step": (SEARCH, (STOP,)),
    "search.py and its first step": (SEARCH, (STOP_AFTER,)),
}


class StopAtFirstStep(pl.Callback):
    """Print the loaded modules at the first step, and end the process."""

    def on_train_batch_start(self, *step: Any) -> None:
        stop()


class StopAfterFirstStep(pl.Callback):
    """Print the loaded modules after the first step, and end the process."""

    def on_train_batch_end(self, *step: Any) -> None:
        stop()


def stop() -> None:
    """Print the loaded modules, and end the process."""
    print("loaded:", *sorted(sys.modules), flush=True)
    os._exit(0)


def start(code: str, words: tuple[str, ...], folder: str) -> tuple[float, str]:
    """Return the processor seconds of a process, and its output."""
    code = f"import sys; sys.argv = ['search.py', *{list(words)}]; {code}"
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(1 + options.rounds):
        for name, (code, words) in COMMANDS.items():
            with tempfile.TemporaryDirectory() as folder:
                seconds[name].append(start(code, words, folder)[0])
    medians = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    for name, value in medians.items():
        print(f"{name:40s} {value:8.2f} s")
    ratio = medians["search.py to its first step"] / medians["import torch"]
    print(f"search.py to its first step / import torch: {ratio:.2f} (target ≤ 1.85)")


if __name__ == "__main__":
    main()
