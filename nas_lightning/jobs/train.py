"""Train an architecture: build its network, fit, test once, and write the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from torch import nn

from nas_lightning.callbacks import OutputRecorder
from nas_lightning.data import ExternalData, ImageData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.jobs.measurements import check_steps, last_metrics, stopwatch_of
from nas_lightning.jobs.parts import Parts
from nas_lightning.jobs.predict import describe_test
from nas_lightning.models.file import FILE_NAME as MODEL
from nas_lightning.models.file import (
    Description,
    describe,
    description,
    materialize,
    take_weights_over,
    write,
)
from nas_lightning.objectives.counts import Cost, cost
from nas_lightning.runs.facts import RunFacts
from nas_lightning.runs.folder import RunFolder
from nas_lightning.tasks import task_of
from nas_lightning.training.retrain import Retrain, check_forward, freeze_unused


class Training(NamedTuple):
    """A prepared training.

    Args:
        genotype: the architecture.
        module: the LightningModule that trains its network.
        described: the description in the model's file.
        size: parameters and multiply-adds of the network.
        new_classifier: whether the classifier of the pretrained network was replaced.
    """

    genotype: Genotype
    module: Retrain
    described: Description
    size: Cost
    new_classifier: bool = False


def train(
    genotype: Genotype,
    parts: Parts[ImageData | ExternalData],
    trainer: pl.Trainer | None = None,
    *,
    pretrained: str | Path | None = None,
    checkpoint: str | Path | None = None,
    overrides: Sequence[str] = (),
) -> RunFacts:
    """Train an architecture, and write its model to the folder.

    Args:
        genotype: the architecture.
        parts: space, images, sizes of the network, recipe, seed, and folder of the run.
        trainer: fits and tests. Default: `parts.trainer()`.
        pretrained: the run of a training, or its model's file, whose weights the training starts from.
        checkpoint: the checkpoint of a stopped run to resume.
        overrides: the overrides of the run, for its summary.

    >>> from functools import partial
    >>> from tempfile import TemporaryDirectory
    >>> from nas_lightning.data import Fake
    >>> from nas_lightning.spaces import NasBench201
    >>> quiet = {f"enable_{what}": False for what in ("progress_bar", "model_summary", "checkpointing")}
    >>> sizes, recipe = {"channels": 2, "cells": 1}, partial(Retrain, drop_path=0.0)
    >>> with TemporaryDirectory() as folder:
    ...     parts = Parts(NasBench201(), Fake(), Path(folder), network_sizes=sizes, recipe=recipe)
    ...     genotype = parts.space.sample(torch.Generator().manual_seed(0))
    ...     trainer = pl.Trainer(max_epochs=1, limit_train_batches=1, logger=False, **quiet)
    ...     facts = train(genotype, parts, trainer)
    ...     describe(folder).genotype == genotype
    True
    """
    return fit(prepare_training(genotype, parts, pretrained), parts, trainer, checkpoint, overrides)


def prepare_training(
    genotype: Genotype, parts: Parts[ImageData | ExternalData], pretrained: str | Path | None = None
) -> Training:
    """Build the network and its LightningModule, and check that they fit the data.

    Args:
        genotype: the architecture.
        parts: see `train`.
        pretrained: see `train`.
    """
    space, data = parts.space, parts.data
    network = parts.network(genotype)
    materialize(network, data.image)
    described = description(
        space, genotype, parts.network_sizes, data.image, data.classes, data.mean, data.std
    )
    task = task_of(network)
    described = replace(described, task=task.name, dense=task.dense)
    described.check(network)
    check_forward(network, data.image, data.num_classes)
    new_classifier = pretrained is not None and not start_from(pretrained, network, described)
    module: Any = parts.retrain(network)
    data.setup("fit")
    size = cost(network, data.image)
    freeze_unused(network, data.image)
    return Training(genotype, module, described, size, new_classifier)


def start_from(pretrained: str | Path, network: nn.Module, described: Description) -> bool:
    """Load the weights of a trained network; return whether its classifier fits, too."""
    channels = describe(pretrained).image[0]
    if channels != described.image[0]:
        raise InputError(
            f"The images must have {channels} channels, as those of `pretrained`", got=described.image[0]
        )
    return take_weights_over(network, pretrained, described.classes, **described.own)


def fit(
    training: Training,
    parts: Parts[ImageData | ExternalData],
    trainer: pl.Trainer | None = None,
    checkpoint: str | Path | None = None,
    overrides: Sequence[str] = (),
) -> RunFacts:
    """Fit and test a prepared training, and write its model; see `train` for the arguments."""
    folder, (genotype, module, described, size, _) = RunFolder(parts.folder), training
    trainer = trainer or parts.trainer()
    stopwatch = stopwatch_of(trainer)
    trainer.fit(module, parts.data, ckpt_path=checkpoint)
    stopwatch.go_on()
    check_steps(trainer)
    use_best(module, folder.best_checkpoint)
    trainer.test(module, parts.data, verbose=False)
    outputs = [callback.collect() for callback in trainer.callbacks if isinstance(callback, OutputRecorder)]  # type: ignore[attr-defined]
    facts = RunFacts(
        "training",
        seed=parts.seed,
        metrics=last_metrics(trainer, parts.folder),
        seconds=round(stopwatch.seconds(), 1),
        overrides=tuple(overrides),
        space=parts.space.name,
        space_settings=parts.space.settings.to_dict(),
        dataset=parts.data.name,
        params=size.params,
        macs=size.macs,
        notation=(parts.space.notation(genotype),),
    )
    if trainer.is_global_zero:
        write(tested_network(module), parts.folder / MODEL, described)
        for found in outputs:
            if found is not None:
                describe_test(parts.folder, parts.data, *found)
        folder.finish(facts, [genotype])
    return facts


def use_best(module: Retrain, path: Path) -> None:
    """Load the weights of the best validation accuracy, if the run validates; else keep the last ones."""
    if path.is_file():
        module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True)["state_dict"])


def tested_network(module: Retrain) -> nn.Module:
    """Return the network with the tested weights: the moving average, if there is one."""
    return module.network if module.average is None else module.average.module
