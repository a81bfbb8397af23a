"""The README's first commands: the network that they find against five random ones, trained alike.

    python -m reproductions.measurements.digits [--seed 0] [--epochs 30]

Runs `search.py`, then `train.py` on its result, then the same for five architectures of `strategy=random`,
all on the embedded digits. Prints the difference of the test accuracies last (target: above 0).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--random", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = train_accuracy(Path(folder) / "found", options, f"seed={options.seed}")
        print(f"found by the default search: {found:.4f}", flush=True)
        drawn = []
        for number in range(options.random):
            settings = ("strategy=random", f"seed={1000 + number}")
            drawn.append(train_accuracy(Path(folder) / f"random{number}", options, *settings))
            print(f"random architecture {number}: {drawn[-1]:.4f}", flush=True)
    mean, deviation = statistics.mean(drawn), statistics.stdev(drawn)
    print(f"random architectures: {mean:.4f} ± {deviation:.4f}")
    print(f"found minus the mean of the random ones: {found - mean:+.4f} (target > 0)")


def train_accuracy(run: Path, options: argparse.Namespace, *search: str) -> float:
    """Return the test accuracy of a search's result after training."""
    call("search.py", f"run={run}", *search)
    trained = run.with_name(run.name + "_trained")
    call(
        *("train.py", "genotype=file", f"genotype.path={run}", f"run={trained}"),
        *(f"seed={options.seed}", f"trainer.max_epochs={options.epochs}"),
    )
    return json.loads((trained / "summary.json").read_text())["metrics"]["test_accuracy"]


def call(*words: str) -> None:
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
