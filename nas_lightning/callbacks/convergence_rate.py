"""The convergence rate of theorem 1 of PR-DARTS (arXiv:2006.16537), during a search."""

from __future__ import annotations

import pytorch_lightning as pl
import torch
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.spaces.group import Group, without_none
from nas_lightning.strategies.base import Strategy
from nas_lightning.strategies.oneshot.convergence_rate import check, convergence_rate


class ConvergenceRate(pl.Callback):
    """Logs, for every group and epoch, λ of theorem 1 relative to that of equal shares, and what drives it.

    `convergence_rate/<group>` is λ/λ₀, with λ₀ that of equal shares; `…/skip_<group>` and `…/conv_<group>`
    are the mean shares of skips on shared edges and of convolutions into the last node. Shares are those of
    the scores that the strategy derives from, among an edge's operations other than `none`: so strategies can
    be compared.

    >>> from nas_lightning.data import Fake, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.strategies import Darts
    >>> space, data = NasBench201(), SearchData(Fake(train_size=32))
    >>> search = Darts(space, space.supernet(in_channels=3, num_classes=4, channels=2, cells=1))
    >>> off = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    >>> quiet = {"accelerator": "cpu", **dict.fromkeys(off, False)}
    >>> trainer = pl.Trainer(max_epochs=1, callbacks=[ConvergenceRate()], **quiet)
    >>> trainer.fit(search, data)
    >>> [name for name in trainer.callback_metrics if name.startswith("convergence_rate")]
    ['convergence_rate/cell', 'convergence_rate/skip_cell', 'convergence_rate/conv_cell']
    """

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        strategy = _scoring(pl_module)
        for group in strategy.space.groups.values():
            check(group)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        strategy = _scoring(pl_module)
        rates = {}
        for name, scores in strategy.scores().items():
            group = strategy.space.groups[name]
            rate = convergence_rate(_shares(scores, group), group)
            equal = convergence_rate(_shares(torch.ones_like(scores), group), group)
            rates[f"convergence_rate/{name}"] = rate.value / equal.value
            rates[f"convergence_rate/skip_{name}"] = rate.skip
            rates[f"convergence_rate/conv_{name}"] = rate.conv
        pl_module.log_dict(rates, sync_dist=True)  # equal on all processes


def _shares(scores: Tensor, group: Group) -> Tensor:
    """Each operation's part of its edge, `none` aside: (edges, ops)."""
    left = without_none(scores, group)
    return left / left.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(scores.dtype).tiny)


def _scoring(module: pl.LightningModule) -> Strategy:
    if not isinstance(module, Strategy) or not module.scores():
        raise InputError(
            "expected a strategy that scores operations", got=type(module).__name__, where="ConvergenceRate"
        )
    return module
