"""The README's first commands: the cells that they find against random ones, trained alike.

    python -m reproductions.measurements.digits [--seeds 0 1 2 3 4] [--epochs 30]

Runs `search.py` with each seed and trains its result with `train.py`, then the same for as many architectures
of `strategy=random`, all on the embedded digits. Prints the cells, and the difference of the mean test
accuracies last (target: 0 or more). Finished runs in `--folder` are not repeated; `--table` is a CSV file of
all cells.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

from nas_lightning.genotype import read_genotypes
from nas_lightning.runs.facts import mean_with_deviation
from nas_lightning.runs.folder import RunFolder
from nas_lightning.spaces.topology import depth, skips, width
from nas_lightning.utils.files import write_whole
from nas_lightning.utils.tables import Entry, Table

ROOT = Path(__file__).parents[2]
FOUND, RANDOM = "make search", "random cell"
COLUMNS = ["cell", "seed", "depth", "width", "skips", "valid_accuracy", "test_accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--epochs", type=int, default=30, help="of each training")
    parser.add_argument("--folder", type=Path, default=Path("outputs/digits"))
    parser.add_argument("--table", type=Path, default=Path("reproductions/results/digits/cells.csv"))
    options = parser.parse_args()
    rows: list[list[Entry]] = []
    for seed in options.seeds:
        rows.append(cell(FOUND, seed, options))
        rows.append(cell(RANDOM, 1000 + seed, options, "strategy=random"))
        print(*rows[-2:], sep="\n", flush=True)
        table = Table("cells", f"{options.epochs} epochs of training on the digits", COLUMNS, rows)
        write_whole(options.table, table.csv())
    report(rows)


def cell(name: str, seed: int, options: argparse.Namespace, *search: str) -> list[Entry]:
    """Search and train, or read what earlier calls left; return a row of the table."""
    run = options.folder.absolute() / f"{name.replace(' ', '_')}_{seed}"
    trained = run.with_name(f"{run.name}_trained_{options.epochs}")
    call(run, "search.py", f"seed={seed}", *search)
    call(
        *(trained, "train.py", "genotype=file", f"genotype.path={run}", "dataset=digits"),
        f"trainer.max_epochs={options.epochs}",
    )
    found, accuracies = read_genotypes(run)[0]["normal"], RunFolder(trained).facts.metrics
    valid = RunFolder(run).facts.metrics.get("valid_accuracy")
    topology: list[Entry] = [depth(found), float(width(found)), skips(found)]
    return [name, seed, *topology, valid, accuracies["test_accuracy"]]


def call(run: Path, *words: str) -> None:
    """Run a command unless the run is finished."""
    if not (run / "summary.json").is_file():
        words = (*words, f"run={run}")
        subprocess.run([sys.executable, *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def report(rows: list[list[Entry]]) -> None:
    means = {}
    for name in (FOUND, RANDOM):
        accuracies = [float(row[-1]) for row in rows if row[0] == name]
        depths = [int(row[2]) for row in rows if row[0] == name]
        means[name] = statistics.mean(accuracies)
        shown = mean_with_deviation([100 * accuracy for accuracy in accuracies], 2)
        print(f"{name}: depth {', '.join(map(str, depths))}; test accuracy {shown} %")
    print(f"difference of the means: {100 * (means[FOUND] - means[RANDOM]):+.2f} (target: 0 or more)")


if __name__ == "__main__":
    main()
