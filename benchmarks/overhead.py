"""The share of a search that is not training: start, pages, figures, and callbacks.

    python -m benchmarks.overhead [--out benchmarks/overhead.csv] [overrides of search.py]

Runs `search.py`, measures the processor time of its parts, and writes a CSV file.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import runpy
import sys
import tempfile
import time
from functools import wraps
from pathlib import Path

PARTS = {
    "training": "pytorch_lightning:Trainer.fit",
    "pages during the search": "nas_lightning.report.page:LivePage.on_train_epoch_end",
    "last page": "nas_lightning.report.page:write_report",
    "history": "nas_lightning.callbacks:GenotypeHistory.on_train_epoch_end",
    "figures": "nas_lightning.callbacks:GenotypeHistory.on_fit_end",
    "collapse": "nas_lightning.callbacks:CollapseWarning.on_train_epoch_end",
    "multiply-adds": "nas_lightning.jobs.search:cost",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/overhead.csv"))
    options, overrides = parser.parse_known_args()
    seconds = dict.fromkeys(["start and rest", *PARTS], 0.0)
    running = ["start and rest"]
    since = [0.0]

    def switch() -> None:
        """Add the time since the last switch to the part that was running."""
        now = time.process_time()
        seconds[running[-1]] += now - since[0]
        since[0] = now

    for part, place in PARTS.items():
        _time(part, place, running, switch)
    with tempfile.TemporaryDirectory() as folder:
        sys.argv = ["search.py", f"run={folder}/run", *overrides]
        try:
            runpy.run_path("search.py", run_name="__main__")
        finally:
            switch()
    whole = sum(seconds.values())
    with options.out.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["part", "seconds", "share"])
        for part, spent in seconds.items():
            rows.writerow([part, f"{spent:.2f}", f"{spent / whole:.1%}"])
            print(f"{part:24} {spent:8.2f} s {spent / whole:6.1%}")


def _time(part, place, running, switch) -> None:
    """Have a function count as a part of the time while it runs."""
    module, _, path = place.partition(":")
    owner = importlib.import_module(module)
    *names, last = path.split(".")
    for name in names:
        owner = getattr(owner, name)
    function = getattr(owner, last)

    @wraps(function)
    def timed(*args, **kwargs):
        switch()
        running.append(part if part != "last page" or len(running) == 1 else running[-1])
        try:
            return function(*args, **kwargs)
        finally:
            switch()
            running.pop()

    setattr(owner, last, timed)


if __name__ == "__main__":
    main()
