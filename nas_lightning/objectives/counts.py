"""Parameters and multiply-adds of a network, counted on the meta device if possible."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from nas_lightning.spaces.fixed import check_callable


class Cost(NamedTuple):
    """Parameters and multiply-adds of a network, for one image.

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
    """Count the trainable parameters.

    >>> count_parameters(nn.Linear(3, 2))
    8
    """
    return sum(p.numel() for p in network.parameters() if p.requires_grad)


def cost(network: nn.Module, image: tuple[int, int, int]) -> Cost:
    """Count the trainable parameters, and the multiply-adds of a forward pass on one image (c, h, w).

    >>> cost(nn.Conv2d(3, 8, 1, bias=False), (3, 4, 4))
    Cost(params=24, macs=384)
    """
    check_callable(network)
    try:
        macs = count_macs(copy.deepcopy(network).to("meta"), torch.empty(1, *image, device="meta"))
    except Exception:  # a network that needs values
        with torch.random.fork_rng(devices=[]):
            macs = count_macs(copy.deepcopy(network).cpu(), torch.zeros(1, *image))
    return Cost(count_parameters(network), macs)


def count_macs(network: nn.Module, x: torch.Tensor) -> int:
    """Count the multiply-adds of a forward pass of x (b, c, h, w); leaves the network in evaluation mode."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network.eval()(x)
    return counter.get_total_flops() // 2
