"""Parameters that a pass is not differentiated for: nothing is kept for them, and they are as they were."""

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from nas_lightning.spaces import DartsSpace
from nas_lightning.strategies import Darts
from nas_lightning.training.gradients import constant, gradients


def kept(forward):
    """Bytes that autograd keeps, each storage once."""
    sizes = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()
    return result, sum(sizes.values())


def test_the_architectures_gradient_is_the_same_and_keeps_less():
    torch.manual_seed(0)
    space = DartsSpace(nodes=2)
    darts = Darts(space, space.supernet(in_channels=1, num_classes=3, channels=4, cells=3))
    x, y = torch.randn(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])
    loss, everything = kept(lambda: darts.cross_entropy((x, y), darts.relax())[0])
    expected = gradients(loss, darts.arch_list)
    with constant(darts.weight_list):
        loss, less = kept(lambda: darts.cross_entropy((x, y), darts.relax())[0])
        found = gradients(loss, darts.arch_list)
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)
    assert less < 0.9 * everything
    assert all(weight.requires_grad for weight in darts.weight_list)


def test_what_was_constant_stays_so_and_errors_change_nothing():
    layer = nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    with constant(layer.parameters()):
        assert not any(parameter.requires_grad for parameter in layer.parameters())
    assert [layer.weight.requires_grad, layer.bias.requires_grad] == [True, False]
    with pytest.raises(RuntimeError), constant(layer.parameters()):
        layer(torch.ones(3, 3))  # of another size
    assert [layer.weight.requires_grad, layer.bias.requires_grad] == [True, False]
