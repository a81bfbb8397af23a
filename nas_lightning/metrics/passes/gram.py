"""Products of the rows of a Jacobian, in float64 where they are added up."""

from __future__ import annotations

import torch
from torch import Tensor

_BLOCK = 8192  # columns whose products are added up in the network's precision before float64 takes over
_ROWS = 128  # of a product: small enough to leave out nearly half of a large kernel


def gram(rows: Tensor) -> Tensor:
    """G Gᵀ in float64, added up in blocks of columns; a complex column is two real ones.

    >>> gram(torch.tensor([[1.0, 2.0], [0.0, 3.0]]))
    tensor([[5., 6.],
            [6., 9.]], dtype=torch.float64)
    """
    rows = _real(rows)
    total = rows.new_zeros(len(rows), len(rows), dtype=torch.float64)
    for block in rows.split(_BLOCK, dim=1):
        for start in range(0, len(rows), _ROWS):  # the lower triangle is the upper one's
            total[start : start + _ROWS, start:] += block[start : start + _ROWS] @ block[start:].T
    return total.triu() + total.triu(1).T


def squared_norms(rows: Tensor) -> Tensor:
    """The diagonal of G Gᵀ.

    >>> squared_norms(torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([25.,  1.], dtype=torch.float64)
    """
    rows = _real(rows)
    return torch.stack([block.square().sum(dim=1).double() for block in rows.split(_BLOCK, dim=1)]).sum(dim=0)


def _real(rows: Tensor) -> Tensor:
    return torch.view_as_real(rows).flatten(1) if rows.is_complex() else rows
