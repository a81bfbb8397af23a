"""Results of the strategies in NAS-Bench-201, searching on real CIFAR-10 images at a small size.

    python -m reproductions.measurements.nasbench201_search --data FOLDER [--strategies darts …] [--seeds 3]

The folder contains `cifar10/train.tar` and the table `nasbench201/test_accuracy.csv` of accuracies after 200
epochs. A search sees neither test images nor the table; its genotype is looked up afterwards. Every run is
one line of `--results`, with a CSV file of all beside it; a second call continues there. A strategy can have
overrides, in quotes: `"gdas edge_weights=edges regularizer=[beta]"`.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import time
from pathlib import Path

import pytorch_lightning as pl
import torch
from hydra import compose, initialize_config_dir

from benchmarks.timing import quiet_trainer
from nas_lightning.cli.build import factory_of
from nas_lightning.data import Cifar10, SearchData
from nas_lightning.jobs.parts import Parts
from nas_lightning.options import config_folder
from nas_lightning.runs.facts import mean_with_deviation
from nas_lightning.spaces import NasBench201
from nas_lightning.spaces.nasbench201 import EDGES
from nas_lightning.utils.files import write_whole
from nas_lightning.utils.tables import Table

DATASETS = ("cifar10", "cifar100", "imagenet16-120")
EPOCHS = {  # of the papers and of NAS-Bench-201's own runs; --scale makes them short in the same proportions
    "darts": 50,
    "pr_darts": 200,
    "pr_darts_public_code": 200,
    "gdas": 250,
    "pc_darts": 50,
    "gaea": 50,
    "random_ws": 100,
    "drnas": 100,
    "beta_darts": 100,
    "darts_minus": 100,
    "sdarts": 100,
    "lambda_darts": 50,
    "oles": 50,
    "snas": 100,
    "reinmax": 100,
    "spos": 100,
    "fair_nas": 100,
    "random": 0,
}
OUR_COMBINATIONS = (  # that no paper has
    "gdas edge_weights=edges",
    "drnas perturbation=random",
    "darts sampler=reinmax regularizer=[beta]",
    "pr_darts auxiliary_skip=skip",
    "gaea perturbation=random regularizer=[path]",
)
LEARNS_NO_SCORES = ("random", "random_ws", "spos", "fair_nas")


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    table = read_table(options.data / "nasbench201" / "test_accuracy.csv")
    options.results.parent.mkdir(parents=True, exist_ok=True)
    done = read_results(options.results)
    for seed in range(options.seeds):
        for name in options.strategies:
            if (name, seed) not in done:
                result = search(name, seed, options)
                result["accuracy"] = table[result["arch"]]
                done[name, seed] = result
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(result) + "\n")
                print(name, seed, result, flush=True)
    results = [done[name, seed] for name in options.strategies for seed in range(options.seeds)]
    rows = [[r["strategy"], r["seed"], r["arch"], *(r["accuracy"][d] for d in DATASETS)] for r in results]
    table = Table("cells", "Accuracies after 200 epochs", ["strategy", "seed", "arch", *DATASETS], rows)
    write_whole(options.results.with_suffix(".csv"), table.csv())
    report(results, options)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--strategies", nargs="+", default=[*EPOCHS, *OUR_COMBINATIONS])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=0.1, help="share of the papers' epochs")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--cells", type=int, default=1, help="cells per stage")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--arch-lr", type=float, default=6e-3, help="larger than usual: the run is short")
    parser.add_argument("--tau", type=float, default=1.0, help="PR-DARTS' temperature at the start")
    parser.add_argument(
        "--set",
        nargs="*",
        default=[],
        help="further settings, such as strategy.regularizer.path.lambda_path=0",
    )
    parser.add_argument("--results", type=Path, default=Path("outputs/nasbench201_search.jsonl"))
    return parser.parse_args()


def search(name: str, seed: int, options: argparse.Namespace) -> dict:
    paper, *parts = name.split()
    epochs = round(options.scale * EPOCHS[paper])
    settings = [f"strategy={paper}", *parts, f"seed={seed}", "run=outputs", *options.set]
    if paper.startswith("pr_darts"):
        settings.append(f"strategy.sampler.tau_start={options.tau}")
    if paper == "pc_darts":
        settings.append(f"strategy.warmup_epochs={round(0.3 * epochs)}")  # 15 of 50
    if paper not in (*LEARNS_NO_SCORES, "gaea"):  # GAEA's own rate is for exponentiated gradients
        settings.append(f"strategy.arch_lr={options.arch_lr}")
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        cfg = compose("search", settings)
    pl.seed_everything(seed, verbose=False)
    data = SearchData(
        Cifar10(
            root=str(options.data / "cifar10"), batch_size=options.batch, subset=options.images, seed=seed
        ),
        train_fraction=cfg.search_data.train_fraction,
    )
    space = NasBench201()
    size = {"channels": options.channels, "cells": options.cells, "partial": cfg.supernet.partial}
    ours = Parts(space, data, seed=seed, supernet_sizes=size)
    strategy = ours.build(factory_of(cfg.strategy))
    trainer = quiet_trainer(epochs)
    start = time.process_time()
    trainer.fit(strategy, data)
    genotype = strategy.derive()[0]
    metrics = {
        k: round(float(v), 4) for k, v in trainer.callback_metrics.items() if not k.startswith("weights")
    }
    seconds = round(time.process_time() - start)
    return {
        "strategy": name,
        "seed": seed,
        "arch": space.notation(genotype),
        "seconds": seconds,
        "metrics": metrics,
    }


def read_table(path: Path) -> dict[str, dict[str, float]]:
    with path.open(encoding="utf-8") as file:
        return {row["arch"]: {name: float(row[name]) for name in DATASETS} for row in csv.DictReader(file)}


def read_results(path: Path) -> dict[tuple[str, int], dict]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return {(item["strategy"], item["seed"]): item for item in map(json.loads, lines)}


def report(results: list[dict], options: argparse.Namespace) -> None:
    print("\n| strategy | " + " | ".join(DATASETS) + " | skips | no weights | seconds |")
    print("|---|" + "---|" * (len(DATASETS) + 3))
    for name in options.strategies:
        runs = [result for result in results if result["strategy"] == name]
        cells = [mean_with_deviation([run["accuracy"][dataset] for run in runs], 2) for dataset in DATASETS]
        skips = statistics.mean(run["arch"].count("skip_connect") for run in runs)
        idle = statistics.mean(len(EDGES) - run["arch"].count("conv") for run in runs)
        seconds = statistics.mean(run["seconds"] for run in runs)
        print(f"| {name} | {' | '.join(cells)} | {skips:.1f} | {idle:.1f} | {seconds:.0f} |")
    if "pr_darts" in options.strategies:
        mean = statistics.mean(r["accuracy"]["cifar10"] for r in results if r["strategy"] == "pr_darts")
        print(f"\nPR-DARTS, mean CIFAR-10 test accuracy of its cells: {mean:.2f} (target ≥ 93.5)")


if __name__ == "__main__":
    main()
