"""Collapse to skips: one-shot searches in RobustDARTS' spaces, on real images.

    python -m reproductions.measurements.collapse --data FOLDER
        [--searches darts "darts early_stop=skips" …] [--seeds 2]

The operation sets of RobustDARTS (arXiv:1909.09656, section 3) in small supernets of DARTS' cells: two
operations for each edge (S1); skips and convolutions (S2); these and none (S3); noise and convolutions (S4).
The folder contains `cifar10/train.tar`. The table has the share of operations without parameters in the
derived normal cell: skips, pooling in S1, and noise in S4, which no cell should have. Every run is one line
of `--results`; a second call continues there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import pytorch_lightning as pl
import torch
from hydra import compose, initialize_config_dir

from benchmarks.timing import quiet_trainer
from nas_lightning.cli.build import factory_of, searched_parts
from nas_lightning.errors import InputError
from nas_lightning.options import config_folder
from nas_lightning.runs.facts import mean_with_deviation
from nas_lightning.spaces.operations import has_parameters

SETS = ("s1", "s2", "s3", "s4")
SEARCHES = (
    *("darts", "darts early_stop=skips", "darts arch_step=second_order", "darts regularizer=[path]"),
    *("pr_darts", "fair_darts", "drnas", "beta_darts", "darts_minus", "sdarts", "lambda_darts", "oles"),
    *("gdas", "pc_darts", "gaea", "darts derivation=perturbation", "darts derivation=pruning"),
)
"""A strategy each, with parts of its own."""


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    lines = options.results.read_text(encoding="utf-8").splitlines() if options.results.is_file() else []
    done = {key(item): item for item in map(json.loads, lines)}
    for seed in range(options.seeds):
        for name in options.searches:
            for ops in options.sets:
                run = {"search": name, "set": ops, "seed": seed}
                if key(run) not in done:
                    done[key(run)] = run | search(name, ops, seed, options)
                    with options.results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(done[key(run)]) + "\n")
                    print(done[key(run)], flush=True)
    report(list(done.values()), options)


def key(run: dict) -> tuple[str, str, int]:
    return run["search"], run["set"], run["seed"]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--searches", nargs="+", default=list(SEARCHES))
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--channels", type=int, default=4)
    parser.add_argument("--cells", type=int, default=5)
    parser.add_argument("--arch-lr", type=float, default=0.02, help="larger than usual: the run is short")
    parser.add_argument("--results", type=Path, default=Path("outputs/collapse.jsonl"))
    return parser.parse_args()


def search(name: str, ops: str, seed: int, options: argparse.Namespace) -> dict:
    """Return the derived normal cell, or the message if the strategy does not support the space."""
    paper, *parts = name.split()
    words = [f"experiment=robust_darts_{ops}", f"strategy={paper}", *parts, f"seed={seed}", "run=outputs"]
    words += [f"dataset.root={options.data / 'cifar10'}", f"dataset.subset={options.images}"]
    words += [f"dataset.batch_size={options.batch}", f"supernet.cells={options.cells}"]
    words += [f"supernet.channels={options.channels}"]
    if paper != "gaea":  # whose rate is for exponentiated gradients
        words.append(f"strategy.arch_lr={options.arch_lr}")
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        cfg = compose("search", words)
    pl.seed_everything(seed, verbose=False)
    ours = searched_parts(cfg)
    try:
        strategy = ours.build(factory_of(cfg.strategy))
    except InputError as error:
        return {"refused": str(error)}
    derivation = ours.build(factory_of(cfg.derivation)) if cfg.derivation else None
    start = time.process_time()
    quiet_trainer(options.epochs).fit(strategy, ours.data)
    genotype = (derivation(strategy, ours.data) if derivation else strategy.derive())[0]
    seconds = round(time.process_time() - start)
    return {"operations": [edge.op for edge in genotype["normal"].edges], "seconds": seconds}


def report(runs: list[dict], options: argparse.Namespace) -> None:
    print(f"\n| search | {' | '.join(ops.upper() for ops in options.sets)} | seconds |")
    print("|---|" + "---|" * (len(options.sets) + 1))
    for name in options.searches:
        mine = [run for run in runs if run["search"] == name]
        cells = [shares([run for run in mine if run["set"] == ops]) for ops in options.sets]
        seconds = [run["seconds"] for run in mine if "seconds" in run]
        mean = f"{statistics.mean(seconds):.0f}" if seconds else "–"
        print(f"| {name} | {' | '.join(cells)} | {mean} |")


def shares(runs: list[dict]) -> str:
    """Return the share of operations without parameters, mean ± std; a dash if the search is refused."""
    found = [run["operations"] for run in runs if "operations" in run]
    idle = [sum(not has_parameters(op) for op in ops) / len(ops) for ops in found]
    return mean_with_deviation(idle, 2) if idle else "–"


if __name__ == "__main__":
    main()
