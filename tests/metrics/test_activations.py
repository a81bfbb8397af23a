"""Metrics of activations, and ZiCo, against plain versions of their formulas."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.metrics import (
    Expressivity,
    Jacov,
    Layers,
    Meco,
    Naswot,
    NTKMean,
    Progressivity,
    Swap,
    Trainability,
    Vkdnw,
    Zen,
    Zico,
)
from nas_lightning.metrics.activations import largest_singular_value
from nas_lightning.metrics.recording import blocks
from nas_lightning.spaces import DartsSpace, NasBench101, NasBench201

Batch = tuple[Tensor, Tensor]


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4))
        self.body = nn.ModuleList([nn.Conv2d(4, 5, 3), nn.Conv2d(5, 6, 3)])
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        for part in (self.stem, *self.body):
            x = F.relu(part(x))
        return self.head(x.mean(dim=(2, 3)))

    def maps(self, x: Tensor) -> list[Tensor]:
        """What the three blocks return, with the batch's statistics."""
        z = F.conv2d(x, self.stem[0].weight)
        norm = F.batch_norm(z, None, None, training=True)
        first = self.body[0](F.relu(norm))
        return [norm, first, self.body[1](F.relu(first))]


@pytest.fixture
def network() -> Small:
    return Small().double()


@pytest.fixture
def batch(images: Batch) -> Batch:
    return images[0].double(), images[1]


@pytest.mark.parametrize("side", [10, 8, 7])
def test_meco(network, side):
    """The last map has 16 positions for its 6 channels, or too few for any correlation: 4, or 1."""
    x, labels = torch.randn(6, 3, side, side).double(), torch.arange(6) % 5
    first = F.conv2d(x, network.stem[0].weight)
    total = 0.0
    for maps in (first, *network.maps(x)[1:]):
        for image in maps[:3].detach():
            channels = image.numpy().reshape(len(image), -1)
            if channels.shape[1] > 1:
                total += max(0.0, np.linalg.eigvalsh(np.corrcoef(channels))[0]) / 3
    assert Meco(images=3)(network, (x, labels)) == pytest.approx(total)


def entropies(network: Small, x: Tensor) -> list[float]:
    found = []
    for maps in network.maps(x):
        rows = maps.detach().permute(1, 0, 2, 3).flatten(1).numpy()
        values = np.linalg.eigvalsh(np.cov(rows))
        shares = values / values.sum()
        found.append(float(-(shares * np.log(shares)).sum()))
    return found


def test_expressivity_and_progressivity(network, batch):
    s = entropies(network, batch[0])
    assert Expressivity()(network, batch) == pytest.approx(sum(s))
    assert Progressivity()(network, batch) == pytest.approx(min(s[1] - s[0], s[2] - s[1]))


class Linear(nn.Module):
    """A stem and a block that is a linear map at every position, or of every 2×2 positions."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.block = nn.Conv2d(4, 6, kernel, stride=kernel, bias=False)
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.stem(x)).mean(dim=(2, 3)))


@pytest.mark.parametrize("kernel", [1, 2])
def test_trainability_of_a_linear_block(kernel):
    """E[Wᵀ g gᵀ] = Wᵀ: its σ is the spectral norm of the weight, over channels and positions."""
    torch.manual_seed(1)
    network = Linear(kernel)
    x = torch.randn(200, 3, 16, 16)
    sigma = float(torch.linalg.matrix_norm(network.block.weight.detach().flatten(1), 2))
    expected = 2 - sigma - 1 / sigma
    assert Trainability()(network, (x, torch.arange(200) % 5)) == pytest.approx(expected, abs=0.02)


def test_the_singular_value_of_maps_whose_sides_do_not_divide():
    """3×3 positions from 5×5: the sixth row and column are zero."""
    inner, outer = torch.randn(7, 2, 5, 5), torch.randn(7, 3, 3, 3)
    padded = torch.zeros(7, 2, 6, 6)
    padded[:, :, :5, :5] = inner
    total = torch.zeros(8, 3)
    for sample, i, j in itertools.product(range(7), range(3), range(3)):
        patch = padded[sample, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].flatten()
        total += torch.outer(patch, outer[sample, :, i, j])
    expected = float(torch.linalg.svdvals(total / 63)[0])
    assert float(largest_singular_value(inner, outer)) == pytest.approx(expected, rel=1e-5)


def test_zen(network, batch):
    """Written out, with weights whose scale does not matter; a norm of any affine scale is the network's."""
    random = torch.Generator().manual_seed(3)
    x, noise = torch.randn(2, 4, 3, 8, 8, generator=random).double()
    weights = [layer.weight.detach() for layer in (network.stem[0], *network.body)]
    weights = [weight / math.sqrt(float((weight**2).mean())) for weight in weights]

    def last(x: Tensor) -> tuple[Tensor, float]:
        z = F.conv2d(x, weights[0])
        variance = z.var(dim=(0, 2, 3), correction=0)
        mean = z.mean(dim=(0, 2, 3), keepdim=True)
        z = F.relu((z - mean) / (variance.view(1, -1, 1, 1) + 1e-5).sqrt())
        z = F.relu(F.conv2d(z, weights[1]))
        return F.conv2d(z, weights[2]), float(variance.mean())

    before, variance = last(x)
    after, _ = last(x + 0.1 * noise)
    moved = float((before - after).abs().sum()) / 4
    expected = math.log(moved) + 0.5 * math.log(variance)
    zen = Zen(alpha=0.1, images=4, seed=3)
    assert zen(network, batch) == pytest.approx(expected)
    with torch.no_grad():
        network.body[0].weight.mul_(7)
    assert zen(network, batch) == pytest.approx(expected)


def test_zico(network, batch):
    network.train()
    halves = []
    for part in (slice(0, 3), slice(3, 6)):
        loss = F.cross_entropy(network(batch[0][part]), batch[1][part])
        weights = [
            network.stem[0].weight,
            network.body[0].weight,
            network.body[1].weight,
            network.head.weight,
        ]
        halves.append([g.abs().numpy() for g in torch.autograd.grad(loss, weights)])
    total = 0.0
    for a, b in zip(*halves, strict=True):
        mean, deviation = (a + b) / 2, abs(a - b) / 2
        total += math.log((mean[deviation > 0] / deviation[deviation > 0]).sum())
    assert Zico()(network, batch) == pytest.approx(total)


@pytest.mark.parametrize("samples", [2, 5])
def test_swap(network, batch, samples):
    seen = set()
    for maps in network.maps(batch[0]):
        active = (maps[:samples] > 0).flatten(1)
        seen |= {tuple(unit.tolist()) for unit in active.T}
    assert Swap(samples)(network, batch) == len(seen)


def test_swap_of_more_samples_than_an_integer_has_bits():
    x = torch.randn(100, 6)
    network = nn.Sequential(nn.Linear(6, 30), nn.ReLU(), nn.Linear(30, 4))
    units = {tuple(unit.tolist()) for unit in (network[0](x) > 0).T}
    assert Swap(100)(network, (x, torch.arange(100) % 4)) == len(units)


@pytest.fixture
def plain() -> nn.Module:
    """Without batch norm, so that samples do not act on each other."""
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.ReLU(), nn.Linear(8, 5)).double()


def test_vkdnw(plain, batch, jacobian):
    J = jacobian(plain, batch[0])  # (m, n, parameters)
    p = plain(batch[0]).detach().softmax(dim=1)
    fisher = sum(j.T @ (torch.diag(q) - torch.outer(q, q)) @ j for j, q in zip(J, p, strict=True)) / 6
    values = np.sort(np.linalg.eigvalsh(fisher.numpy()))[-6 * 4 :]
    deciles = np.quantile(values, np.arange(1, 10) / 10)
    shares = deciles / deciles.sum()
    assert Vkdnw()(plain, batch) == pytest.approx(-(shares * np.log(shares)).sum())


def test_mean_of_the_kernel_equals_norm_of_mean_gradient(plain, batch, jacobian):
    J = jacobian(plain, batch[0])[torch.arange(6), batch[1]]
    assert NTKMean()(plain, batch) == pytest.approx(float(J.mean(dim=0).norm()))


def test_layers(network, batch):
    assert Layers()(network, batch) == 4
    network.body[1].requires_grad_(False)
    assert Layers()(network, batch) == 3


@pytest.mark.parametrize(("space", "cells"), [(NasBench201(), 2), (DartsSpace(), 5), (NasBench101(), 1)])
def test_blocks_of_our_networks_are_stem_and_cells(space, cells, generator, images):
    network = space.network(
        space.sample(generator), in_channels=3, num_classes=5, channels=8, cells=cells, auxiliary=True
    )
    outputs = list(network.backbone.cells_outputs(images[0]))
    seen = []
    for block in blocks(network):
        block.register_forward_hook(lambda module, args, output: seen.append(output))
    network(images[0])
    maps = [output for output in seen if output.dim() == 4]
    assert len(seen) - len(maps) == 1  # the logits
    shapes = [output.shape for output in maps]
    assert all(output.shape in shapes for output in outputs)
    assert len(outputs) < len(maps) <= len(outputs) + 4  # the stem, NAS-Bench-201's residual blocks and norm


def test_impossible_options_raise():
    for wrong, least in (
        (lambda: Meco(images=0), "at least 1"),
        (lambda: Zen(images=1), "at least 2"),
        (lambda: Zico(1), "at least 2"),
        (lambda: Swap(0), "at least 1"),
    ):
        with pytest.raises(InputError, match=least):
            wrong()
    with pytest.raises(InputError, match="at least 4 samples for 2 parts, got 3"):
        Zico()(nn.Linear(2, 2), (torch.randn(3, 2), torch.tensor([0, 1, 0])))
    with pytest.raises(InputError, match="must have weights to train"):
        Zico()(nn.BatchNorm1d(2), (torch.randn(4, 2), torch.tensor([0, 1, 0, 1])))


def test_positions_that_are_pooled_count_as_channels():
    inner, outer = torch.randn(6, 3, 2, 2), torch.randn(6, 5)
    expected = torch.linalg.svdvals((inner.reshape(6, 12).T @ outer / 6).double())[0]
    assert float(largest_singular_value(inner, outer)) == pytest.approx(float(expected), rel=1e-5)


def test_naswot(small, small_batch):
    small.train()
    codes = (small.norm(small.conv(small_batch[0])) > 0).flatten(1)
    kernel = torch.zeros(6, 6, dtype=torch.float64)
    for i in range(6):
        for j in range(6):
            kernel[i, j] = (codes[i] == codes[j]).sum()
    assert Naswot()(small, small_batch) == pytest.approx(float(torch.logdet(kernel)))


def test_naswot_sees_modules_functions_and_changes_in_place(images):
    class Rectified(nn.Module):
        def __init__(self, how: str) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.how, self.inner, self.relu = how, nn.Linear(192, 64), nn.ReLU(inplace=True)
            self.head = nn.Linear(64, 5)

        def forward(self, x: Tensor) -> Tensor:
            z = self.inner(x.flatten(1))
            return self.head({"function": F.relu, "method": Tensor.relu_, "module": self.relu}[self.how](z))

    values = {float(Naswot()(Rectified(how), images)) for how in ("function", "method", "module")}
    assert len(values) == 1


def test_jacov(small, small_batch):
    small.train()
    x = small_batch[0].clone().requires_grad_()
    (rows,) = torch.autograd.grad(small(x).sum(), x)
    values = torch.linalg.eigvalsh(torch.corrcoef(rows.flatten(1)))
    expected = sum(-(math.log(float(v) + 1e-5) + 1 / (float(v) + 1e-5)) for v in values)
    assert Jacov()(small, small_batch) == pytest.approx(expected)
