"""From genotype to accuracy on real images: a small DARTS_V2, trained by train.py.

    python -m reproductions.measurements.retrain_real
        [--data FOLDER] [--fashion FOLDER] [--epochs 2] [--subset N]

Digits need nothing. CIFAR-10 is looked for in the folder `cifar10` of `--data`; Fashion-MNIST's four unzipped
files in `--fashion`. What is missing is left out. The last lines are the test accuracies.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SMALL = ("network.channels=8", "network.cells=5")


def main() -> None:
    """Train on each available data set, and print the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--fashion", type=Path)
    parser.add_argument("--epochs", type=int, default=2, help="epochs; 15 on digits")
    parser.add_argument("--subset", type=int, default=5000, help="images of either; all digits")
    options = parser.parse_args()
    part = (
        f"trainer.max_epochs={options.epochs}",
        f"dataset.subset={options.subset}",
        "dataset.batch_size=64",
    )
    works = {"digits": ("dataset=digits", "trainer.max_epochs=15")}
    if options.fashion is not None:
        works["fashion_mnist"] = ("dataset=fashion_mnist", f"dataset.root={options.fashion}", *part)
    if (options.data / "cifar10").is_dir():
        works["cifar10"] = ("dataset=cifar10", f"dataset.root={options.data / 'cifar10'}", *part)
    with tempfile.TemporaryDirectory() as folder:
        lines = [f"{name:14s} {train(Path(folder) / name, *words)}" for name, words in works.items()]
    print("\n".join(lines))


def train(run: Path, *words: str) -> str:
    """Return the test accuracy of a network, and the duration."""
    command = [sys.executable, "train.py", "genotype=darts_v2", *SMALL, *words, f"run={run}"]
    subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
    facts = json.loads((run / "summary.json").read_text())
    accuracy, seconds = facts["metrics"]["test_accuracy"], facts["seconds"]
    return f"test accuracy {accuracy:.1%}, {facts['params']:,} parameters, {seconds:.0f} s"


if __name__ == "__main__":
    main()
