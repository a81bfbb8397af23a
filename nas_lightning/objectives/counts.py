"""Parameters and multiply-adds of a network, counted without running it where its shapes suffice."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from nas_lightning.spaces.fixed import check_callable


class Cost(NamedTuple):
    """What a network weighs, for one image.

    Args:
        params: trainable parameters.
        macs: multiply-adds of the forward pass.

    >>> str(Cost(params=24, macs=384))
    '24 parameters, 384 multiply-adds'
    """

    params: int
    macs: int

    def __str__(self) -> str:
        return f"{self.params:,} parameters, {self.macs:,} multiply-adds"


def count_parameters(network: nn.Module) -> int:
    """The parameters to train.

    >>> count_parameters(nn.Linear(3, 2))
    8
    """
    return sum(p.numel() for p in network.parameters() if p.requires_grad)


def cost(network: nn.Module, image: tuple[int, int, int]) -> Cost:
    """Trainable parameters, and multiply-adds of the forward pass of any module on one image of (c, h, w).

    >>> cost(nn.Conv2d(3, 8, 1, bias=False), (3, 4, 4))
    Cost(params=24, macs=384)
    """
    check_callable(network)
    try:
        macs = count_macs(copy.deepcopy(network).to("meta"), torch.empty(1, *image, device="meta"))
    except Exception:  # a network that decides by values, which shapes alone do not have
        with torch.random.fork_rng(devices=[]):
            macs = count_macs(copy.deepcopy(network).cpu(), torch.zeros(1, *image))
    return Cost(count_parameters(network), macs)


def count_macs(network: nn.Module, x: torch.Tensor) -> int:
    """The multiply-adds of x (b, c, h, w), for which the network is left in evaluation mode."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network.eval()(x)
    return counter.get_total_flops() // 2
