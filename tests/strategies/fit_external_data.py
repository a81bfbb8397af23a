"""Searches and trains on external data, and resumes within an epoch, as one of several processes."""

from pathlib import Path

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from nas_lightning.callbacks import DataLoaderState, RNGState
from nas_lightning.data import ExternalData, SearchData
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import Darts
from nas_lightning.training.retrain import Retrain
from tests.own_data import CHANNELS, CLASSES, TRAIN, VALID, OnlyLightning, Rows, loader
from tests.strategies.conftest import quiet_trainer, without_norms


class Sized(OnlyLightning):
    """Both sides have batches of the size."""

    def val_dataloader(self) -> DataLoader:
        return loader(self.parts[1], batch_size=self.size)


BATCH = 8  # of all processes together
STOP = 5  # of 8 steps
FORMS = {
    "module": lambda size: (Sized(batch_size=size),),
    "loaders": lambda size: (loader(TRAIN, batch_size=size), loader(VALID, batch_size=size)),
    "data sets": lambda size: (TRAIN, VALID),
    "streams": lambda size: (Rows(), Rows()),
}
SIZES = {"in_channels": CHANNELS, "num_classes": CLASSES, "channels": 2, "cells": 1}
CELL = "|nor_conv_3x3~0|+|none~0|nor_conv_1x1~1|+|skip_connect~0|none~1|avg_pool_3x3~2|"


class Seen(pl.Callback):
    """Which images a process was given, step by step."""

    def __init__(self, path: Path) -> None:
        self.images, self.path = [], path

    def on_train_batch_start(self, trainer, module, batch, batch_idx: int) -> None:
        x: Tensor = batch["train"][0] if isinstance(batch, dict) else batch[0]
        self.images.append(x.flatten(1).sum(1).double())

    def on_train_batch_end(self, trainer, *args) -> None:
        if trainer.global_step == STOP:
            trainer.save_checkpoint(self.path)


def options_of(form: str, size: int) -> dict:
    return {"batch_size": size} if form in ("data sets", "streams") else {}


def build_search(form: str, size: int):
    space = NasBench201()
    torch.manual_seed(0)
    strategy = without_norms(Darts(space, space.supernet(**SIZES)))
    return strategy, SearchData(*FORMS[form](size), num_classes=CLASSES, **options_of(form, size))


def build_training(form: str, size: int):
    space = NasBench201()
    torch.manual_seed(0)
    network = without_norms(space.network(space.parse(CELL), **SIZES))
    data = ExternalData(*FORMS[form](size), num_classes=CLASSES, **options_of(form, size))
    return Retrain(network, CLASSES, drop_path=0.0), data


def fit(build, form: str, world: int, path: Path) -> dict:
    """To the end, and again from within the second epoch."""
    end = {}
    devices = {"strategy": "ddp", "devices": world} if world > 1 else {}
    for name in ("whole", "resumed"):
        module, data = build(form, BATCH // world)
        seen = Seen(path)
        trainer = quiet_trainer(
            *(2, RNGState(), DataLoaderState(), seen),
            precision="64-true",
            use_distributed_sampler=False,
            **devices,
        )
        torch.manual_seed({"whole": 1, "resumed": 2}[name])
        trainer.fit(module, data, ckpt_path=path if name == "resumed" else None, weights_only=False)
        end[name] = {key: value for key, value in module.state_dict().items() if "scores" not in key}
        end[f"{name} images"] = seen.images
        end[f"{name} metrics"] = {
            key: float(value) for key, value in trainer.callback_metrics.items() if "loss" in key
        }
    return end


def fit_both(form: str, world: int, folder: Path) -> dict[str, dict]:
    """Fit a search and a training on external data of that form."""
    return {
        name: fit(build, form, world, folder / f"{name}_{form}_{world}.ckpt")
        for name, build in (("search", build_search), ("training", build_training))
    }
