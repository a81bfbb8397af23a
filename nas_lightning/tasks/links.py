"""From outputs to predictions: probabilities or numbers, and what several networks predict together.

>>> import torch
>>> z = torch.tensor([[[0.0, 2.0]], [[1.0, -1.0]]])  # (members, b, outputs)
>>> link = SOFTMAX
>>> torch.allclose(link.predict(link.combine(z)), (link.predict(z[0]) + link.predict(z[1])) / 2)
True
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Link:
    """What outputs say.

    Args:
        predict: outputs (b, outputs, …) → predictions.
        combine: outputs (members, b, outputs, …) → those whose prediction is the mean of the members'.
    """

    predict: Callable[[Tensor], Tensor]
    combine: Callable[[Tensor], Tensor]


def _combine_softmax(z: Tensor) -> Tensor:
    # ln 1/n Σ_A softmax z_A
    return z.log_softmax(dim=2).logsumexp(dim=0) - math.log(len(z))


def _combine_sigmoid(z: Tensor) -> Tensor:
    # ln p/(1 − p), p = 1/n Σ_A σ(z_A) and 1 − σ(z) = σ(−z)
    return F.logsigmoid(z).logsumexp(dim=0) - F.logsigmoid(-z).logsumexp(dim=0)


SOFTMAX = Link(lambda z: z.softmax(dim=1), _combine_softmax)
SIGMOID = Link(lambda z: z.sigmoid(), _combine_sigmoid)
IDENTITY = Link(lambda z: z, lambda z: z.mean(dim=0))
