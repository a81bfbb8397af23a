"""θᵀHg without Hg, against PyTorch's derivative of a derivative."""

import itertools
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from nas_lightning.errors import InputError
from nas_lightning.metrics import Grasp, Jacov, Naswot, NTKCondition, Snip, score
from nas_lightning.metrics.curvature import Asked, Convolutions, TwiceDifferentiable, hard_sigmoid
from nas_lightning.metrics.engine import preserve_state
from nas_lightning.metrics.gradients import SampleGrasp
from nas_lightning.metrics.recording import logits_of
from nas_lightning.spaces import NasBench201


def curvature_of_torch(network, x):
    weights = [p for p in network.parameters() if p.dim() > 1 and p.requires_grad]
    gradients = torch.autograd.grad(loss_of(network(x)), weights, create_graph=True)
    half = sum((g**2).sum() for g in gradients) / 2
    products = torch.autograd.grad(half, weights, materialize_grads=True)
    return float(sum((weight.detach() * hg).sum() for weight, hg in zip(weights, products, strict=True)))


def curvature(network, x):
    trained = [p for p in network.parameters() if p.requires_grad]
    with TwiceDifferentiable(trained) as twice:
        y = network(x)
    return float(twice.along_weights(torch.autograd.grad(loss_of(y), trained, create_graph=True)))


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


GEOMETRIES = [*itertools.product([1, 3], [1, 2], [0, 2], [1, 2], [1, 2])]


@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation", "groups"), GEOMETRIES)
@pytest.mark.parametrize("channels_last", [True, False])
def test_geometries(kernel, stride, padding, dilation, groups, channels_last):
    geometry = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    layers = nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Conv2d(4, 2, kernel, **geometry), nn.Sigmoid()
    assert_same(*drawn(nn.Sequential(*layers), 3, 3, 8, 9, channels_last=channels_last))


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


class Twice(nn.Module):
    """A convolution whose weight is used again: by itself, by a linear map and by a penalty."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        z = self.layer(self.layer(x).tanh())
        again = F.linear(x.mean((2, 3)), self.layer.weight.flatten(1))
        return z.mean((2, 3)) * again.cos() + (self.layer.weight**3).sum()


class Calculated(nn.Module):
    """A weight that is a function of parameters."""

    def __init__(self):
        super().__init__()
        self.direction, self.size = nn.Parameter(torch.ones(2, 3, 3, 3)), nn.Parameter(torch.ones(2, 1, 1, 1))

    def forward(self, x):
        return F.conv2d(x, self.size * F.normalize(self.direction)).tanh()


class ByName(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 2, 3)

    def forward(self, x):
        return F.conv2d(input=x, weight=self.layer.weight, bias=self.layer.bias, stride=(2, 1)).tanh()


class OfOneImage(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 2, 3)

    def forward(self, x):
        return torch.stack([self.layer(image).tanh() for image in x])


class ChangedInPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 2, 3, bias=False)

    def forward(self, x):
        return self.layer(x).mul_(2).tanh_()


class InATransform(nn.Module):
    """A batch of batches, in a transform."""

    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.Conv2d(3, 3, 2), nn.Conv2d(3, 2, 1)

    def forward(self, x):
        return self.last(torch.vmap(self.layer)(x[None])[0].tanh())


NETWORKS = {
    "changed": ChangedInPlace(),
    "in a transform": InATransform(),
    "changed in place": nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 3)
    ),
    "inverted": inverted(5),
    "twice": Twice(),
    "calculated": Calculated(),
    "by name": ByName(),
    "one image at a time": OfOneImage(),
    "same": nn.Sequential(nn.Conv2d(3, 4, 3, padding="same"), nn.Tanh(), nn.Conv2d(4, 2, 2, padding="valid")),
    "circular": nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), nn.Tanh()),
    "transposed": nn.Sequential(nn.ConvTranspose2d(3, 4, 3), nn.Tanh(), nn.Conv2d(4, 2, 3)),
    "linear": nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 5 * 6, 3)),
    "frozen": nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Conv2d(4, 2, 3).requires_grad_(False), nn.Tanh()
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("batch", [1, 4])
def test_networks(name, batch):
    assert_same(*drawn(NETWORKS[name], batch, 3, 7, 8))


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


class Count(TorchDispatchMode):
    """Operations on maps of images, and gradients of convolutions' weights."""

    maps = weights = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.maps += isinstance(result, torch.Tensor) and result.dim() == 4
        if func is torch.ops.aten.convolution_backward.default:
            self.weights += args[-1][1]
        return result


def test_passes_for_inputs_compute_no_weights_gradients():
    x, weight = torch.randn(2, 3, 5, 5, requires_grad=True), torch.randn(4, 3, 3, 3, requires_grad=True)
    convolutions = Convolutions([weight])
    total = convolutions(x, weight).sum()
    with Count() as count, convolutions.asking(Asked.INPUTS):
        torch.autograd.grad(total, x, retain_graph=True)
    assert count.weights == 0
    with Count() as count:
        both = torch.autograd.grad(total, [x, weight])
    assert count.weights == 1
    expected = torch.autograd.grad(F.conv2d(x, weight).sum(), [x, weight])
    assert all(torch.equal(a, b) for a, b in zip(both, expected, strict=True))


@pytest.mark.parametrize("groups", [1, 2])
def test_first_and_second_derivatives_of_all(groups):
    x = torch.randn(2, 2, 4, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 2 // groups, 2, 3, dtype=torch.float64, requires_grad=True)
    convolution = partial(Convolutions([weight]), stride=(2, 1), padding=1, groups=groups)
    assert torch.autograd.gradcheck(convolution, (x, weight))
    assert torch.autograd.gradgradcheck(convolution, (x, weight))


def test_other_metrics_of_the_same_passes_are_what_they_are_alone():
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


@pytest.mark.parametrize(
    ("function", "got"), [(Missing, "aten::hardsigmoid_backward"), (Once, "once_differentiable")]
)
def test_an_operation_without_a_second_derivative_is_one_line(function, got):
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), Applied(function), nn.Linear(4, 2))
    for metric in (Grasp(), SampleGrasp()):
        with pytest.raises(InputError, match=f"differentiated twice, got .*{got}"):
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


def test_a_hard_sigmoid_in_place_changes_what_it_is_given():
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


def test_mixed_precision_is_left_to_torch():
    weight = torch.randn(4, 3, 3, 3, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16), TwiceDifferentiable([weight]) as twice:
        y = F.conv2d(torch.randn(2, 3, 5, 5), weight)
    assert y.dtype is torch.bfloat16
    (g,) = torch.autograd.grad(y.float().pow(2).sum(), weight, create_graph=True)
    assert torch.isfinite(twice.along_weights([g]))


def test_grasp_takes_half_the_operations():
    space = NasBench201()
    cell = "|nor_conv_3x3~0|+|avg_pool_3x3~0|nor_conv_1x1~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_1x1~2|"
    network = space.network(space.parse(cell), in_channels=3, num_classes=4, channels=4, cells=1)
    network, x = drawn(network, 6, 3, 8, 8)
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    weights = [p for p in network.parameters() if p.dim() > 1]
    with Count() as by_torch, preserve_state(network):
        loss = F.cross_entropy(logits_of(network(x)), y)
        gradients = torch.autograd.grad(loss, weights, create_graph=True)
        products = torch.autograd.grad(sum((g**2).sum() for g in gradients) / 2, weights)
    with Count() as ours:
        found = float(Grasp(signed=True)(network, (x, y)))
    expected = -float(sum((w.detach() * hg).sum() for w, hg in zip(weights, products, strict=True)))
    assert found == pytest.approx(expected, rel=1e-9)
    assert ours.maps < 0.5 * by_torch.maps
    assert ours.weights < by_torch.weights
