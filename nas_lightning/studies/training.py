"""Networks that a study trains; each is kept in a file as soon as it is trained."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytorch_lightning as pl
import torch
from torch import nn

from nas_lightning.data import SearchData
from nas_lightning.files import replacing
from nas_lightning.genotype import Genotype

if TYPE_CHECKING:
    from nas_lightning.training.retrain import Retrain

QUIET = {"enable_progress_bar": False, "enable_checkpointing": False}


def train_networks(
    genotypes: Sequence[Genotype],
    network: Callable[[Genotype], nn.Module],
    data: SearchData,
    retrain: Callable[[nn.Module], Retrain],
    trainer: Callable[..., pl.Trainer],
    folder: Path,
    seed: int,
) -> list[nn.Module]:
    """Train each on all training images, from its own seed; what is in the folder is not trained again."""
    found = []
    for number, genotype in enumerate(genotypes, 1):
        path = folder / f"{number}.pt"
        new = not path.is_file()
        if new:
            start = time.monotonic()
            pl.seed_everything(seed + number, workers=True, verbose=False)
            module = retrain(network(genotype))
            trainer(**QUIET).fit(module, data.data)
            trained = module.network if module.average is None else module.average.module
            keep(trained, path)
            seconds = time.monotonic() - start
            print(f"trained network {number} of {len(genotypes)} in {seconds:.0f} s", flush=True)
        found.append(restore(network(genotype), path))
    return found


def keep(module: nn.Module, path: Path) -> None:
    """Write the weights, complete or not at all."""
    with replacing(path) as partial:
        torch.save(module.state_dict(), partial)


def restore(module: nn.Module, path: Path) -> nn.Module:
    """The module with the weights in the file, in eval mode."""
    module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return module.eval()
