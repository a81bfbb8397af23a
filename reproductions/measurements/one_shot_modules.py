"""Which modules of a table of NAS-Bench-101 are in NAS-Bench-1Shot1's spaces, and how metrics order those.

    python -m reproductions.measurements.one_shot_modules TABLE.csv [--scores RUN/scores/main.csv]

Every architecture of a space (Zela et al. 2020, arXiv:2001.10422, section 3) is a module of NAS-Bench-101
when unused blocks are left out; the benchmark's hash identifies it. Scores are those of study=correlation:
Spearman's ρ with the table's accuracies, ± the bootstrap's standard error, as in
table 6.5 of Y. Shu's thesis (2022), and of t(A) for the half of the modules with the smallest.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Mapping
from itertools import combinations, product
from pathlib import Path

import numpy as np

from nas_lightning.objectives.tables import GenotypeTable
from nas_lightning.spaces import NasBench101
from nas_lightning.spaces.nasbench1shot1 import PARENTS
from nas_lightning.spaces.nasbench101 import OPS, Matrix, Module, check_size, module_hash, prune
from nas_lightning.studies.scoring import estimate, spearman
from nas_lightning.utils.tables import Entry, Table

METRICS = ("snip", "grasp_signed", "synflow", "naswot", "grad_norm_whole")
TRACE = "grad_norm_whole"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", type=Path)
    parser.add_argument("--scores", type=Path)
    options = parser.parse_args()
    space = NasBench101()
    table = GenotypeTable(options.table, space)
    names = {space.hash(table.architecture(name)): name for name in table.table[table.dataset]}
    scores = {} if options.scores is None else read_scores(options.scores)
    rows: list[list[Entry]] = []
    for variant, parents in PARENTS.items():
        modules = set(hashes(parents))
        inside = [name for key, name in names.items() if key in modules]
        accuracies = {name: table.table[table.dataset][name] for name in inside}
        rows.append(
            [f"S{variant}", len(modules), len(inside), *(correlations(accuracies, scores) if scores else [])]
        )
    columns = ["space", "modules", "in the table", *((*METRICS, "t, smaller half") if scores else ())]
    title = f"Modules of NAS-Bench-1Shot1 among the table's {len(names):,}"
    print(Table("modules", title, columns, rows).markdown())


def read_scores(path: Path) -> dict[str, Mapping[str, str]]:
    """Read the scores of a pool's file."""
    with path.open(encoding="utf-8", newline="") as file:
        return {row["arch"]: row for row in csv.DictReader(file)}


def correlations(accuracies: Mapping[str, float], scores: Mapping[str, Mapping[str, str]]) -> list[Entry]:
    """Return the correlation of each metric, and of t below its median."""
    values = {metric: np.array([float(scores[name][metric]) for name in accuracies]) for metric in METRICS}
    truth = np.array(list(accuracies.values()))
    kept = values[TRACE] <= np.median(values[TRACE])
    found = [estimate(spearman, values[metric], truth) for metric in METRICS]
    return [*found, estimate(spearman, values[TRACE][kept], truth[kept])]


def hashes(parents: tuple[int, ...]) -> Iterator[str]:
    """Return the hashes of all modules of a space with these numbers of parents."""
    for matrix in wirings(parents):
        for ops in product(OPS, repeat=len(matrix) - 2):
            yield module_hash(Module(matrix, ops))


def wirings(parents: tuple[int, ...]) -> list[Matrix]:
    """Return the distinct pruned matrices of a space.

    >>> len(wirings((1, 1)))  # the output reads the block or, which leaves it out, the input
    2
    """
    size, found = len(parents) + 1, set()
    for chosen in product(*(combinations(range(v), n) for v, n in enumerate(parents, 1))):
        rows = tuple(tuple(int(v > 0 and i in chosen[v - 1]) for v in range(size)) for i in range(size))
        module = prune(Module(rows, (OPS[0],) * (size - 2)))
        check_size(module)
        found.add(module.matrix)
    return sorted(found)


if __name__ == "__main__":
    main()
