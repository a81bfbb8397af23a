"""The share of skip connections in the derived cells over a search: DARTS, and PR-DARTS part by part.

    python -m reproductions.measurements.skip_share
        [--seeds 3] [--epochs 60] [--data ../shared/data --images 1000]

The question of figure 1 of PR-DARTS (arXiv:2006.16537), asked of our own runs: DARTS; gates with group
sparsity alone; gates with the path-depth term alone; both. The operations are none, skip connection and
separable 3×3 convolution, the space S3 in which DARTS is known to fill its cells with skips (Zela et al.,
arXiv:1909.09656); the images are scikit-learn's digits, or with --data those of CIFAR-10. Writes
docs/images/skip_share.png and .svg.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure

from benchmarks.timing import quiet_trainer
from nas_lightning.data import Cifar10, Digits, ImageData, SearchData
from nas_lightning.plots import save
from nas_lightning.spaces import DartsSpace
from nas_lightning.spaces.operations import SKIP
from nas_lightning.strategies import Darts, OneShot, PRDarts

OPS = ("none", SKIP, "sep_conv_3x3")
SHORT = {"tau_start": 1.0}  # at the paper's 10 the regularizers have no gradient, see docs/measurements.md
VARIANTS = {
    "DARTS": (Darts, {}),
    "gates, sparsity only": (PRDarts, {**SHORT, "lambda_path": 0.0}),
    "gates, path depth only": (PRDarts, {**SHORT, "lambda_skip": 0.0, "lambda_nonskip": 0.0}),
    "PR-DARTS: both": (PRDarts, SHORT),
}


class SkipShare(pl.Callback):
    """Records the share of skips in the normal cell after every epoch."""

    def __init__(self) -> None:
        self.shares: list[float] = []

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, OneShot)
        ops = [edge.op for edge in pl_module.derive()[0]["normal"].edges]
        self.shares.append(ops.count(SKIP) / len(ops))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with cifar10/train.tar")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--images", type=int, default=2000, help="images of CIFAR-10")
    parser.add_argument("--arch-lr", type=float, default=6e-3, help="larger than usual: the run is short")
    parser.add_argument("--results", type=Path, default=Path("outputs/skip_share.jsonl"))
    parser.add_argument("--figure", type=Path, default=Path("docs/images/skip_share"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    lines = options.results.read_text().splitlines() if options.results.is_file() else []
    done = {(item["variant"], item["seed"]): item["shares"] for item in map(json.loads, lines)}
    for seed in range(options.seeds):
        for variant in VARIANTS:
            if (variant, seed) not in done:
                done[variant, seed] = run(variant, seed, options)
                with options.results.open("a") as file:
                    line = {"variant": variant, "seed": seed, "shares": done[variant, seed]}
                    file.write(json.dumps(line) + "\n")
    curves = {v: [done[v, seed] for seed in range(options.seeds)] for v in VARIANTS}
    options.figure.parent.mkdir(parents=True, exist_ok=True)
    save(draw(curves), options.figure)
    for variant, runs in curves.items():
        last = [shares[-1] for shares in runs]
        print(f"{variant:20s} share of skips in the last normal cell: {statistics.mean(last):.2f} {last}")


def run(variant: str, seed: int, options: argparse.Namespace) -> list[float]:
    pl.seed_everything(seed, verbose=False)
    images: ImageData = Digits(batch_size=32, seed=seed)
    if options.data is not None:
        root = str(options.data / "cifar10")
        images = Cifar10(root=root, batch_size=32, subset=options.images, seed=seed)
    data = SearchData(images)
    space = DartsSpace(ops=OPS)
    supernet = space.supernet(in_channels=data.image[0], num_classes=10, channels=4, cells=5)
    make, settings = VARIANTS[variant]
    strategy = make(space, supernet, arch_lr=options.arch_lr, seed=seed, **settings)
    shares = SkipShare()
    quiet_trainer(options.epochs, callbacks=[shares]).fit(strategy, data)
    print(variant, seed, [round(share, 2) for share in shares.shares], flush=True)
    return shares.shares


def draw(curves: dict[str, list[list[float]]]) -> Figure:
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    colors = ("#222222", "#E69F00", "#56B4E9", "#009E73")
    for (variant, runs), color in zip(curves.items(), colors, strict=True):
        epochs = range(1, len(runs[0]) + 1)
        mean = [statistics.mean(values) for values in zip(*runs, strict=True)]
        axes.plot(epochs, mean, color=color, label=variant, linewidth=2)
        for run in runs:
            axes.plot(epochs, run, color=color, linewidth=0.6, alpha=0.35)
    axes.set(
        xlabel="epoch", ylabel="share of skip connections", ylim=(0, 1.1), yticks=[0, 0.25, 0.5, 0.75, 1]
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper right", ncols=2)
    return figure


if __name__ == "__main__":
    main()
