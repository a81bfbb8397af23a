"""A warning when a search collapses to skip connections, DARTS' best-known failure.

Skips let gradients flow and win while the other operations are still untrained: DARTS+ (Liang et al. 2019,
arXiv:1909.06035) and P-DARTS (Chen et al. 2019, arXiv:1904.12760) allow two of the
eight edges of a normal cell, and DARTS+ stops the search there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, cast

import pytorch_lightning as pl
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.checks import PositiveInt, above, at_most, checked
from nas_lightning.genotype import Cell, Genotype
from nas_lightning.spaces.ops import NONE, SKIP

if TYPE_CHECKING:
    from nas_lightning.strategies.base import Strategy

log = logging.getLogger(__name__)


class CollapseWarning(pl.Callback):
    """Logs `skip_share` after every epoch and warns, once, when a cell consists of too many skips.

    `skip_share` is the share of skips among the operations of a cell other than `none`, in the cell where it
    is largest. Published cells stay below one half (DARTS' first: 3 of 8), which is the default. The rule of
    DARTS+ is `threshold=0.25, patience=1, stop=True`. The warning is a line of this module's log.

    Args:
        threshold: the share from which a cell counts as collapsed.
        patience: epochs in a row that it takes.
        stop: end the search, instead of going on after the warning.

    >>> rule_of_darts_plus = CollapseWarning(threshold=0.25, patience=1, stop=True)
    >>> rule_of_darts_plus.state_dict()
    {'epochs': 0, 'warned': False}
    """

    @checked
    def __init__(
        self,
        threshold: Annotated[float, above(0), at_most(1)] = 0.5,
        patience: PositiveInt = 3,
        stop: bool = False,
    ) -> None:
        self.threshold, self.patience, self.stop = threshold, patience, stop
        self.epochs = 0  # in a row
        self.warned = False

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        strategy = cast("Strategy", pl_module)
        if not strategy.scores():  # whole architectures are compared; none of their operations takes over
            return
        share = skip_share(strategy.derive())
        pl_module.log("skip_share", share, sync_dist=True)  # equal on all processes
        self.epochs = self.epochs + 1 if share >= self.threshold else 0
        if self.epochs >= self.patience:
            if not self.warned:
                self._warn(share, trainer.current_epoch)
            self.warned = True
            trainer.should_stop = trainer.should_stop or self.stop

    @rank_zero_only
    def _warn(self, share: float, epoch: int) -> None:
        advice = "the search stops" if self.stop else "callbacks.collapse.stop=true ends such a search"
        log.warning(
            "The search may be collapsing: %.0f %% of a cell's operations are skips after %d epochs; %s.",
            100 * share,
            epoch + 1,
            advice,
        )

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": self.epochs, "warned": self.warned}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epochs, self.warned = state_dict["epochs"], state_dict["warned"]


def skip_share(genotypes: Iterable[Genotype]) -> float:
    """The share of skips among the operations that compute something, in the cell where it is largest.

    >>> cell = Cell([("skip_connect", 0, 1), ("none", 0, 2), ("nor_conv_3x3", 1, 2)], inputs=1, output=[2])
    >>> skip_share([Genotype("nasbench201", {"cell": cell})])
    0.5
    """
    return max(_share(cell) for genotype in genotypes for _, cell in genotype)


def _share(cell: Cell) -> float:
    ops = [edge.op for edge in cell.edges if edge.op != NONE]
    return ops.count(SKIP) / len(ops) if ops else 0.0
