"""How the batch norms of operations behave, in a search and in training."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Norm:
    """How the batch norms of a network behave.

    `affine` and `tracked` are torch's; `after_pool` adds one behind each pooling operation, which supernets
    need to keep the candidates of an edge on one scale and which derived networks leave out.

    Args:
        affine: whether they scale and shift.
        tracked: whether they keep running statistics.
        after_pool: whether there is one behind each pooling operation.

    >>> norm = Norm(affine=False)(8)
    >>> norm.affine, norm.track_running_stats
    (False, True)
    """

    affine: bool = True
    tracked: bool = True
    after_pool: bool = False

    def __call__(self, channels: int) -> nn.BatchNorm2d:
        return nn.BatchNorm2d(channels, affine=self.affine, track_running_stats=self.tracked)

    def outside_cells(self, channels: int) -> nn.BatchNorm2d:
        """The norms of stems and heads, which every path has in common, keep their parameters."""
        return nn.BatchNorm2d(channels, track_running_stats=self.tracked)


TRAIN_NORM = Norm()
# Paths share a supernet's norms: without parameters or running statistics none can spoil another's.
SEARCH_NORM = Norm(affine=False, tracked=False, after_pool=True)
