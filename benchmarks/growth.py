"""How costs grow with sizes, up to ten times the usual ones: measured exponents against expected ones.

    python -m benchmarks.growth [--folder benchmarks/results] [--rounds 3] [--only cells nodes]

Processor time of one thread, the least of the rounds. The exponent is the slope in double logarithms between
the last two sizes, where constant costs matter least. Writes growth.csv and growth.png to
the folder.
"""

from __future__ import annotations

import argparse
import csv
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch.nn import functional as F

from nas_lightning.genotype import Genotype
from nas_lightning.metrics import GradNorm
from nas_lightning.metrics.pool import score_pool
from nas_lightning.objectives import GenotypeTable
from nas_lightning.plots import save
from nas_lightning.plots.charts import draw_curves
from nas_lightning.plots.style import label_axes, legend_above, tidy
from nas_lightning.spaces import DartsSpace, NasBench201

Work = Callable[[], object]
LOOKUPS = 500
COLUMNS = ("cost of", "against", "sizes", "milliseconds", "exponent", "expected")


class Growth(NamedTuple):
    """A cost and its expected growth.

    Args:
        cost: name of the cost.
        sizes: four sizes, ascending.
        prepare: returns the work of a size.
        expected: range of the exponent.
    """

    cost: str
    sizes: Sequence[int]
    prepare: Callable[[int], Work]
    expected: tuple[float, float]


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the slope of log cost over log size between the last two sizes.

    >>> exponent([1, 2, 4], [5.0, 6.0, 24.0])
    2.0
    """
    return math.log(costs[-1] / costs[-2]) / math.log(sizes[-1] / sizes[-2])


def darts_step(*, cells: int = 2, channels: int = 8, nodes: int = 4, batch: int = 8, side: int = 16) -> Work:
    """Return a weight step of a DARTS supernet."""
    space = DartsSpace(nodes=nodes)
    supernet = space.supernet(in_channels=3, num_classes=10, channels=channels, cells=cells)
    weights = {name: torch.softmax(torch.zeros(group.shape), -1) for name, group in space.groups.items()}
    x, y = torch.randn(batch, 3, side, side), torch.randint(10, (batch,))
    parameters = list(supernet.parameters())

    def step() -> None:
        torch.autograd.grad(F.cross_entropy(supernet(x, weights), y), parameters, allow_unused=True)

    return step


def pool(size: int) -> Work:
    """Return the scoring of `count` architectures."""
    space, batch = NasBench201(), (torch.randn(8, 3, 8, 8), torch.arange(8))

    def network(genotype: Genotype) -> torch.nn.Module:
        return space.network(genotype, in_channels=3, num_classes=8, channels=4, cells=1)

    genotypes = cells_of_table(size)
    return lambda: score_pool(space, network, genotypes, batch, {"norm": GradNorm()}, progress=False)


def cells_of_table(count: int) -> list[Genotype]:
    """Return distinct cells of NAS-Bench-201 with a mean cost that does not depend on their number."""
    space = NasBench201()
    ops = space.group.ops
    digits = range(6)
    step = 6101  # has no factor in common with the 5⁶ cells: each once, in no order of their operations
    text = "|{}~0|+|{}~0|{}~1|+|{}~0|{}~1|{}~2|"
    return [
        space.parse(text.format(*(ops[number * step // len(ops) ** digit % len(ops)] for digit in digits)))
        for number in range(count)
    ]


def lookup(rows: int) -> Work:
    """Return a fixed number of lookups in a table of `count` rows."""
    space, genotypes = NasBench201(), cells_of_table(rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.csv")
        lines = [f"{space.notation(genotype)},{number}" for number, genotype in enumerate(genotypes)]
        path.write_text("\n".join(["genotype,valid", *lines]), encoding="utf-8")
        table = GenotypeTable(path, space)
    chosen = [genotypes[number % rows] for number in range(LOOKUPS)]
    return lambda: [table.valid_accuracy(genotype) for genotype in chosen]


def curves(epochs: int) -> Work:
    """Return drawing and writing the curves of a run of `count` epochs."""
    rows = [{"epoch": epoch, "train_loss": 1 / (1 + epoch), "val_loss": 1.0} for epoch in range(epochs)]

    def draw() -> None:
        with tempfile.TemporaryDirectory() as folder:
            save(draw_curves(rows), Path(folder, "curves"))

    return draw


GROWTHS = {
    "cells": Growth("a step", (4, 10, 20, 40), lambda n: darts_step(cells=n), (0.8, 1.2)),
    "channels": Growth("a step", (8, 16, 64, 128), lambda n: darts_step(channels=n), (1.0, 2.0)),
    "nodes": Growth("a step", (2, 4, 8, 12), lambda n: darts_step(nodes=n, cells=1), (1.6, 2.0)),
    "batch": Growth("a step", (32, 128, 512, 1024), lambda n: darts_step(batch=n, nodes=2), (0.8, 1.2)),
    "image side": Growth(
        "a step", (32, 64, 128, 256), lambda n: darts_step(side=n, batch=2, nodes=2), (1.7, 2.2)
    ),
    "pool": Growth("scores", (10, 100, 300, 1000), pool, (0.9, 1.1)),
    "rows": Growth(f"{LOOKUPS} lookups", (100, 1000, 5000, 15625), lookup, (-0.1, 0.1)),
    "epochs": Growth("a run's curves", (60, 600, 3000, 6000), curves, (0.0, 1.0)),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=[*GROWTHS], default=[*GROWTHS])
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = {name: [] for name in options.only}
    for name in options.only:
        growth = GROWTHS[name]
        found[name] = [least(growth.prepare(size), options.rounds) for size in growth.sizes]
        print(*row(name, found[name]), sep="  ", flush=True)
    write(found, options.folder)


def least(work: Work, rounds: int) -> float:
    """Return the processor seconds of the fastest round, after a warm-up."""
    seconds = []
    for _ in range(1 + rounds):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds[1:])


def row(name: str, seconds: Sequence[float]) -> tuple[str, ...]:
    """Return the cells of a row."""
    growth = GROWTHS[name]
    low, high = growth.expected
    return (
        growth.cost,
        name,
        " ".join(map(str, growth.sizes)),
        " ".join(f"{1000 * second:.0f}" for second in seconds),
        f"{exponent(growth.sizes, seconds):.2f}",
        f"{low:g} to {high:g}",
    )


def write(found: dict[str, list[float]], folder: Path) -> None:
    """Write the table and the figure."""
    rows = [COLUMNS, *(row(name, seconds) for name, seconds in found.items())]
    with (folder / "growth.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    save(draw(found), folder / "growth")


def draw(found: dict[str, list[float]]) -> Figure:
    """Draw costs over sizes, both as multiples of the first."""
    figure = Figure(figsize=(5.5, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, seconds in found.items():
        sizes = GROWTHS[name].sizes
        axes.loglog(
            [size / sizes[0] for size in sizes], [s / seconds[0] for s in seconds], marker="o", label=name
        )
    tidy(axes)
    label_axes(axes, "size, in multiples of the smallest", "cost, in multiples of the smallest")
    legend_above(axes, 4)
    return figure


if __name__ == "__main__":
    main()
