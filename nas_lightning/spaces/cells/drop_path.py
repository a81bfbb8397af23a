"""Dropping paths at a rate that changes while a network trains, compiled or not."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DropPath(nn.Module):
    """Drops an operation's output from some images and scales it for the others (arXiv:1605.07648).

        y = x · m / (1 − p),  m ~ Bernoulli(1 − p) for each image

    As timm's, but its rate p is a tensor: a compiled network is not compiled again when the rate changes,
    only when it starts to drop at all.

    Args:
        drop_prob: p.

    >>> _ = torch.manual_seed(0)
    >>> DropPath(0.5)(torch.ones(4, 1, 1, 1)).flatten()
    tensor([0., 2., 0., 0.])
    """

    rate: Tensor

    def __init__(self, drop_prob: float = 0.0) -> None:
        super().__init__()
        self.register_buffer("rate", torch.zeros(()), persistent=False)
        self.drop_prob = drop_prob

    @property
    def drop_prob(self) -> float:
        """p, which may be set at any time."""
        return self._drop_prob

    @drop_prob.setter
    def drop_prob(self, value: float) -> None:
        self._drop_prob, self.active = value, value > 0
        self.rate.fill_(value)

    def forward(self, x: Tensor) -> Tensor:  # (b, …) → the same shape
        if not (self.training and self.active):
            return x
        shape = (len(x), *[1] * (x.ndim - 1))
        kept = torch.rand(shape, device=x.device) >= self.rate
        return x * (kept / (1 - self.rate)).to(x.dtype)

    def extra_repr(self) -> str:
        return f"drop_prob={self.drop_prob:.3f}"
