"""Per-sample gradients of a layer's parameters, from the layer's input and the gradient of its output.

For a call z = layer(x; θ) and cotangents B = ∂f/∂z, sample i's share of the gradient is G_i = B_iᵀ · ∂z_i/∂θ.
The shares of a batch add up to ∂f/∂θ. The general rule computes the layer again for each sample; `RULES` has
faster ones for common layers. A layer whose output depends on more than its input, such as random numbers or
attributes, returns another output then, and raises an `IncompleteError`.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn import functional as F

from nas_lightning.spaces.depthwise import DepthwiseConv2d

Rule = Callable[[nn.Module, Tensor, Tensor], Iterator[Tensor]]
"""(layer, input, gradient of the output) → one row per sample, in blocks of columns: each (m, columns)."""

CONVOLUTIONS = (nn.Conv2d, DepthwiseConv2d)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)

_BLOCK = 2**23  # entries of a block, which bounds the memory of wide layers


class IncompleteError(Exception):
    """The recorded calls do not cover every trainable parameter."""


def positions(x: Tensor) -> Tensor:
    """(m, …, features) → (m, positions, features)."""
    return x.reshape(len(x), -1, x.shape[-1])


def linear_weight(layer: nn.Module, x: Tensor, dz: Tensor) -> Iterator[Tensor]:
    # G_i = Σ_t B_it A_itᵀ
    yield torch.bmm(positions(dz).transpose(1, 2), positions(x)).flatten(1)


def _linear_bias(layer: nn.Module, x: Tensor, dz: Tensor) -> Iterator[Tensor]:
    yield positions(dz).sum(dim=1)


def _conv2d_weight(layer: nn.Module, x: Tensor, dz: Tensor) -> Iterator[Tensor]:
    assert isinstance(layer, nn.Conv2d)
    padding = layer.padding
    if isinstance(padding, str) or layer.padding_mode != "zeros":
        x, padding = _pad(layer, x), (0, 0)
    channels = layer.out_channels
    if layer.groups == 1:  # a group's channels stay together
        channels = max(1, _BLOCK // (len(x) * layer.weight[0].numel()))
    few = layer.groups == 1 and 4 * dz.shape[2:].numel() <= layer.in_channels
    share = _share_as_product if few else _share_as_convolution
    for block in dz.split(channels, dim=1):
        yield share(layer, x, block, padding)


def _share_as_product(layer: nn.Conv2d, x: Tensor, dz: Tensor, padding: tuple[int, ...]) -> Tensor:
    # G_i = B_i A_iᵀ, A the patches: faster with far fewer positions than channels
    patches = F.unfold(x, layer.kernel_size, layer.dilation, padding, layer.stride)  # (m, c·k², positions)
    return torch.bmm(dz.flatten(2), patches.mT).flatten(1)


def _share_as_convolution(layer: nn.Conv2d, x: Tensor, dz: Tensor, padding: tuple[int, ...]) -> Tensor:
    # one convolution with a group per sample: the gradient of its weight holds that of every sample, at the
    # cost of the batch's
    m = len(x)
    weight = x.new_empty(m * dz.shape[1], *layer.weight.shape[1:])  # only its shape is used
    geometry = layer.stride, padding, layer.dilation, False, (0, 0), m * layer.groups
    together = (images.reshape(1, -1, *images.shape[2:]) for images in (dz, x))  # (1, m·c, h, w)
    wanted = (False, True, False)
    _, gradient, _ = torch.ops.aten.convolution_backward(*together, weight, None, *geometry, wanted)
    return gradient.reshape(m, -1)


def _pad(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """Pad the input as the layer's padding mode does."""
    border: list[int] = []
    for axis in (1, 0):  # F.pad starts with the last dimension
        if layer.padding == "same":
            total = layer.dilation[axis] * (layer.kernel_size[axis] - 1)
            border += [total // 2, total - total // 2]
        else:
            side = 0 if isinstance(layer.padding, str) else layer.padding[axis]
            border += [side, side]
    return F.pad(x, border, mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode)


def _conv2d_bias(layer: nn.Module, x: Tensor, dz: Tensor) -> Iterator[Tensor]:
    yield dz.sum(dim=(2, 3))


def _norm_weight(layer: nn.Module, x: Tensor, dz: Tensor) -> Iterator[Tensor]:
    # G_i = Σ_t B_it ⊙ x̂_it, x̂ the normalized input
    assert isinstance(layer, BATCH_NORMS)
    batch = layer.training or layer.running_mean is None
    statistics = (None, None) if batch else (layer.running_mean, layer.running_var)
    normalized = F.batch_norm(x, *statistics, training=batch, eps=layer.eps)
    yield (dz * normalized).flatten(2).sum(dim=2) if dz.dim() > 2 else dz * normalized


def _norm_bias(layer: nn.Module, x: Tensor, dz: Tensor) -> Iterator[Tensor]:
    yield dz.flatten(2).sum(dim=2) if dz.dim() > 2 else dz


_CONVOLUTION: Mapping[str, Rule] = {"weight": _conv2d_weight, "bias": _conv2d_bias}
_NORM: Mapping[str, Rule] = {"weight": _norm_weight, "bias": _norm_bias}
RULES: Mapping[type[nn.Module], Mapping[str, Rule]] = {
    nn.Linear: {"weight": linear_weight, "bias": _linear_bias},
    nn.Conv2d: _CONVOLUTION,
    DepthwiseConv2d: _CONVOLUTION,
    nn.BatchNorm1d: _NORM,
    nn.BatchNorm2d: _NORM,
    nn.SyncBatchNorm: _NORM,
}


def covers(layer: nn.Module) -> bool:
    """Return whether there is a rule for the layer.

    >>> covers(nn.LayerNorm(4)), covers(nn.MultiheadAttention(4, 2)), covers(nn.ReLU())
    (True, False, False)
    """
    if rules_of(layer):
        return True
    if isinstance(layer, torch.jit.ScriptModule) or getattr(layer, "scale_grad_by_freq", False):
        return False  # without hooks; with gradients scaled by the batch
    own = any(True for _ in layer.parameters(recurse=False))
    deeper = any(True for child in layer.children() for _ in child.parameters())
    return own and not deeper and not (_has_batch_statistics(layer) and layer.running_mean is None)


def rules_of(layer: nn.Module) -> Mapping[str, Rule]:
    """Return the faster rules by parameter name, none if the layer's forward method was replaced."""
    return {} if "forward" in vars(layer) else RULES.get(type(layer), {})


def rule_of(layer: nn.Module, name: str, mark: Tensor | None) -> Rule:
    """Return the rule for the layer's parameter `name`."""
    rule = rules_of(layer).get(name)
    if rule is None and mark is not None:
        rule = partial(_each_sample, name, mark)
    assert rule is not None, "a layer without rules must be marked"
    return rule


def mark_of(output: Tensor) -> Tensor:
    """Return checksums of an output: (m, …) → (m,)."""
    rows = output.detach().reshape(len(output), -1)
    return rows @ _wave(rows)


def _wave(rows: Tensor) -> Tensor:
    return torch.arange(rows.shape[-1], device=rows.device).cos().to(rows.dtype)


def _each_sample(name: str, mark: Tensor, layer: nn.Module, x: Tensor, dz: Tensor) -> Iterator[Tensor]:
    # G_i = B_iᵀ · ∂layer(x_i; θ)/∂θ
    parameter = layer.get_parameter(name).detach()
    with _fixed_statistics(layer, x) as statistics, _without_hooks(layer):

        def share(x_i: Tensor, dz_i: Tensor) -> tuple[Tensor, ...]:
            def output(value: Tensor) -> Tensor:
                return functional_call(layer, {name: value, **statistics}, (x_i.unsqueeze(0),)).squeeze(0)

            returned, pull = vjp(output, parameter)[:2]
            z_i = returned.detach().flatten()
            return pull(dz_i)[0].to_dense().flatten(), z_i @ _wave(z_i), z_i.norm()

        try:
            rows, marks, sizes = _map_samples(share, x, dz, parameter.numel())
        except Exception as error:  # custom layers raise all kinds
            raise IncompleteError(f"{type(layer).__name__} asks for more than its input") from error
    if bool(((marks - mark).abs() > torch.finfo(mark.dtype).eps ** 0.5 * sizes).any()):
        raise IncompleteError(f"{type(layer).__name__} gives another output for the same input")
    yield rows


def _map_samples(
    share: Callable[..., tuple[Tensor, ...]], x: Tensor, dz: Tensor, width: int
) -> Sequence[Tensor]:
    try:
        with warnings.catch_warnings():  # of layers that vmap computes one by one
            warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
            return vmap(share, chunk_size=max(1, _BLOCK // width))(x, dz)
    except Exception:  # without a rule for vmap
        shares = [share(*sample) for sample in zip(x, dz, strict=True)]
        return [torch.stack(parts) for parts in zip(*shares, strict=True)]


def _has_batch_statistics(layer: nn.Module) -> bool:
    return isinstance(layer, BATCH_NORMS) and layer.training


@contextmanager
def _without_hooks(layer: nn.Module) -> Iterator[None]:
    """Do not call forward hooks; pre-hooks stay, since some compute weights. torch has no public way."""
    hooks, layer._forward_hooks = layer._forward_hooks, OrderedDict()
    try:
        yield
    finally:
        layer._forward_hooks = hooks


@contextmanager
def _fixed_statistics(layer: nn.Module, x: Tensor) -> Iterator[Mapping[str, Tensor]]:
    """Use the statistics of the batch as a norm's running ones, so that samples are independent."""
    if not _has_batch_statistics(layer):
        yield {}
        return
    axes = [axis for axis in range(x.dim()) if axis != 1]
    layer.training = False
    try:
        yield {"running_mean": x.mean(axes), "running_var": x.var(axes, correction=0)}
    finally:
        layer.training = True
