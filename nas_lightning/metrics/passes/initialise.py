"""Initialisations that training-free metrics are defined for, drawn from a generator of their own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from nas_lightning.errors import InputError, near_match
from nas_lightning.metrics.passes.layers import BATCH_NORMS

Scheme = Literal["lecun", "kaiming", "xavier", "default"]

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def initialise(
    network: nn.Module, scheme: Scheme = "lecun", generator: torch.Generator | None = None
) -> None:
    """Draw the weights of linear layers and convolutions anew; batch norms start at scale 1, shift 0.

    - `lecun`: N(0, 1/fan_in), biases 0 (NASI, arXiv:2109.00817, section 3.1; thesis, section 7.6.5)
    - `kaiming`: N(0, 2/fan_in), biases 0 (He et al. 2015, arXiv:1502.01852)
    - `xavier`: N(0, 2/(fan_in + fan_out)), biases 0 (Glorot & Bengio 2010)
    - `default`: PyTorch's own, U(±1/√fan_in), biases too

    Parameters of other layers stay.
    """
    if scheme not in get_args(Scheme):
        raise InputError(f"expected a scheme ({near_match(scheme, get_args(Scheme))})", got=scheme)
    draw = _SCHEMES[scheme]
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, LAYERS):
                fan_in = module.weight[0].numel()
                fan_out = module.weight.numel() // fan_in * math.prod(module.weight.shape[2:])
                module.weight.copy_(draw(module.weight, fan_in, fan_out, generator))
                if module.bias is not None:
                    module.bias.zero_()
                    if scheme == "default":
                        module.bias.copy_(draw(module.bias, fan_in, fan_out, generator))
            elif isinstance(module, BATCH_NORMS):
                module.reset_parameters()


WeightRule = Callable[[Tensor, int, int, torch.Generator | None], Tensor]


def _normal(variance: Callable[[int, int], float]) -> WeightRule:
    def draw(like: Tensor, fan_in: int, fan_out: int, generator: torch.Generator | None) -> Tensor:
        return torch.randn(like.shape, generator=generator, dtype=like.dtype) * math.sqrt(
            variance(fan_in, fan_out)
        )

    return draw


def _uniform(like: Tensor, fan_in: int, fan_out: int, generator: torch.Generator | None) -> Tensor:
    return (2 * torch.rand(like.shape, generator=generator, dtype=like.dtype) - 1) / math.sqrt(fan_in)


_SCHEMES: dict[str, WeightRule] = {
    "lecun": _normal(lambda fan_in, fan_out: 1 / fan_in),
    "kaiming": _normal(lambda fan_in, fan_out: 2 / fan_in),
    "xavier": _normal(lambda fan_in, fan_out: 2 / (fan_in + fan_out)),
    "default": _uniform,
}
