"""Metrics of gradients, of the kernel, and counts against plain versions of their formulas, in float64."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.metrics import (
    Fisher,
    Flops,
    GradNorm,
    Grasp,
    NTKCondition,
    NTKFrobenius,
    NTKLambdaMin,
    NTKMeanDiagonal,
    NTKSqrtMeanDiagonal,
    Params,
    Snip,
    Synflow,
    ntk,
)
from nas_lightning.metrics.gradients import SampleGrasp
from tests.metrics.conftest import Small


@pytest.fixture
def network(small: Small) -> Small:
    return small


@pytest.fixture
def batch(small_batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return small_batch


@pytest.fixture
def flat(network: Small) -> Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


def loss_of(network: Small, batch: tuple[Tensor, Tensor], flat: Tensor, rows: slice = slice(None)) -> Tensor:
    """The batch's mean loss, or that of some rows, as a function of all parameters, written out by hand."""
    conv, conv_bias, scale, shift, head, head_bias = (
        part.view_as(p)
        for part, p in zip(
            flat.split([p.numel() for p in network.parameters()]), network.parameters(), strict=True
        )
    )
    z = F.conv2d(batch[0], conv, conv_bias)
    z = (z - z.mean((0, 2, 3), keepdim=True)) / (z.var((0, 2, 3), keepdim=True, unbiased=False) + 1e-5).sqrt()
    z = (z * scale[:, None, None] + shift[:, None, None]).clamp(min=0).mean((2, 3))
    return F.cross_entropy((z @ head.T + head_bias)[rows], batch[1][rows])


def test_grad_norm(network, batch, flat):
    gradient = torch.autograd.functional.jacobian(lambda w: loss_of(network, batch, w), flat)
    assert GradNorm(per_layer=False)(network, batch) == pytest.approx(float(gradient.norm()))
    layers = gradient.split([p.numel() for p in network.parameters()])
    total = sum(float(layer.norm()) for layer in layers)
    assert GradNorm(per_layer=True)(network, batch) == pytest.approx(total)


def test_snip(network, batch, flat):
    gradient = torch.autograd.functional.jacobian(lambda w: loss_of(network, batch, w), flat)
    assert Snip(per_weight=True)(network, batch) == pytest.approx(float((flat * gradient).abs().sum()))
    assert Snip(per_weight=False)(network, batch) == pytest.approx(abs(float(flat @ gradient)))


def test_grasp(network, batch, flat):
    gradient = torch.autograd.functional.jacobian(lambda w: loss_of(network, batch, w), flat)
    hessian = torch.autograd.functional.hessian(lambda w: loss_of(network, batch, w), flat)
    parts = [torch.full((p.numel(),), p.dim() > 1) for p in network.parameters()]
    weights = torch.cat(parts)  # not the biases, nor the norm
    assert 0 < int(weights.sum()) < len(weights)
    product = float(flat[weights] @ hessian[weights][:, weights] @ gradient[weights])
    assert Grasp(signed=True)(network, batch) == pytest.approx(-product)
    assert Grasp(signed=False)(network, batch) == pytest.approx(abs(product))


def test_grasp_by_samples(network, batch, flat):
    """Every sample's loss through the whole batch's norm, and all parameters."""
    total = 0.0
    for place in range(len(batch[0])):
        rows = {"rows": slice(place, place + 1)}
        gradient = torch.autograd.functional.jacobian(lambda w, r=rows: loss_of(network, batch, w, **r), flat)
        hessian = torch.autograd.functional.hessian(lambda w, r=rows: loss_of(network, batch, w, **r), flat)
        total += float(flat @ hessian @ gradient)
    assert SampleGrasp()(network, batch) == pytest.approx(abs(total) / len(batch[0]))
    assert SampleGrasp()(network, batch) != pytest.approx(float(Grasp()(network, batch)), rel=0.1)


def test_of_the_kernel(network, batch):
    kernel = ntk(network, batch).matrix
    values = torch.linalg.eigvalsh(kernel)
    assert NTKSqrtMeanDiagonal()(network, batch) == pytest.approx(math.sqrt(float(values.sum()) / 6))
    assert NTKCondition()(network, batch) == pytest.approx(float(values[-1] / values[0]))
    assert NTKLambdaMin()(network, batch) == pytest.approx(float(values[0]))
    assert NTKMeanDiagonal()(network, batch) == pytest.approx(float(values.mean()))
    assert NTKFrobenius()(network, batch) == pytest.approx(float((values**2).sum().sqrt()))
    coupled = ntk(network, batch, coupled=True).trace
    assert NTKSqrtMeanDiagonal(coupled=True)(network, batch) == pytest.approx(math.sqrt(coupled / 6))


def test_fisher(network, batch):
    network.train()
    z = network.conv(batch[0])
    hidden = F.relu(network.norm(z)).mean((2, 3))
    logits = network.head(hidden)
    loss = F.cross_entropy(logits, batch[1])
    dz, dlogits = torch.autograd.grad(loss, [z, logits])
    z, logits = z.detach(), logits.detach()
    total = 0.0
    for i in range(6):
        for c in range(4):
            total += float((z[i, c] * dz[i, c]).sum()) ** 2 / (2 * 6)
        for c in range(5):
            total += float(logits[i, c] * dlogits[i, c]) ** 2 / (2 * 6)
    assert Fisher()(network, batch) == pytest.approx(total)


def test_fisher_with_activations_in_place(images):
    """A convolution whose output is changed in place counts with what it returned."""

    def build(inplace: bool) -> nn.Module:
        torch.manual_seed(0)
        layers = nn.Conv2d(3, 4, 3), nn.Hardswish(inplace=inplace), nn.Flatten(), nn.Linear(144, 5)
        return nn.Sequential(*layers)

    assert Fisher()(build(True), images) == pytest.approx(float(Fisher()(build(False), images)))


def test_synflow_of_a_linear_network():
    """R = 1ᵀ |W₂| |W₁| 1, and Σ θ ⊙ ∂R/∂θ counts it once per layer: a polynomial's Euler sum."""
    network = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 2, bias=False))
    first, last = (network[i].weight.detach().double().abs() for i in (0, 2))
    flow = (last @ first).sum()
    batch = torch.randn(2, 3), torch.tensor([0, 1])
    assert Synflow()(network, batch) == pytest.approx(2 * float(flow))


def test_synflow_skips_norms(network, batch):
    w, b = network.conv.weight.detach().abs(), network.conv.bias.detach().abs()
    v, c = network.head.weight.detach().abs(), network.head.bias.detach().abs()
    # R = Σ v (w 1 + b) + c; θ ⊙ ∂R/∂θ counts a term once for each of its factors
    expected = float(2 * (v @ w.sum((1, 2, 3))).sum() + 2 * (v @ b).sum() + c.sum())
    assert Synflow()(network, batch) == pytest.approx(expected)


def test_counts(network, batch):
    assert Params()(network, batch) == 4 * 28 + 8 + 25
    assert Flops()(network, batch) == 36 * 4 * 27 + 4 * 5
