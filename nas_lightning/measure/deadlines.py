"""How near to `limits.minutes` every strategy ends, on a machine that others keep busy.

    python -m nas_lightning.measure.deadlines [--minutes 1] [--busy 2] [--strategies spos nesbs …]

Each is a command at its defaults, one after another, beside as many processes that do nothing but compute.
Its account is what the run says it took: from when its parts are built until its genotype is there. The last
line is the largest deviation of all (target ≤ 10 %).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nas_lightning.options import groups

SEARCH = "from nas_lightning.cli import search; search()"
COMPUTE = "while True: pass"


@contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes that compute meanwhile."""
    busy = [subprocess.Popen([sys.executable, "-c", COMPUTE]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def account(strategy: str, minutes: float, words: list[str]) -> tuple[float, float]:
    """Seconds that the search took by its own account, and the whole command."""
    with tempfile.TemporaryDirectory() as folder:
        typed = [f"strategy={strategy}", f"limits.minutes={minutes}", *words, "run=run"]
        start = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", SEARCH, *typed], cwd=folder, capture_output=True, text=True
        )
        seconds = time.monotonic() - start
        if done.returncode:
            sys.exit(f"{strategy}: {done.stderr[-2000:]}")
        facts = json.loads((Path(folder) / "run" / "summary.json").read_text(encoding="utf-8"))
        return facts["seconds"], seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--busy", type=int, default=2, help="processes that compute meanwhile")
    parser.add_argument("--space", default="darts")
    parser.add_argument("--strategies", nargs="*", default=None, help="all without this")
    parser.add_argument("words", nargs="*", help="settings of every search, after --")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    worst = 0.0, "none"
    print(f"{'strategy':20s} {'seconds':>8s} {'off by':>8s} {'command':>8s}", flush=True)
    with load(options.busy):
        for strategy in options.strategies or groups()["strategy"]:
            words = [f"space={options.space}", *options.words]
            seconds, whole = account(strategy, options.minutes, words)
            off = seconds / (60 * options.minutes) - 1
            worst = max(worst, (abs(off), strategy))
            print(f"{strategy:20s} {seconds:8.1f} {off:8.1%} {whole:8.1f}", flush=True)
    print(f"largest deviation from {options.minutes:g} min: {worst[0]:.1%} ({worst[1]}; target ≤ 10 %)")


if __name__ == "__main__":
    main()
