"""Metrics of activations: NASWOT, Jacobian covariance, SWAP, MeCo, Zen, and AZ-NAS."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.engine import Passes
from nas_lightning.metrics.layers import BATCH_NORMS
from nas_lightning.metrics.recording import LAYERS, Features, Needs
from nas_lightning.utils.devices import double
from nas_lightning.validation import PositiveFloat, PositiveInt, Seed, at_least, checked

# NASWOT (arXiv:2006.04647): the diversity of activation patterns.


@dataclass(frozen=True)
class Naswot(Metric):
    """ln |K|, K_ij = number of rectified units that agree on samples i and j (Mellor et al. 2021).

    K is summed over all rectifications, each counted once. The paper has ReLU; units of other activations
    agree if both samples lie in the same piece (LeakyReLU, PReLU, ReLU6, Hardswish, …), or on the same side
    of 0 for smooth gates (GELU, SiLU, Mish).

    >>> network = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    >>> batch = torch.tensor([[1.0, 2.0], [-1.0, -2.0]]), torch.tensor([0, 1])
    >>> _ = torch.nn.init.zeros_(network[0].bias)
    >>> round(Naswot()(network, batch).item(), 4)  # no unit agrees on x and −x: ln |diag(4, 4)|
    2.7726
    """

    needs: ClassVar[Needs] = Needs.RELU_CODES

    def compute(self, passes: Passes) -> Tensor:
        return torch.linalg.slogdet(passes.relu_kernel).logabsdet


# Jacobian covariance: the correlation of the gradients at the samples of a batch.

_K = 1e-5


@dataclass(frozen=True)
class Jacov(Metric):
    """−Σ_i (ln(σ_i + k) + 1/(σ_i + k)), k = 1e-5 (Mellor et al. 2020, first version of arXiv:2006.04647).

    σ are the eigenvalues of the correlation matrix of the rows ∂(Σ_c f_c)/∂x_i of a batch's samples.

    >>> network = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> batch = torch.randn(4, 6), torch.tensor([0, 1, 0, 1])
    >>> Jacov()(network, batch).item() < -4  # the value for four uncorrelated slopes
    True
    """

    never_positive: ClassVar[bool] = True  # ln z + 1/z is 1 or more

    def compute(self, passes: Passes) -> Tensor:
        return jacobian_score(double(passes.input_gradient.flatten(1)))


def jacobian_score(rows: Tensor) -> Tensor:
    """Return the score of the rows (m, inputs), NaN if a row is constant."""
    correlation = torch.corrcoef(rows)
    if not bool(torch.isfinite(correlation).all()):
        return rows.new_tensor(torch.nan)
    values = torch.linalg.eigvalsh(correlation).clamp(min=0) + _K
    return -(values.log() + 1 / values).sum()


# SWAP-Score (arXiv:2403.04161): the number of distinct activation patterns.

_BITS = 62  # of an integer


@checked
@dataclass(frozen=True)
class Swap(Metric):
    """|{(1[z_u(x_1) > 0], …, 1[z_u(x_n) > 0]) : u}| over all rectified units u (Peng et al. 2024).

    A unit with several pieces (ReLU6) has a pattern for each point between pieces, see `BREAKS`. The paper
    multiplies by a Gaussian of the parameter count, whose center and width follow from accuracies of trained
    networks; without those, also rank by `params`.

    Args:
        samples: n, the number of samples of the batch; with many, all patterns differ.

    >>> network = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    >>> _ = network[0].weight.data.copy_(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]))
    >>> _ = torch.nn.init.zeros_(network[0].bias)
    >>> batch = torch.tensor([[1.0, 2.0], [-1.0, -2.0]]), torch.tensor([0, 1])
    >>> Swap()(network, batch).item()  # active for x alone, and for −x alone
    2.0
    """

    samples: PositiveInt = 16
    needs: ClassVar[Needs] = Needs.RELU_PATTERNS

    def compute(self, passes: Passes) -> float:
        patterns = [active[: self.samples] for active in passes.relu_patterns]
        return distinct_columns(torch.cat(patterns, dim=1)) if patterns else 0


def distinct_columns(patterns: Tensor) -> int:
    """Return the number of distinct columns of a Boolean matrix (samples, units).

    >>> distinct_columns(torch.tensor([[True, False, True], [False, True, False]]))
    2
    """
    words = [_pack(word) for word in patterns.split(_BITS)]
    if len(words) == 1:
        return len(words[0].unique())
    return len(torch.stack(words, dim=1).unique(dim=0))


def _pack(bits: Tensor) -> Tensor:
    """Return the columns as integers: (≤ 62, units) → (units,)."""
    total = torch.zeros(bits.shape[1], dtype=torch.int64, device=bits.device)
    for row in bits:
        total = total.mul_(2).add_(row)
    return total


# MeCo (Jiang et al. 2023, NeurIPS): the independence of the channels of feature maps.


@checked
@dataclass(frozen=True)
class Meco(Metric):
    """Σ_l mean_i λ_min(P(z_l,i)), P the correlation of a map's channels over its positions.

    l runs over the convolutions. The paper has one image i; the mean over several is more stable. With fewer
    positions than channels P is singular and adds 0.

    Args:
        images: number of images of the batch.

    >>> import torch
    >>> from torch import nn
    >>> layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()
    >>> network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    >>> batch = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])
    >>> 0 < Meco(images=2)(network, batch).item() < 2  # of two convolutions, each below 1
    True
    """

    images: PositiveInt = 4
    needs: ClassVar[Needs] = Needs.OUTPUTS

    def compute(self, passes: Passes) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for layer, output in passes.outputs:
            if isinstance(layer, nn.Conv2d):
                total += least_correlation(output[: self.images]).cpu()
        return total


def least_correlation(maps: Tensor) -> Tensor:
    """Return the mean over m of λ_min of the channels' correlation, of (m, c, h, w); 0 if one is constant.

    >>> least_correlation(torch.tensor([1.0, 1, -1, -1, 1, -1, 1, -1]).reshape(1, 2, 2, 2))
    tensor(1., dtype=torch.float64)
    """
    rows = double(maps.flatten(2))  # (m, c, positions)
    if rows.shape[2] <= rows.shape[1]:  # the mean takes one dimension
        return rows.new_zeros(())
    rows = rows - rows.mean(dim=2, keepdim=True)
    norms = rows.norm(dim=2, keepdim=True)
    rows = rows / norms.where(norms > 0, 1.0)
    values = torch.linalg.eigvalsh(rows @ rows.transpose(1, 2))  # (m, c)
    return values[:, 0].clamp(min=0).mean()


# Zen-score (arXiv:2102.01063): the sensitivity of a network with Gaussian weights to its input.


@checked
@dataclass(frozen=True)
class Zen(Metric):
    """log E‖f(x) − f(x + αε)‖₁ + Σ_l ½ log mean_c σ²_lc, x, ε ~ N(0, 1) (Lin et al. 2021).

    f is the last feature map of the network with N(0, 1) weights: its own weights, each layer's divided by
    their root mean square. σ² are the variances that batch norms divide by, which contribute nearly all
    of the score. Batch norms with constant input are skipped.

    Args:
        alpha: α.
        images: number of random inputs.
        seed: seed of the inputs.

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
        moved = double((before - after).abs().flatten(1).sum(dim=1)).mean()
        return _log(float(moved)) + total


def gaussian_weights(network: nn.Module) -> dict[str, Tensor]:
    """Return the weights of linear layers and convolutions scaled to mean square 1, and zero biases."""
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
    """Return the output of the last block before the classifier, or the logits."""
    with Features(network, len(x)) as features:
        logits = functional_call(network, weights, (x,))
    return [*features.before(logits)[-1:], logits][0]


@contextmanager
def _variances(network: nn.Module) -> Iterator[list[Tensor]]:
    """Record the mean over channels of the variance of each batch norm's input."""
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


# Expressivity of AZ-NAS (arXiv:2403.19232): how many dimensions features use.


@dataclass(frozen=True)
class Expressivity(Metric):
    """Σ_l s_l, s_l = −Σ_k λ̃_k log λ̃_k (Lee & Ham 2024).

    λ̃ are the eigenvalues of the covariance of the channels of block l's output over samples and positions,
    divided by their sum: s_l is log c if all directions have equal variance, 0 if one has all of it.

    >>> import torch
    >>> from torch import nn
    >>> layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()
    >>> network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    >>> batch = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])
    >>> 0 < Expressivity()(network, batch).item() < 4 * 2.08  # of each block at most log 8
    True
    """

    needs: ClassVar[Needs] = Needs.FEATURES

    def compute(self, passes: Passes) -> Tensor:
        return passes.entropies.sum()


# Progressivity of AZ-NAS (arXiv:2403.19232): the growth of expressivity from block to block.


@dataclass(frozen=True)
class Progressivity(Metric):
    """min_l (s_l − s_{l−1}), s_l the expressivity of block l (Lee & Ham 2024).

    With one block it is the block's own expressivity.

    >>> import torch
    >>> from torch import nn
    >>> layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()
    >>> network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    >>> batch = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])
    >>> bool(torch.isfinite(Progressivity()(network, batch)))
    True
    """

    needs: ClassVar[Needs] = Needs.FEATURES

    def compute(self, passes: Passes) -> Tensor:
        s = passes.entropies
        return s.diff().min() if len(s) > 1 else s[0]


# Trainability of AZ-NAS (arXiv:2403.19232): how blocks change the norm of gradients.

_EPS = 1e-6


@checked
@dataclass(frozen=True)
class Trainability(Metric):
    """mean_l (2 − σ_l − 1/(σ_l + 1e-6)) (Lee & Ham 2024).

    σ_l is the largest singular value of E[g_{l−1} g_lᵀ], an estimate of block l's Jacobian between channels
    at one position: g_l are random signs ±1, and g_{l−1} their backward pass through the block. If a block
    lowers the resolution, the input positions of an output position count as channels. The best value is 0,
    at σ = 1.

    Args:
        seed: seed of the signs.

    >>> import torch
    >>> from torch import nn
    >>> layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()
    >>> network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    >>> batch = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])
    >>> Trainability()(network, batch).item() <= 0
    True
    """

    seed: Seed = 0
    needs: ClassVar[Needs] = Needs.FEATURES
    never_positive: ClassVar[bool] = True

    def compute(self, passes: Passes) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        sigmas = [
            _sigma(inner, outer, generator)
            for inner, outer in pairwise(passes.features)
            if outer.requires_grad
        ]
        if not sigmas:
            return torch.zeros(())
        sigma = torch.stack(sigmas)
        return (2 - sigma - 1 / (sigma + _EPS)).mean()


def _sigma(inner: Tensor, outer: Tensor, generator: torch.Generator) -> Tensor:
    signs = torch.randint(2, outer.shape, generator=generator).to(outer) * 2 - 1
    (gradient,) = torch.autograd.grad(outer, inner, signs, retain_graph=True, materialize_grads=True)
    return largest_singular_value(gradient, signs)


def largest_singular_value(inner: Tensor, outer: Tensor) -> Tensor:
    """Return σ of E[g_{l−1} g_lᵀ] over samples and positions, from (m, c', h', w') and (m, c, h, w).

    >>> signs = torch.randint(2, (50, 3, 8, 8)) * 2.0 - 1
    >>> bool((largest_singular_value(0.5 * signs, signs) - 0.5).abs() < 0.1)
    True
    """
    if inner.dim() == outer.dim() == 4:
        inner = _unshuffle(inner, outer)
    elif outer.dim() == 2:  # pooled: all positions belong to one
        inner = inner.flatten(1)
    a, b = (g.movedim(1, -1).flatten(0, -2) for g in (inner, outer))
    return torch.linalg.matrix_norm(double(a.T @ b) / len(b), 2)


def _unshuffle(inner: Tensor, outer: Tensor) -> Tensor:
    """Reshape the inner map to the outer's positions, padded with zeros if sides do not divide."""
    factor = max(1, round(inner.shape[2] / outer.shape[2]))
    missing = [factor * outer.shape[axis] - inner.shape[axis] for axis in (3, 2)]
    if any(missing):
        inner = F.pad(inner, (0, missing[0], 0, missing[1]))
    return F.pixel_unshuffle(inner, factor) if factor > 1 else inner
