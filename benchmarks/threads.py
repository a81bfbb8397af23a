"""Steps of a search with different OpenMP settings, alone or next to busy processes.

    python -m benchmarks.threads [--busy 2] [--steps 5] [--out benchmarks/threads.csv]

Adds a row for each setting and image size to a CSV file: median seconds of a step, and their ratio to one
thread. To emulate an idle machine on a shared one, use real-time priority for a minute:
`chrt -f 10 python -m benchmarks.threads --label idle`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

SETTINGS = {
    "one thread": {"OMP_NUM_THREADS": "1"},
    "torch's default": {},
    "OMP_WAIT_POLICY=PASSIVE": {"OMP_WAIT_POLICY": "PASSIVE"},
    "GOMP_SPINCOUNT=1000": {"GOMP_SPINCOUNT": "1000"},
}
VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "MKL_NUM_THREADS")
SIZES = {"8×8": (8, 32), "32×32": (32, 64)}  # image, batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--busy", type=int, default=0, help="processes that compute meanwhile")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--limit", type=int, default=100, help="seconds for the steps of a setting")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/threads.csv"))
    parser.add_argument("--label", help="of the machine; the default is its load")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return _serve()
    label = options.label or f"load {os.getloadavg()[0]:.0f} and {options.busy} busy processes"
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.busy)]
    try:
        seconds = {name: _measure(extra, options.steps, options.limit) for name, extra in SETTINGS.items()}
    finally:
        for process in busy:
            process.kill()
    is_new = not options.out.exists()
    with options.out.open("a", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        if is_new:
            rows.writerow(["machine", "images", "setting", "seconds", "ratio to one thread"])
        for size in SIZES:
            one = seconds["one thread"][size]
            for setting, of_size in seconds.items():
                value = of_size.get(size, options.limit)
                mark = "" if size in of_size else "> "
                row = [label, size, setting, f"{mark}{value:.2f}", f"{mark}{value / one:.1f}"]
                rows.writerow(row)
                print(*row, sep="\t", flush=True)


def _measure(extra: dict[str, str], steps: int, limit: int) -> dict[str, float]:
    """Return the median seconds of a step by image size, without sizes that took too long."""
    inherited = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, "-m", "benchmarks.threads", "--child"]
    lines = "".join(f"{size}\n" * (steps + 1) for size in SIZES)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    child = subprocess.Popen(command, env={**inherited, **extra}, **pipes)
    timer = threading.Timer(limit, child.kill)
    timer.start()
    found, _ = child.communicate(lines)
    timer.cancel()
    times = [json.loads(line) for line in found.splitlines()]
    parts = [times[number * (steps + 1) :][: steps + 1] for number in range(len(SIZES))]
    return {
        size: statistics.median(part[1:]) for size, part in zip(SIZES, parts, strict=True) if len(part) > 1
    }


def _serve() -> None:
    """Take a step for every line with a size, and print its seconds."""
    import torch
    from torch.nn import functional as F

    from nas_lightning.spaces import DartsSpace

    torch.manual_seed(0)
    space = DartsSpace()
    supernet = space.supernet(in_channels=3, num_classes=10, channels=8, cells=2)
    weights = {name: torch.randn(g.shape).softmax(dim=-1) for name, g in space.groups.items()}
    for line in sys.stdin:
        side, batch = SIZES[line.strip()]
        x, y = torch.randn(batch, 3, side, side), torch.randint(10, (batch,))
        start = time.perf_counter()
        F.cross_entropy(supernet(x, weights), y).backward()
        print(json.dumps(time.perf_counter() - start), flush=True)


if __name__ == "__main__":
    main()
