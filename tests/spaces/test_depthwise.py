"""Depthwise convolutions with fast gradients against torch's."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from benchmarks.reference.darts_supernet import with_plain_convolutions
from nas_lightning.spaces import DartsSpace
from nas_lightning.spaces.depthwise import DepthwiseConv2d
from nas_lightning.training.gradients import constant, gradients

KINDS = [(5, 1), (3, 2), (5, 2)]  # kernel, dilation
SHAPES = [(2, 3, 8, 8), (1, 1, 7, 5), (2, 4, 5, 6), (3, 1, 4, 9), (1, 2, 1, 1), (2, 2, 2, 3), (2, 5, 16, 12)]
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def layers(kernel, dilation, channels):
    """Ours, and torch's with the same weight."""
    ours = DepthwiseConv2d(channels, kernel, dilation).double()
    return ours, with_plain_convolutions(nn.Sequential(copy.deepcopy(ours)))[0]


def images(*shape, channels_last=True):
    x = torch.randn(shape, dtype=torch.float64)
    return x.contiguous(memory_format=torch.channels_last) if channels_last else x


def outcome(layer, x, dz):
    """The output, and the gradients of the input and of the weight."""
    z = layer(x)
    return z, *torch.autograd.grad(z, [x, layer.weight], dz)


def test_output_and_gradients_are_torchs():
    for channels_last in [True, False]:
        for shape in SHAPES:
            for kernel, dilation in KINDS:
                ours, plain = layers(kernel, dilation, shape[1])
                x, dz = images(*shape, channels_last=channels_last).requires_grad_(), images(*shape)
                for found, expected in zip(outcome(ours, x, dz), outcome(plain, x, dz), strict=True):
                    torch.testing.assert_close(found, expected, **CLOSE)


def test_slices_of_images_and_of_gradients():
    """Partial channels are a slice of a node, and the gradient of a concatenation is a slice of its own."""
    for part in [lambda x: x[:, 1:3], lambda x: x[:, ::2, 1:], lambda x: x.transpose(2, 3)]:
        for kernel, dilation in KINDS:
            whole, cotangent = images(2, 4, 8, 8).requires_grad_(), images(2, 4, 8, 8)
            ours, plain = layers(kernel, dilation, part(whole).shape[1])
            pairs = zip(
                outcome(ours, part(whole), part(cotangent)),
                outcome(plain, part(whole), part(cotangent)),
                strict=True,
            )
            for found, expected in pairs:
                torch.testing.assert_close(found, expected, **CLOSE)


def test_second_order_by_finite_differences():
    for kernel, dilation in KINDS:
        layer, _ = layers(kernel, dilation, 2)

        def function(x, weight):
            return functional_call(layer, {"weight": weight}, (x,))

        x = images(1, 2, 4, 3).requires_grad_()
        assert torch.autograd.gradcheck(function, (x, layer.weight))
        assert torch.autograd.gradgradcheck(function, (x, layer.weight))


def test_only_requested_gradients_are_computed():
    layer, _ = layers(5, 1, 2)
    x = images(1, 2, 8, 8)
    with constant(layer.parameters()):
        assert not layer(x).requires_grad
        assert torch.autograd.grad(layer(x.requires_grad_()).sum(), x)[0].shape == x.shape
    (dw,) = torch.autograd.grad(layer(x.detach()).sum(), layer.weight)
    assert dw.shape == layer.weight.shape


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's, of its forward mode
def test_functional_transforms():
    ours, plain = layers(5, 2, 2)
    x = images(3, 2, 8, 7)

    def rows(layer):
        def loss(weight, sample):
            return functional_call(layer, {"weight": weight}, (sample[None],)).square().sum()

        return vmap(grad(loss), in_dims=(None, 0))(layer.weight.detach(), x)

    torch.testing.assert_close(rows(ours), rows(plain), **CLOSE)
    tangents = (torch.func.jvp(layer, (x,), (x.flip(0),))[1] for layer in (ours, plain))
    torch.testing.assert_close(*tangents, **CLOSE)


def test_mixed_precision_is_torchs():
    ours, plain = (layer.float() for layer in layers(5, 1, 4))
    x = torch.randn(2, 4, 8, 8, requires_grad=True)
    found = []
    for layer in (ours, plain):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = layer(x)
        found.append((z, *torch.autograd.grad(z.float().square().sum(), [x, layer.weight])))
    assert found[0][0].dtype == torch.bfloat16
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_fallback_to_torch():
    """On a CPU in a pass that is differentiated by autograd, and nowhere else."""
    layer = DepthwiseConv2d(2, 5)
    x = torch.randn(1, 2, 8, 8)
    assert "Depthwise" in layer(x).grad_fn.name()
    exported = torch.export.export(layer, (x,))
    assert [node.target for node in exported.graph.nodes if node.op == "call_function"] == [
        torch.ops.aten.conv2d.default
    ]
    assert "Convolution" in layer.to("meta")(x.to("meta")).grad_fn.name()
    with torch.no_grad():
        assert layer.to_empty(device="cpu")(x).grad_fn is None


def test_a_step_of_a_supernet():
    for checkpointed, partial in ((False, 1), (True, 4)):
        space = DartsSpace()
        supernet = space.supernet(in_channels=3, num_classes=5, channels=8, cells=3, partial=partial).double()
        plain = with_plain_convolutions(copy.deepcopy(supernet))
        assert any(isinstance(module, DepthwiseConv2d) for module in supernet.modules())
        assert not any(isinstance(module, DepthwiseConv2d) for module in plain.modules())
        supernet.backbone.checkpointed = checkpointed
        x, y = images(2, 3, 11, 12), torch.tensor([1, 4])
        arch = [
            torch.randn(group.shape, dtype=x.dtype, requires_grad=True) for group in space.groups.values()
        ]

        def step(net):
            weights = {name: beta.softmax(-1) for name, beta in zip(space.groups, arch, strict=True)}
            loss = F.cross_entropy(net(x, weights), y)
            return [loss, *gradients(loss, [*net.parameters(), *arch])]

        first, again, expected = step(supernet), step(supernet), step(plain)
        assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))
        torch.testing.assert_close(first, expected, rtol=1e-9, atol=1e-12)


def test_a_derived_network(generator):
    space = DartsSpace()
    genotype = next(g for g in iter(lambda: space.sample(generator), None) if "dil_conv_5x5" in str(g))
    network = space.network(genotype, in_channels=3, num_classes=5, channels=4, cells=3).double()
    plain = with_plain_convolutions(copy.deepcopy(network))
    x = images(2, 3, 9, 9)
    found, expected = (
        torch.autograd.grad(net(x).square().sum(), list(net.parameters()), materialize_grads=True)
        for net in (network, plain)
    )
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_compiled():
    ours, plain = layers(5, 2, 4)
    x, dz = images(2, 4, 8, 8).requires_grad_(), images(2, 4, 8, 8)
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    z = compiled(x)
    found = (z, *torch.autograd.grad(z, [x, ours.weight], dz))
    torch.testing.assert_close(found, outcome(plain, x, dz), **CLOSE)
