"""Networks that studies train, and tables of short trainings."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn

from nas_lightning.backends import Backend, is_alone, spread
from nas_lightning.callbacks.checkpoints import StepCheckpoint, resume_callbacks
from nas_lightning.callbacks.guards import DivergenceGuard
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.metrics.pool import PoolFile
from nas_lightning.objectives.counts import count_parameters
from nas_lightning.objectives.short_training import ShortTraining
from nas_lightning.objectives.table_formats import SECONDS
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.studies.scoring import ParallelStudy, draw_genotypes, estimate, spearman
from nas_lightning.utils.devices import CPU, arithmetic
from nas_lightning.utils.files import replacing
from nas_lightning.utils.tables import Entry, Table
from nas_lightning.utils.text import duration
from nas_lightning.validation import PositiveFloat, PositiveInt, Seed, at_least, checked

if TYPE_CHECKING:
    from nas_lightning.training.retrain import Retrain


# Networks that a study trains; each is saved as soon as it is trained.

M = TypeVar("M", bound=nn.Module)
_STEPS = 50  # between checkpoints


def fit_quietly(
    trainer: Callable[..., pl.Trainer],
    module: pl.LightningModule,
    data: Any,
    callbacks: Sequence[pl.Callback] = (),
    checkpoint: Path | None = None,
    **options: Any,
) -> pl.Trainer:
    """Train without progress bar; raise if the training diverges.

    Args:
        trainer: builds a trainer.
        module: the module to train.
        data: the data module.
        callbacks: callbacks of the trainer.
        checkpoint: a file that is written every few steps, and where an interrupted training continues; None:
            no checkpoints.
        **options: further options of the trainer.
    """
    all_callbacks = [DivergenceGuard(), *callbacks]
    if checkpoint is not None:
        all_callbacks += [*resume_callbacks(), StepCheckpoint(checkpoint, _STEPS)]
    quiet = {"enable_progress_bar": False, "enable_checkpointing": False}
    fitted = trainer(**quiet, callbacks=all_callbacks, **options)
    fitted.fit(module, data, ckpt_path=checkpoint if checkpoint and checkpoint.is_file() else None)
    return fitted


def train_networks(
    genotypes: Sequence[Genotype],
    network: Callable[[Genotype], nn.Module],
    data: SearchData,
    retrain: Callable[[nn.Module], Retrain],
    trainer: Callable[..., pl.Trainer],
    folder: Path,
    seed: int,
) -> list[nn.Module]:
    """Train each architecture on all training images with its own seed, except those saved in the folder."""

    def train(module: nn.Module) -> nn.Module:
        training = retrain(module)
        fit_quietly(trainer, training, data.data)
        return training.network if training.average is None else training.average.module

    networks = []
    for number, genotype in enumerate(genotypes, 1):
        pl.seed_everything(seed + number, workers=True, verbose=False)
        name = f"network {number} of {len(genotypes)}"
        networks.append(train_once(network(genotype), train, folder / f"{number}.pt", name))
    return networks


def train_once(module: M, train: Callable[[M], nn.Module], path: Path, name: str) -> M:
    """Return the module with trained weights, in eval mode.

    Args:
        module: the module to train.
        train: trains it, and returns a module of the same shape with the weights to keep.
        path: file of the weights; if it exists, nothing is trained.
        name: name of the module for the screen.
    """
    if not path.is_file():
        start = time.monotonic()
        best = train(module)
        with replacing(path) as partial, partial.open("wb") as file:
            torch.save(best.state_dict(), file)
        print(f"trained {name} in {duration(time.monotonic() - start)}", flush=True)
    try:
        module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # torch raises many kinds of errors for a damaged file
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"Cannot read the weights of {name}: {reason:.200}", where=path) from None
    return module.eval()


# A table for a space without a benchmark: random architectures, each trained for some epochs.
#
# `cells.csv` of the run is a file for `benchmark=table`, so that `study=ranking` and `study=correlation` can
# judge rankings in such a space.

FILE = "cells.csv"


@checked
@dataclass(frozen=True, kw_only=True)
class ShortTrainings(ParallelStudy):
    """Train random architectures for some epochs, and write their accuracies on held-out images.

    Args:
        cells: number of architectures, drawn without repetition.
        epochs: epochs on the images of the weights' side.
        lr: initial learning rate.
        seed: seed of architectures, weights, and the order of images.
        workers, backend: processes that train, see `ParallelStudy`.

    >>> ShortTrainings.wants()
    {'space': True, 'network': True, 'data': True, 'folder': True, 'accelerator': False}
    """

    cells: Annotated[int, at_least(4)] = 40
    epochs: PositiveInt = 10
    lr: PositiveFloat = 0.1
    seed: Seed = 0

    def run(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        data: SearchData,
        folder: Path,
        accelerator: torch.device = CPU,
    ) -> Findings:
        """Draw, train, and write; correlate the accuracies with the number of parameters."""
        options: dict[str, Any] = {"epochs": self.epochs, "lr": self.lr, "seed": self.seed}
        training = ShortTraining(space, network, data, **options, device=accelerator)
        genotypes = draw_genotypes(space, self.cells, self.seed)
        accuracies = np.array(train_all(training, genotypes, folder / FILE, self.workers, self.backend))
        params = [count_parameters(network(genotype)) for genotype in genotypes]
        rows: list[Sequence[Entry]] = [
            ["accuracy, mean", float(accuracies.mean())],
            ["deviation", float(accuracies.std(ddof=1))],
            ["lowest", float(accuracies.min())],
            ["highest", float(accuracies.max())],
            ["ρ with the parameters", estimate(spearman, params, accuracies, seed=self.seed)],
        ]
        what = f"{self.cells} architectures of {space.name}, {self.epochs} epochs on {data.name}"
        return Findings([Table("accuracies", what, ["", "value"], rows, f"The table is {FILE}")])


def train_all(
    training: ShortTraining,
    genotypes: Sequence[Genotype],
    path: Path,
    workers: int = 1,
    backend: Backend = "processes",
) -> list[float]:
    """Return the accuracy of each in percent; train and append those that are not in the file."""
    column = f"{training.data.name}_valid"
    file = PoolFile(path, [column, SECONDS], settings_of(training))
    rows = file.read()
    wanted = {training.space.notation(genotype): genotype for genotype in genotypes}
    todo = [(name, genotype) for name, genotype in wanted.items() if name not in rows]
    sent = training if is_alone(workers, backend) else training.to_send()
    work = partial(train_timed, sent)
    done = spread(work, todo, workers=workers, backend=backend, device=training.device)
    for name, accuracy, seconds in done:
        rows[name] = {column: accuracy, SECONDS: seconds}
        file.append(name, rows[name])
        print(f"{sum(one in rows for one in wanted)} of {len(wanted)}: {accuracy:.2f} %", flush=True)
    return [rows[training.space.notation(genotype)][column] for genotype in genotypes]


def train_timed(training: ShortTraining, name: str, genotype: Genotype) -> tuple[str, float, float]:
    """Return the name, the accuracy, and the processor seconds."""
    start = process_time()
    accuracy = training(genotype)
    return name, accuracy, round(process_time() - start, 2)


def settings_of(training: ShortTraining) -> dict[str, Any]:
    """Return the settings that accuracies depend on; the network by the size of an example."""
    data, example = training.data, training.space.sample(torch.Generator().manual_seed(0))
    return {
        "space": training.space.name,
        "parameters": count_parameters(training.network(example)),
        "images": [len(data.train.samples), len(data.valid.samples)],
        "batch": data.batch_size,
        "epochs": training.epochs,
        "lr": training.lr,
        "seed": training.seed,
        "device": arithmetic(training.device),
    }
