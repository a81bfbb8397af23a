"""Results of NASI in NAS-Bench-201 over T and ν, on real CIFAR-10 images.

    python -m reproductions.measurements.nasi --data ../shared/data [--seeds 5] [--steps 240]

8 channels, five cells per stage, batches of 32, LeCun's initialization, one sampled path a step, μ = 1. The
samples of a search are drawn once and saved in --results, where a second call continues; T and ν are applied
afterwards, exactly. 4 T is --steps. A search sees training images only; its cell is looked up in the table.
Two tables next to the samples: `rules.csv`, the means and standard deviations over seeds, and `seeds.csv`,
the cells. NASI does not derive `none`; rows in which it does show the difference.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch

from nas_lightning.data import Cifar10, SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.tables import TabularNasBench201
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import Nasi
from nas_lightning.strategies.nasi import derive_mode
from nas_lightning.utils.progress import follow
from nas_lightning.utils.tables import Entry, Table
from reproductions.nasi import TraceSamples, draw_samples, trace_step

SIZES = {"in_channels": 3, "num_classes": 10, "channels": 8, "cells": 5}
BATCH = 32
DATASETS = ("cifar10", "cifar100", "imagenet16-120")
MU = 1.0
FIRST = 50  # samples that ν₀ is computed from
NU0 = 500.0  # of equation 6.15
REPORTED = "Reported for T: 93.08 / 69.51 / 40.87, for 4 T: 93.55 / 71.20 / 44.84"

STEPS: Mapping[str, Callable[[TraceSamples], torch.Tensor]] = {
    "6.14": lambda one: trace_step(one, MU, float(one.traces[:FIRST].mean())),
    "6.15": lambda one: trace_step(one, MU, NU0, adaptive=True),
    "median": lambda one: trace_step(one, MU, float(one.traces[:FIRST].quantile(0.5))),
    "quantile 0.75": lambda one: trace_step(one, MU, float(one.traces[:FIRST].quantile(0.75))),
}
"""Δ* by the choice of ν: the mean of the first traces, the running mean from ν₀ = 500, their quantiles."""

DERIVATIONS: Mapping[str, Callable[[NasBench201, Mapping[str, torch.Tensor]], Genotype]] = {
    "not derived": derive_mode,
    "derived": lambda space, p: space.discretize(p),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=240, help="4 T")
    parser.add_argument("--results", type=Path, default=Path("outputs/nasi"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.results.mkdir(parents=True, exist_ok=True)
    budgets = options.steps // 4, options.steps
    table = TabularNasBench201(options.data / "nasbench201" / "test_accuracy.csv")
    for steps in budgets:  # all searches have T samples before one has 4 T
        start = time.process_time()
        samples = [
            draw(seed, steps, options)
            for seed in follow(range(options.seeds), f"searches of {steps} samples")
        ]
        print(f"{time.process_time() - start:.0f} processor seconds")
        done = [budget for budget in budgets if budget <= steps]
        for found in tables(samples, done, table):
            (options.results / f"{found.name}.csv").write_text(found.csv(), encoding="utf-8")
        print(found.markdown(), flush=True)


@cache
def images(root: Path) -> SearchData:
    """Read the images once; a search shuffles them."""
    data = SearchData(Cifar10(root=str(root), subset=20_000))
    data.setup()
    return data


def draw(seed: int, steps: int, options: argparse.Namespace) -> TraceSamples:
    """Return the samples of a search; draw those that are not in its file."""
    data, space = images(options.data / "cifar10"), NasBench201()
    torch.manual_seed(seed)
    strategy = Nasi(space, space.supernet(**SIZES), data, nu=1.0, computed="sampled", seed=seed)
    path = options.results / f"{seed}.csv"
    return draw_samples(strategy, data, path, steps=steps, batch_size=BATCH, settings={"sizes": SIZES})


def tables(samples: Sequence[TraceSamples], budgets: Sequence[int], table: TabularNasBench201) -> list[Table]:
    """Return the cells of all searches, and their mean accuracies by T, ν, and derivation."""
    seeds: list[list[Entry]] = []
    rules: list[list[Entry]] = []
    for T in budgets:
        for none, derive in DERIVATIONS.items():
            for rule, step in STEPS.items():
                cells = [cell_of(step(one.first(T)), derive) for one in samples]
                found = np.array([[table.column(name, cell) for name in DATASETS] for cell in cells])
                ends = list(zip(found.mean(axis=0), found.std(axis=0, ddof=1), strict=True))
                kind: list[Entry] = [T, rule, none]
                rules.append([*kind, *(float(value) for pair in ends for value in pair)])
                seeds += [
                    [*kind, seed, table.key(cell), *row.tolist()]
                    for seed, (cell, row) in enumerate(zip(cells, found, strict=True))
                ]
    columns = ["T", "ν", "none"]
    pairs = [column for name in DATASETS for column in (name, f"± {name}")]
    note = f"Test accuracies (%), mean and standard deviation. {REPORTED}"
    return [
        Table("seeds", "NASI's cells", [*columns, "seed", "cell", *DATASETS], seeds),
        Table("rules", f"NASI, {len(samples)} seeds", [*columns, *pairs], rules, note),
    ]


def cell_of(
    step: torch.Tensor, derive: Callable[[NasBench201, Mapping[str, torch.Tensor]], Genotype]
) -> Genotype:
    """Return the genotype of α* = Δ*."""
    space = NasBench201()
    shape = space.groups["cell"].shape
    return derive(space, {"cell": step.view(shape).softmax(dim=-1)})


if __name__ == "__main__":
    main()
