"""Results of NASI in NAS-Bench-201, at the size of its networks, on real CIFAR-10 images.

    python -m reproductions.measurements.nasi --data ../shared/data [--seeds 5] [--steps 100] [--nu 20]

16 channels, five cells a stage, batches of 64, one sampled path a step. The search sees training images only;
its cell is looked up in the table afterwards. ν is fixed near the median trace of random cells, because their
mean (equation 40) is dominated by a few cells with 10⁴ times larger traces. Every seed is one line of
--results; a second call continues there. A table next to it has all seeds, their mean, and standard
deviation.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from benchmarks.timing import quiet_trainer
from nas_lightning.data import Cifar10, SearchData
from nas_lightning.errors import InputError
from nas_lightning.objectives.tables import TabularNasBench201
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import Nasi
from nas_lightning.utils.tables import Table

SIZES = {"in_channels": 3, "num_classes": 10, "channels": 16, "cells": 5}
BATCH = 64
DATASETS = ("cifar10", "cifar100", "imagenet16-120")
REPORTED = "93.55 / 71.20 / 44.84 (NASI(4T))"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100, help="T")
    parser.add_argument("--nu", type=float, default=20.0)
    parser.add_argument("--mu", type=float, default=1.0)
    parser.add_argument("--results", type=Path, default=Path("outputs/nasi.jsonl"))
    options = parser.parse_args()
    table_file = options.results.with_suffix(".csv")
    if table_file == options.results:
        raise InputError(
            "expected lines (.jsonl) whose table is .csv", got=options.results, where="--results"
        )
    torch.set_num_threads(1)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    lines = options.results.read_text(encoding="utf-8").splitlines() if options.results.is_file() else []
    settings = [options.steps, options.nu, options.mu]
    rows = [row for row in map(json.loads, lines) if row["settings"] == settings]
    table = TabularNasBench201(options.data / "nasbench201" / "test_accuracy.csv")
    for seed in sorted(set(range(options.seeds)) - {row["seed"] for row in rows}):
        row = {"settings": settings, "seed": seed, **search(seed, options, table)}
        rows.append(row)
        print(row, flush=True)
        with options.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    found = summary(rows)
    table_file.write_text(found.csv(), encoding="utf-8")
    print(found.markdown())


def search(seed: int, options: argparse.Namespace, table: TabularNasBench201) -> dict:
    pl.seed_everything(seed, verbose=False)
    images = max(20_000, 2 * BATCH * options.steps)  # T batches of the half that trains
    root = str(options.data / "cifar10")
    data = SearchData(Cifar10(root=root, batch_size=BATCH, subset=images, seed=seed))
    data.setup()
    if options.steps > (most := len(data.train)):
        raise InputError(f"expected at most {most} samples, a batch each", got=options.steps, where="--steps")
    space = NasBench201()
    supernet = space.supernet(**SIZES)
    settings = {"nu": options.nu, "mu": options.mu, "computed": "sampled", "seed": seed}
    strategy = Nasi(space, supernet, data, **settings)
    trainer = quiet_trainer(1, limit_train_batches=options.steps)
    start = time.process_time()
    trainer.fit(strategy, data)
    (genotype,) = strategy.derive()
    return {
        "arch": space.notation(genotype),
        "accuracy": [table.column(name, genotype) for name in DATASETS],
        "seconds": round(time.process_time() - start),
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a row for each seed; with several, also their mean and standard deviation.

    >>> rows = [{"seed": s, "arch": "", "accuracy": [90 + s, 70, 40], "seconds": 9} for s in (0, 2)]
    >>> summary(rows).rows[-1]
    ['deviation', '', 1.4142135623730951, 0.0, 0.0, 0.0]
    """
    seeds = [[row["seed"], row["arch"], *row["accuracy"], row["seconds"]] for row in rows]
    over = {"mean": statistics.mean, "deviation": statistics.stdev} if len(rows) > 1 else {}
    columns = list(zip(*seeds, strict=True))[2:]
    last = [[name, "", *(float(of(column)) for column in columns)] for name, of in over.items()]
    names = ["seed", "cell", *DATASETS, "seconds"]
    note = f"Test accuracies (%), seconds of one processor. Reported: {REPORTED}"
    return Table("seeds", f"NASI, {len(rows)} seeds", names, [*seeds, *last], note)


if __name__ == "__main__":
    main()
