"""How close to `limits.minutes` every strategy ends, on a busy machine.

    python -m benchmarks.deadlines [--minutes 1] [--busy 2] [--strategies spos nesbs …]

Runs each strategy with its defaults, one after another, next to `--busy` processes that compute. A search
reports its duration from building the parts to deriving the genotype. The last line is the largest deviation
(target ≤ 10 %). Strategies that do not support the space, and those without rounds, are named and do not
count.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from nas_lightning.options import groups
from nas_lightning.runs.folder import RunFolder

SEARCH = "from nas_lightning.cli import search; search()"
COMPUTE = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"  # and not for longer


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Run `count` processes that compute, inside the context."""
    busy = [subprocess.Popen([sys.executable, "-c", COMPUTE]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


class Account(NamedTuple):
    """The duration of a search.

    Args:
        seconds: duration that the search reports; None if no time limits it.
        command: seconds of the whole command.
        reason: why no time limits it.

    >>> Account(75.0, command=90.0).deviation(minutes=1.0)
    0.25
    """

    seconds: float | None
    command: float
    reason: str = ""

    def deviation(self, minutes: float) -> float | None:
        """Return the relative deviation from the limit."""
        return None if self.seconds is None else self.seconds / (60 * minutes) - 1

    def line(self, strategy: str, minutes: float) -> str:
        """Return the line of the table."""
        off = self.deviation(minutes)
        if off is None:
            return f"{strategy:20s} {self.reason}"
        return f"{strategy:20s} {self.seconds:8.1f} {off:8.1%} {self.command:8.1f}"


def account(strategy: str, minutes: float, words: list[str]) -> Account:
    """Run a search with a limit of minutes."""
    with tempfile.TemporaryDirectory() as folder:
        typed = [f"strategy={strategy}", f"limits.minutes={minutes}", *words, "run=run"]
        start = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", SEARCH, *typed], cwd=folder, capture_output=True, text=True
        )
        seconds = time.monotonic() - start
        run, said = RunFolder(Path(folder, "run")), done.stderr.strip()
        if done.returncode:
            if run.has_record or "\n" in said:
                sys.exit(f"{strategy}: {said[-2000:]}")
            return Account(None, seconds, said)
        if run.record.config["trainer"]["max_epochs"] == 0:
            return Account(None, seconds, "has no rounds")
        return Account(run.facts.seconds, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--busy", type=int, default=2, help="number of processes that compute")
    parser.add_argument("--space", default="darts")
    parser.add_argument("--strategies", nargs="*", default=None, help="default: all")
    parser.add_argument("words", nargs="*", help="overrides of every search, after --")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    found: dict[str, float] = {}
    print(f"{'strategy':20s} {'seconds':>8s} {'off by':>8s} {'command':>8s}", flush=True)
    with load(options.busy):
        for strategy in options.strategies or groups()["strategy"]:
            words = [f"space={options.space}", *options.words]
            taken = account(strategy, options.minutes, words)
            print(taken.line(strategy, options.minutes), flush=True)
            off = taken.deviation(options.minutes)
            found |= {} if off is None else {strategy: abs(off)}
    worst = max(found, key=lambda strategy: found[strategy], default="none")
    off = found.get(worst, 0.0)
    print(f"largest deviation from {options.minutes:g} min: {off:.1%} ({worst}; target ≤ 10 %)")


if __name__ == "__main__":
    main()
