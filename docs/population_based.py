"""Population-based training (Jaderberg et al. 2017, arXiv:1711.09846) of a search, by Ray Tune.

python docs/population_based.py --folder outputs/population --members 4 --epochs 8

A population searches at once. After each epoch the worst take over the checkpoint of one of the best, with a
weight decay that is perturbed. What a plain sweep varies stays as it is for a whole run; for that there are
`-m` and `sweeper=optuna`, which need no Ray.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint
from ray import tune
from ray.tune.schedulers import PopulationBasedTraining

from nas_lightning.data import Digits, SearchData
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import Darts

METRIC, CHECKPOINT = "valid_accuracy", "last.ckpt"
SIZES = {"in_channels": 1, "num_classes": 10, "channels": 4, "cells": 1}


class Member(Checkpoint):
    """What its population decides reaches the optimizer; what it has come to is reported after each epoch.

    Args:
        weight_decay: of the weights, in place of the checkpoint's.
    """

    def __init__(self, weight_decay: float) -> None:
        self.weight_decay = weight_decay

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for group in trainer.optimizers[0].param_groups:
            group["weight_decay"] = self.weight_decay

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        numbers = {METRIC: float(trainer.callback_metrics[METRIC]), "epoch": trainer.current_epoch}
        with TemporaryDirectory() as folder:
            trainer.save_checkpoint(Path(folder) / CHECKPOINT)
            tune.report(numbers, checkpoint=tune.Checkpoint.from_directory(folder))


def search(config: dict[str, Any]) -> None:
    """A member's search, from the checkpoint that it has been given."""
    pl.seed_everything(config["seed"], verbose=False)
    space, data = NasBench201(), SearchData(Digits(subset=config["images"], batch_size=32))
    strategy = Darts(space, space.supernet(**SIZES))
    quiet = {f"enable_{what}": False for what in ("progress_bar", "model_summary")}
    member = Member(config["weight_decay"])
    trainer = pl.Trainer(
        max_epochs=config["epochs"], callbacks=[member], accelerator="cpu", logger=False, **quiet
    )
    given = tune.get_checkpoint()
    if given is None:
        trainer.fit(strategy, data)
        return
    with given.as_directory() as folder:
        trainer.fit(strategy, data, ckpt_path=Path(folder) / CHECKPOINT)


def run_population(folder: Path, members: int, epochs: int, images: int) -> Any:
    """The results of all members."""
    space = {"weight_decay": tune.loguniform(1e-5, 1e-2), "seed": 0, "epochs": epochs, "images": images}
    scheduler = PopulationBasedTraining(
        perturbation_interval=1, hyperparam_mutations={"weight_decay": space["weight_decay"]}, synch=True
    )
    setting = tune.TuneConfig(scheduler=scheduler, metric=METRIC, mode="max", num_samples=members)
    place = tune.RunConfig(name="population", storage_path=str(folder.absolute()), verbose=0)
    return tune.Tuner(search, param_space=space, tune_config=setting, run_config=place).fit()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("outputs/population"))
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--images", type=int, default=400)
    options = parser.parse_args()
    results = run_population(options.folder, options.members, options.epochs, options.images)
    for member in results:
        if member.error is not None:
            raise member.error
        print(f"{METRIC} {member.metrics[METRIC]:.3f}, weight decay {member.config['weight_decay']:.2g}")
