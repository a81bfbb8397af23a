"""Batch norms' second derivatives in closed form, against PyTorch's."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nas_lightning.metrics.curvature import TwiceDifferentiable


def second_derivatives(norm, x, factor):
    """∇‖g‖² of all that has gradients, of a loss that is not symmetric in any way."""
    subjects = [x, *norm.parameters()]
    y = norm(x)
    gradients = torch.autograd.grad((factor * y**3).sum() + y.sin().sum(), subjects, create_graph=True)
    return torch.autograd.grad(sum((g**2).sum() for g in gradients), subjects)


@pytest.mark.parametrize("shape", [(5, 3, 4, 4), (7, 2), (4, 3, 5), (3, 1, 2, 2), (2, 3, 2, 3, 2)])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("channels_last", [True, False])
def test_second_derivatives_are_those_of_torch(shape, affine, tracked, channels_last):
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator, dtype=torch.float64) * 3 + 20  # far from 0
    factor = torch.randn(shape, generator=generator, dtype=torch.float64)
    if channels_last and len(shape) == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    found = []
    for mode in (nullcontext(), TwiceDifferentiable([])):
        norm = kind(shape[1], affine=affine, track_running_stats=tracked).double()
        for number, parameter in enumerate(norm.parameters()):
            nn.init.constant_(parameter, 0.5 + number)
        with mode:
            found.append((second_derivatives(norm, x.clone().requires_grad_(), factor), norm.state_dict()))
    (torch_values, torch_state), (values, state) = found
    for expected, got in zip(torch_values, values, strict=True):
        assert torch.allclose(expected, got, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))
    assert all(torch.equal(value, state[name]) for name, value in torch_state.items())


def test_finite_differences():
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    with TwiceDifferentiable([]):
        assert torch.autograd.gradgradcheck(lambda x: F.batch_norm(x, None, None, training=True), x)
        by_name = {"running_mean": None, "running_var": None, "training": True}
        assert torch.autograd.gradgradcheck(lambda x: F.batch_norm(input=x, **by_name), x)


def test_norms_with_fixed_statistics_are_left_to_torch():
    norm, x = nn.BatchNorm2d(2).eval(), torch.randn(3, 2, 4, 4)
    with TwiceDifferentiable([]):
        assert torch.equal(norm(x), norm(x))
        assert "BatchNorm" in type(norm(x).grad_fn).__name__
        assert "Native" in type(norm(x).grad_fn).__name__


def test_a_single_value_in_a_channel_is_refused_as_ever():
    with TwiceDifferentiable([]), pytest.raises(ValueError, match="more than 1 value per channel"):
        nn.BatchNorm2d(2)(torch.randn(1, 2, 1, 1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_mixed_precision_is_left_to_torch(dtype):
    x = torch.randn(3, 2, 4, 4, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16), TwiceDifferentiable([]):
        name = type(nn.BatchNorm2d(2, affine=False)(x).grad_fn).__name__
    assert ("Native" in name) == (dtype is torch.bfloat16)
