"""Networks that a study trains; each is kept in a file as soon as it is trained."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytorch_lightning as pl
import torch
from torch import nn

from nas_lightning.callbacks.divergence_guard import DivergenceGuard
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.files import replacing
from nas_lightning.genotype import Genotype
from nas_lightning.text import duration

if TYPE_CHECKING:
    from nas_lightning.training.retrain import Retrain

M = TypeVar("M", bound=nn.Module)


def fit_quietly(
    trainer: Callable[..., pl.Trainer], module: pl.LightningModule, data: Any, **options: Any
) -> pl.Trainer:
    """Train with nothing on the screen and no checkpoints; what diverges is an error, and nothing to judge.

    Args:
        trainer: builds one.
        module: what is trained.
        data: what on.
        **options: of the trainer.
    """
    quiet = {"enable_progress_bar": False, "enable_checkpointing": False}
    fitted = trainer(**quiet, callbacks=[DivergenceGuard()], **options)
    fitted.fit(module, data)
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
    """Train each on all training images, from its own seed; what is in the folder is not trained again."""

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
    """The module with the weights that `train` came to, in eval mode.

    Args:
        module: what is trained.
        train: returns the module with the weights to keep, of the same shape.
        path: their file, complete or not there; where it is, nothing is trained.
        name: of the module, for the screen.
    """
    if not path.is_file():
        start = time.monotonic()
        best = train(module)
        with replacing(path) as partial, partial.open("wb") as file:
            torch.save(best.state_dict(), file)
        print(f"trained {name} in {duration(time.monotonic() - start)}", flush=True)
    try:
        module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # torch raises whatever the bytes lead it to
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"expected the weights of {name}: {reason:.200}", where=path) from None
    return module.eval()
