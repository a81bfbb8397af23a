"""GraSP's θᵀHg and the second derivative of batch norms, against PyTorch's."""

import itertools
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from nas_lightning.errors import InputError
from nas_lightning.metrics import Grasp, Jacov, Naswot, NTKCondition, Snip, score
from nas_lightning.metrics.curvature import TwiceDifferentiable, along_weights, hard_sigmoid
from nas_lightning.metrics.gradients import SampleGrasp


def curvature_of_torch(network, x):
    weights = [p for p in network.parameters() if p.dim() > 1 and p.requires_grad]
    gradients = torch.autograd.grad(loss_of(network(x)), weights, create_graph=True)
    half = sum((g**2).sum() for g in gradients) / 2
    products = torch.autograd.grad(half, weights, materialize_grads=True)
    return float(sum((weight.detach() * hg).sum() for weight, hg in zip(weights, products, strict=True)))


def curvature(network, x):
    trained = [p for p in network.parameters() if p.requires_grad]
    with TwiceDifferentiable():
        y = network(x)
    return float(along_weights(trained, torch.autograd.grad(loss_of(y), trained, create_graph=True)))


def loss_of(y):
    return (y.sin() + y**3 / 3).mean()


def drawn(network, *shape, channels_last=False):
    generator = torch.Generator().manual_seed(0)
    network.double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    if channels_last:
        network, x = (one.to(memory_format=torch.channels_last) for one in (network, x))
    return network, x


def assert_same(network, x):
    assert curvature(network, x) == pytest.approx(curvature_of_torch(network, x), rel=1e-9, abs=1e-12)


def inverted(channels):
    return nn.Sequential(
        nn.Conv2d(3, channels, 1, bias=False),
        nn.BatchNorm2d(channels),
        nn.SiLU(),
        nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU6(),
        nn.Conv2d(channels, 3, 1),
    )


def test_networks():
    networks = {
        "inverted": inverted(5),
        "in place": nn.Sequential(
            nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 3)
        ),
        "linear": nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 5 * 6, 3)
        ),
        "frozen": nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3).requires_grad_(False), nn.Tanh()
        ),
    }
    for network in networks.values():
        for batch in (1, 4):
            assert_same(*drawn(network, batch, 3, 7, 8))


@pytest.mark.parametrize(("depth", "size"), [(1, 6), (3, 10)])
def test_finite_differences(depth, size):
    layers = [layer for _ in range(depth) for layer in (nn.Conv2d(2, 2, 3, padding=1), nn.Tanh())]
    network, x = drawn(nn.Sequential(*layers), 2, 2, size, size)
    weights = [p for p in network.parameters() if p.dim() > 1]

    def gradient():
        return torch.autograd.grad(loss_of(network(x)), weights)

    g, step, values = gradient(), 1e-5, []
    for sign in (1, -1):  # along θ
        with torch.no_grad():
            kept = [w.clone() for w in weights]
            for w in weights:
                w.mul_(1 + sign * step)
        values.append(sum((a * b).sum() for a, b in zip(gradient(), g, strict=True)))
        with torch.no_grad():
            for w, before in zip(weights, kept, strict=True):
                w.copy_(before)
    assert curvature(network, x) == pytest.approx(float(values[0] - values[1]) / (2 * step), rel=1e-6)


def test_metrics_together_equal_metrics_alone():
    network, x = drawn(nn.Sequential(inverted(6), nn.AdaptiveAvgPool2d(1), nn.Flatten()), 6, 3, 6, 6)
    metrics = {"grasp": Grasp(), "jacov": Jacov(), "snip": Snip(), "kernel": NTKCondition()}
    metrics["sample_grasp"] = SampleGrasp()  # with second derivatives of its own
    batch = x, torch.arange(6) % 3
    together = score(network, batch, metrics)
    for name, metric in metrics.items():
        assert together[name] == pytest.approx(score(network, batch, {name: metric})[name], rel=1e-9)


class Missing(torch.autograd.Function):
    """Of torch's operations, the derivative of whose derivative is missing."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.hardsigmoid(x)

    @staticmethod
    def backward(ctx, d):
        return torch.ops.aten.hardsigmoid_backward(d, *ctx.saved_tensors)


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d):
        return d * 2


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function.apply(x)


def test_operation_without_second_derivative_raises():
    for function, got in ((Missing, "aten::hardsigmoid_backward"), (Once, "once_differentiable")):
        network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), Applied(function), nn.Linear(4, 2))
        for metric in (Grasp(), SampleGrasp()):
            with pytest.raises(InputError, match=f"twice differentiable, got .*{got}"):
                metric(network, (torch.randn(4, 3), torch.tensor([0, 1, 0, 1])))


class Pieces(nn.Module):
    def forward(self, x):
        return F.relu6(x + 3) / 6


@pytest.mark.parametrize("inplace", [True, False])
def test_hard_sigmoids(inplace):
    networks = [
        nn.Sequential(nn.Conv2d(3, 4, 3), middle, nn.Conv2d(4, 2, 3), nn.Flatten(), nn.Linear(24, 3))
        for middle in (nn.Hardsigmoid(inplace), Pieces())
    ]
    (network, x), (same, _) = (drawn(each, 4, 3, 7, 8) for each in networks)
    assert curvature(network, 9 * x) == pytest.approx(curvature_of_torch(same, 9 * x), rel=1e-9)
    batch = x, torch.arange(4) % 3
    together = score(network, batch, {"grasp": Grasp(), "naswot": Naswot()})
    assert together["naswot"] == score(network, batch, {"naswot": Naswot()})["naswot"]


def test_hard_sigmoid_in_place():
    values = torch.tensor([-4.0, 1.5, 9.0])
    given = values.clone().requires_grad_().clone()
    returned = hard_sigmoid(given, inplace=True)
    assert torch.equal(given, F.hardsigmoid(values))
    assert returned is given


@pytest.mark.parametrize("anew", [False, True])
def test_attention(anew):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    kind = Checkpointed if anew else nn.Sequential
    network, x = drawn(kind(layer, nn.Sequential(nn.Flatten(), nn.Linear(40, 3))), 4, 5, 8)
    y = torch.arange(4) % 3
    weights = [p for p in network.parameters() if p.dim() > 1]
    with sdpa_kernel(SDPBackend.MATH):
        gradients = torch.autograd.grad(F.cross_entropy(network(x), y), weights, create_graph=True)
        products = torch.autograd.grad(sum((g**2).sum() for g in gradients) / 2, weights)
    expected = abs(sum((w.detach() * hg).sum() for w, hg in zip(weights, products, strict=True)))
    assert float(Grasp()(network, (x, y))) == pytest.approx(float(expected), rel=1e-9)
    assert torch.backends.cuda.flash_sdp_enabled()  # as it was


class Checkpointed(nn.Sequential):
    def forward(self, x):
        return self[1](checkpoint(self[0], x, use_reentrant=False))


def test_checkpointed_layers():
    layers = nn.Sequential(inverted(4), nn.ReLU()), nn.Sequential(nn.Flatten(), nn.Linear(108, 3))
    batch = torch.randn(6, 3, 6, 6, dtype=torch.float64), torch.arange(6) % 3
    metrics = {"grasp": Grasp(), "jacov": Jacov(), "kernel": NTKCondition(), "sample_grasp": SampleGrasp()}
    plain, anew = (score(kind(*layers).double(), batch, metrics) for kind in (nn.Sequential, Checkpointed))
    assert anew == pytest.approx(plain, rel=1e-9)


# Batch norms


def second_derivatives(norm, x, factor):
    """∇‖g‖² of all that has gradients, of a loss that is not symmetric in any way."""
    subjects = [x, *norm.parameters()]
    y = norm(x)
    gradients = torch.autograd.grad((factor * y**3).sum() + y.sin().sum(), subjects, create_graph=True)
    return torch.autograd.grad(sum((g**2).sum() for g in gradients), subjects)


def test_second_derivatives_of_batch_norms_equal_torch():
    shapes = [(5, 3, 4, 4), (7, 2), (4, 3, 5), (3, 1, 2, 2), (2, 3, 2, 3, 2)]
    for shape, affine, tracked, channels_last in itertools.product(shapes, *[(True, False)] * 3):
        check_second_derivatives(shape, affine, tracked, channels_last)


def check_second_derivatives(shape, affine, tracked, channels_last):
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator, dtype=torch.float64) * 3 + 20  # far from 0
    factor = torch.randn(shape, generator=generator, dtype=torch.float64)
    if channels_last and len(shape) == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    found = []
    for mode in (nullcontext(), TwiceDifferentiable()):
        norm = kind(shape[1], affine=affine, track_running_stats=tracked).double()
        for number, parameter in enumerate(norm.parameters()):
            nn.init.constant_(parameter, 0.5 + number)
        with mode:
            found.append((second_derivatives(norm, x.clone().requires_grad_(), factor), norm.state_dict()))
    (torch_values, torch_state), (values, state) = found
    for expected, got in zip(torch_values, values, strict=True):
        assert torch.allclose(expected, got, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))
    assert all(torch.equal(value, state[name]) for name, value in torch_state.items())


def test_batch_norm_finite_differences():
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    with TwiceDifferentiable():
        assert torch.autograd.gradgradcheck(lambda x: F.batch_norm(x, None, None, training=True), x)
        by_name = {"running_mean": None, "running_var": None, "training": True}
        assert torch.autograd.gradgradcheck(lambda x: F.batch_norm(input=x, **by_name), x)


def test_norms_with_fixed_statistics_use_torch():
    norm, x = nn.BatchNorm2d(2).eval(), torch.randn(3, 2, 4, 4)
    with TwiceDifferentiable():
        assert torch.equal(norm(x), norm(x))
        assert "BatchNorm" in type(norm(x).grad_fn).__name__
        assert "Native" in type(norm(x).grad_fn).__name__


def test_single_value_per_channel_raises():
    with TwiceDifferentiable(), pytest.raises(ValueError, match="more than 1 value per channel"):
        nn.BatchNorm2d(2)(torch.randn(1, 2, 1, 1))


def test_half_precision_uses_torch():
    x = torch.randn(3, 2, 4, 4, requires_grad=True, dtype=torch.bfloat16)
    with TwiceDifferentiable():
        assert "Native" in type(nn.BatchNorm2d(2, affine=False)(x).grad_fn).__name__


def test_batch_norm_in_a_transform():
    """Networks that call `torch.vmap` themselves."""
    x = torch.randn(2, 3, 4, 5, 5, dtype=torch.float64)
    expected = torch.stack([F.batch_norm(one, None, None, training=True) for one in x])
    with TwiceDifferentiable():
        found = torch.vmap(lambda one: F.batch_norm(one, None, None, training=True))(x)
    torch.testing.assert_close(found, expected)
