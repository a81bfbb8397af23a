"""Zen-score: how much a network with Gaussian weights moves when its input does (arXiv:2102.01063)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.func import functional_call

from nas_lightning.checks import PositiveFloat, Seed, at_least, checked
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes import Passes
from nas_lightning.metrics.passes.blocks import Features
from nas_lightning.metrics.passes.initialise import LAYERS
from nas_lightning.metrics.passes.layers import BATCH_NORMS


@checked
@dataclass(frozen=True)
class Zen(Metric):
    """log E‖f(x) − f(x + αε)‖₁ + Σ_l ½ log mean_c σ²_lc, x, ε ~ N(0, 1) (Lin et al. 2021).

    f is the last feature map of the network with N(0, 1) weights: its own weights, each layer's divided by
    their root mean square, so that a Gaussian initialisation of any scale is one. σ² are the variances that
    batch norms divide by, which the sum puts back; nearly all of the score is in it. A batch norm whose input
    is constant, because no operation leads there, takes no part.

    Args:
        alpha: α.
        images: inputs, drawn in the shape of the batch's.
        seed: of the inputs.

    >>> import torch
    >>> from torch import nn
    >>> layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()
    >>> network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    >>> batch = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])
    >>> seeds = [Zen(seed=seed)(network, batch).item() for seed in (0, 0, 1)]
    >>> seeds[0] == seeds[1], seeds[0] == seeds[2]
    (True, False)
    """

    alpha: PositiveFloat = 0.01
    images: Annotated[int, at_least(2)] = 16
    seed: Seed = 0

    def compute(self, passes: Passes) -> float:
        generator = torch.Generator().manual_seed(self.seed)
        shape = (2, self.images, *passes.x.shape[1:])
        x, noise = torch.randn(shape, generator=generator).to(passes.x)
        weights = gaussian_weights(passes.network)
        with torch.no_grad(), _variances(passes.network) as variances:
            before = last_features(passes.network, weights, x)
            total = sum(0.5 * math.log(variance) for variance in map(float, variances) if variance > 0)
            after = last_features(passes.network, weights, x + self.alpha * noise)
        moved = (before - after).abs().flatten(1).sum(dim=1).double().mean()
        return _log(float(moved)) + total


def gaussian_weights(network: nn.Module) -> dict[str, Tensor]:
    """The weights of linear layers and convolutions with mean square 1; their biases 0."""
    weights = {}
    for name, module in network.named_modules():
        if isinstance(module, LAYERS):
            prefix = f"{name}." if name else ""
            weights[f"{prefix}weight"] = (
                module.weight.detach() / module.weight.detach().square().mean().sqrt()
            )
            if module.bias is not None:
                weights[f"{prefix}bias"] = torch.zeros_like(module.bias)
    return weights


def last_features(network: nn.Module, weights: dict[str, Tensor], x: Tensor) -> Tensor:
    """What the last block before the classifier returns; the logits of a network that has no other."""
    with Features(network, len(x)) as features:
        logits = functional_call(network, weights, (x,))
    return [*features.before(logits)[-1:], logits][0]


@contextmanager
def _variances(network: nn.Module) -> Iterator[list[Tensor]]:
    """The mean over channels of the variance of each batch norm's input, call by call."""
    variances: list[Tensor] = []

    def note(norm: nn.Module, args: tuple[Tensor, ...]) -> None:
        others = [axis for axis in range(args[0].dim()) if axis != 1]
        variances.append((args[0] - args[0].mean(dim=others, keepdim=True)).square().mean())

    norms = [module for module in network.modules() if isinstance(module, BATCH_NORMS)]
    handles = [norm.register_forward_pre_hook(note) for norm in norms]
    try:
        yield variances
    finally:
        for handle in handles:
            handle.remove()


def _log(value: float) -> float:
    return math.log(value) if value > 0 else (-math.inf if value == 0 else math.nan)
