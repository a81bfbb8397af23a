"""How far the architecture parameters' order agrees with that of the shared weights, during a search.

Roberts et al. 2022 ask when the order of the parameters is that of the losses with shared weights; here both
are measured: architectures are drawn, ordered by their likelihood under the parameters and by their
validation loss with the supernet's weights, and Kendall's τ between the two orders is logged.
"""

from __future__ import annotations

import time
from typing import Annotated

import pytorch_lightning as pl
import torch

from nas_lightning.checks import PositiveInt, Seed, at_least, checked
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.objectives.inherited import judge_genotype, kendall_tau, log_likelihood, place_batches
from nas_lightning.strategies.oneshot.strategy import OneShot


class SharedWeightRanking(pl.Callback):
    """Logs `ranking/kendall_tau` and what it cost, `ranking/seconds`, every so many epochs.

    Args:
        every_n_epochs: how often.
        architectures: how many are drawn; τ's standard deviation without agreement is about 2/(3√n).
        valid_batches: batches that each is judged on.
        seed: the same architectures are drawn each time.

    >>> callback = SharedWeightRanking(every_n_epochs=10, architectures=50)
    >>> round(2 / (3 * callback.architectures**0.5), 2)  # what of τ may be chance
    0.09
    """

    @checked
    def __init__(
        self,
        every_n_epochs: PositiveInt = 5,
        architectures: Annotated[int, at_least(2)] = 20,
        valid_batches: PositiveInt = 2,
        seed: Seed = 0,
    ) -> None:
        self.every_n_epochs, self.architectures = every_n_epochs, architectures
        self.valid_batches, self.seed = valid_batches, seed

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        _parts(trainer, pl_module)  # raises

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if (trainer.current_epoch + 1) % self.every_n_epochs:
            return
        strategy, data = _parts(trainer, pl_module)
        start = time.process_time()
        generator = torch.Generator().manual_seed(self.seed)
        drawn = [strategy.space.sample(generator) for _ in range(self.architectures)]
        batches = list(place_batches(strategy.supernet, data.valid_batches(self.valid_batches)))
        scores = strategy.scores()
        by_score = [log_likelihood(strategy.space, scores, genotype) for genotype in drawn]
        by_loss = [judge_genotype(strategy.space, strategy.supernet, g, batches).loss for g in drawn]
        pl_module.log("ranking/kendall_tau", kendall_tau(by_score, by_loss))
        pl_module.log("ranking/seconds", time.process_time() - start)


def _parts(trainer: pl.Trainer, module: pl.LightningModule) -> tuple[OneShot, SearchData]:
    data = trainer.datamodule  # type: ignore[attr-defined]
    if not isinstance(module, OneShot) or not module.arch_list or not isinstance(data, SearchData):
        raise InputError(
            "expected a one-shot strategy with architecture parameters that is fitted with SearchData",
            got=type(module).__name__,
            where="SharedWeightRanking",
        )
    return module, data
