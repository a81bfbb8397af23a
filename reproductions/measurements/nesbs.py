"""The samplers of NESBS at the same budget, from one trained supernet per seed.

    python -m reproductions.measurements.nesbs
        [--seeds 3] [--data ../shared/data --images 5000] [--retrain 20]

SVGD-RD with δ by grid (with Σ = |O| I, and with Σ by the number of candidates) and by Optuna, Monte Carlo,
uniform random sets (URS) and NES-RS each judge 15 architectures (T = 5 sets of n = 3, NES-RS a pool of 15)
with inherited weights. The images are the embedded digits, or CIFAR-10's where --data has them. Errors are
those on the validation images, which the sets were selected on, and on the test images, with inherited
weights; with --retrain also after training every member alone for so many epochs, on all training images.
Mean ± standard deviation over the seeds come last. Every seed and sampler is one line of --results; a second
call continues there.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path

import pytorch_lightning as pl
import torch

from benchmarks.timing import quiet_trainer
from nas_lightning.data import Cifar10, Digits, SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.inherited import Batch, InheritedWeights, averaged_loss
from nas_lightning.runs.facts import mean_with_deviation
from nas_lightning.spaces import DartsSpace
from nas_lightning.strategies.nesbs.strategy import Nesbs
from nas_lightning.training.retrain import Retrain

DEFAULTS = {"delta": "grid", "svgd_variance": "operations"}
SAMPLERS = {
    "SVGD-RD, δ by grid": {"sampler": "svgd_rd"},
    "SVGD-RD, δ by grid, Σ by candidates": {
        "sampler": "svgd_rd",
        "svgd_variance": "candidates",
    },
    "SVGD-RD, δ by Optuna": {"sampler": "svgd_rd", "delta": "optuna"},
    "Monte Carlo": {"sampler": "monte_carlo"},
    "uniform sets (URS)": {"sampler": "uniform"},
    "NES-RS": {"sampler": "nes_rs"},
}
COLUMNS = {
    "valid_loss": "validation loss",
    "valid_error": "validation error",
    "test_error": "test error",
    "best_member_error": "its best member's",
    "retrained_error": "test error, retrained",
    "retrained_best_error": "its best member's",
}


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    lines = options.results.read_text(encoding="utf-8").splitlines() if options.results.is_file() else []
    rows = [json.loads(line) for line in lines]
    for seed in range(options.seeds):
        done = {row["sampler"] for row in rows if row["seed"] == seed}
        if done >= set(SAMPLERS):
            continue
        strategy, data = train_posterior(seed, options)
        for name in [name for name in SAMPLERS if name not in done]:
            row = {"sampler": name, "seed": seed, **judge_sampler(strategy, data, name, options)}
            rows.append(row)
            print({key: value for key, value in row.items() if key != "members"}, flush=True)
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    report([row for row in rows if row["seed"] < options.seeds])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=None, help="folder with cifar10/; default: the digits")
    parser.add_argument(
        "--images", type=int, default=5000, help="images of CIFAR-10, of training and of test"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=40, help="epochs of supernet and posterior together")
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--cells", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.025)
    parser.add_argument("--arch-lr", type=float, default=0.1, help="larger than usual: the run is short")
    parser.add_argument("--retrain", type=int, default=0, help="epochs of every member; 0: none")
    parser.add_argument("--results", type=Path, default=Path("outputs/nesbs.jsonl"))
    return parser.parse_args()


def train_posterior(seed: int, options: argparse.Namespace) -> tuple[Nesbs, SearchData]:
    """Train a supernet and its posterior."""
    pl.seed_everything(seed, verbose=False)
    images = {"batch_size": options.batch, "seed": seed}
    if options.data is None:
        data = SearchData(Digits(**images), train_fraction=0.7)
    else:
        root = str(options.data / "cifar10")
        data = SearchData(Cifar10(root=root, subset=options.images, **images), train_fraction=0.7)
    space = DartsSpace()
    supernet = space.supernet(
        in_channels=data.image[0],
        num_classes=data.num_classes,
        channels=options.channels,
        cells=options.cells,
        partial=2,
    )
    rates = {"lr": options.lr, "lr_min": 0.0, "arch_lr": options.arch_lr}
    strategy = Nesbs(space, supernet, data, seed=seed, **rates)
    start = time.process_time()
    quiet_trainer(options.epochs).fit(strategy, data)
    seconds = time.process_time() - start
    print(f"seed {seed}: {seconds:.0f} s, KL(p ‖ uniform) {strategy.kl().item():.2f}", flush=True)
    return strategy, data


def judge_sampler(strategy: Nesbs, data: SearchData, name: str, options: argparse.Namespace) -> dict:
    """Return the set that a sampler selects, and its errors."""
    strategy.sampling = dataclasses.replace(strategy.sampling, **(DEFAULTS | SAMPLERS[name]))
    start = time.process_time()
    strategy.select()
    seconds = time.process_time() - start
    best = min(strategy.rounds_done, key=lambda done: done.loss)
    batches = list(data.data.test_dataloader())
    test = InheritedWeights(strategy.space, strategy.supernet, batches).judge(best.members)
    row = {
        "seconds": round(seconds, 1),
        "delta": best.delta,
        "valid_loss": best.loss,
        "valid_error": error(best.accuracy),
        "test_error": error(test.accuracy),
        "best_member_error": error(max(test.member_accuracies)),
        "members": [strategy.space.notation(member) for member in best.members],
    }
    if options.retrain:
        row |= train_sets(strategy, data, best.members, batches, options.retrain)
    return row


def train_sets(
    strategy: Nesbs, data: SearchData, members: tuple[Genotype, ...], batches: list[Batch], epochs: int
) -> dict[str, float]:
    """Return test errors of the averaged prediction and of the best member, after training each alone."""
    predictions = []
    for number, member in enumerate(members):
        pl.seed_everything(number, verbose=False)
        network = strategy.space.network(
            member, in_channels=data.image[0], num_classes=data.num_classes, channels=16, cells=5
        )
        module = Retrain(network, data.num_classes, drop_path=0.0)
        quiet_trainer(epochs).fit(module, data.data.train_dataloader())
        module.eval()
        with torch.no_grad():
            predictions.append(torch.cat([module(x).softmax(dim=1) for x, _ in batches]))
    probabilities, labels = torch.stack(predictions), torch.cat([y for _, y in batches])
    right = [(p.argmax(dim=1) == labels).float().mean().item() for p in probabilities]
    together = (probabilities.mean(dim=0).argmax(dim=1) == labels).float().mean().item()
    return {
        "retrained_loss": float(averaged_loss(probabilities, labels)),
        "retrained_error": error(together),
        "retrained_best_error": error(max(right)),
    }


def error(accuracy: float) -> float:
    """Return the error in percent."""
    return 100 * (1 - accuracy)


def report(rows: list[dict]) -> None:
    columns = {key: title for key, title in COLUMNS.items() if all(key in row for row in rows)}
    print("\n| sampler | " + " | ".join(columns.values()) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for name in SAMPLERS:
        of_sampler = [row for row in rows if row["sampler"] == name]
        cells = [
            mean_with_deviation([row[key] for row in of_sampler], 3 if "loss" in key else 2)
            for key in columns
        ]
        print(f"| {name} | {' | '.join(cells)} |")
    for of_set, of_member in (
        ("test_error", "best_member_error"),
        ("retrained_error", "retrained_best_error"),
    ):
        if of_set in columns:
            wins = sum(row[of_set] < row[of_member] for row in rows)
            print(f"{of_set.replace('_', ' ')}: below that of the best member in {wins} of {len(rows)}")


if __name__ == "__main__":
    main()
