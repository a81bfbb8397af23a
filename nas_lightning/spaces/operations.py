"""Candidate operations: their layers, factories, and names.

An operation is what `(channels, stride, norm)` builds: a module that keeps the number of channels and divides
the resolution by the stride; `norm(channels)` is the batch norm to use. An operation that starts with a ReLU
is a `NeedsReLU` and expects rectified input: a node applies the ReLU once for all its edges.

    @operation()
    class GhostConv(nn.Module):  # in my_ops.py: space.ops=[skip_connect,my_ops.GhostConv]
        def __init__(self, channels: int, stride: int, norm: Norm) -> None: …
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.errors import InputError, near_match
from nas_lightning.spaces.depthwise import DepthwiseConv2d
from nas_lightning.spaces.recomputation import is_bare, run_layers
from nas_lightning.utils.devices import double

# Batch norms


@dataclass(frozen=True)
class Norm:
    """Settings of a network's batch norms.

    Args:
        affine: whether they have a scale and a shift.
        tracked: whether they have running statistics.
        after_pool: whether one follows each pooling operation. Supernets have it, to keep the candidates of
            an edge on one scale; derived networks do not.

    >>> norm = Norm(affine=False)(8)
    >>> norm.affine, norm.track_running_stats
    (False, True)
    """

    affine: bool = True
    tracked: bool = True
    after_pool: bool = False

    def __call__(self, channels: int) -> nn.BatchNorm2d:
        return nn.BatchNorm2d(channels, affine=self.affine, track_running_stats=self.tracked)

    def outside_cells(self, channels: int) -> nn.BatchNorm2d:
        """Return a norm of a stem or head, which has parameters because all paths share it."""
        return nn.BatchNorm2d(channels, track_running_stats=self.tracked)


TRAIN_NORM = Norm()
# All paths share a supernet's norms, so these have no parameters or statistics that one path sets for others.
SEARCH_NORM = Norm(affine=False, tracked=False, after_pool=True)


# Layers


class NeedsReLU:
    """Marks a module whose caller applies a ReLU to the input.

    >>> layers = PreActivated(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
    >>> isinstance(layers, NeedsReLU), isinstance(nn.Identity(), NeedsReLU)
    (True, False)
    """


class PreActivated(NeedsReLU, nn.Sequential):
    """A sequence of layers whose caller applies a ReLU to the input.

    >>> conv = PreActivated(nn.Conv2d(4, 8, 1), nn.BatchNorm2d(8))
    >>> conv(torch.rand(2, 4, 6, 6).relu()).shape
    torch.Size([2, 8, 6, 6])
    """

    def forward(self, x: Tensor) -> Tensor:
        return run_layers([*self], x)


class Pick(nn.Module):
    """Every `stride`-th row and column of the pixels, starting with number `first`.

    Args:
        stride: of rows and columns.
        first: the number of the first row and column.

    >>> Pick(2, first=1)(torch.arange(16.0).view(1, 1, 4, 4)).flatten().tolist()
    [5.0, 7.0, 13.0, 15.0]
    """

    def __init__(self, stride: int, first: int = 0) -> None:
        super().__init__()
        self.pixels = slice(first, None, stride)

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, self.pixels, self.pixels]


class FactorizedReduce(NeedsReLU, nn.Module):
    """Halve the resolution with two 1×1 convolutions, the second shifted by one pixel.

    The pixels are selected before the convolutions, which therefore have no stride: oneDNN's weight gradient
    of a strided channels-last 1×1 convolution of few channels writes out of bounds (oneDNN issue 6035).

    Args:
        c_in: channels of the input.
        c_out: channels of the output.
        norm: after the convolutions.

    >>> FactorizedReduce(4, 8, nn.BatchNorm2d)(torch.rand(2, 4, 6, 6)).shape
    torch.Size([2, 8, 3, 3])
    """

    def __init__(self, c_in: int, c_out: int, norm: Norm) -> None:
        super().__init__()
        self.even_pixels, self.odd_pixels = Pick(2), Pick(2, first=1)
        self.even = nn.Conv2d(c_in, c_out // 2, 1, bias=False)
        self.odd = nn.Conv2d(c_in, c_out - c_out // 2, 1, bias=False)
        self.norm = norm(c_out)

    def forward(self, x: Tensor) -> Tensor:  # (b, c_in, h, w) → (b, c_out, ⌈h/2⌉, ⌈w/2⌉)
        even, odd = self.even_pixels(x), self.odd_pixels(x)
        height, width = x.shape[-2:]
        if height % 2 or width % 2:  # of an odd number of pixels, one more is even
            odd = F.pad(odd, (0, width % 2, 0, height % 2))
        return self.norm(torch.cat([self.even(even), self.odd(odd)], dim=1))


class ReduceByPool(nn.Sequential):
    """Average pooling with a 1×1 convolution: the shortcut of NAS-Bench-201's residual block.

    Args:
        c_in: channels of the input.
        c_out: channels of the output.

    >>> ReduceByPool(4, 8)(torch.rand(2, 4, 6, 6)).shape
    torch.Size([2, 8, 3, 3])
    """

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__(nn.AvgPool2d(2, ceil_mode=True), nn.Conv2d(c_in, c_out, 1, bias=False))


def conv_norm(c_in: int, c_out: int, kernel: int, stride: int, norm: Norm) -> PreActivated:
    """Build convolution, batch norm; the caller applies a ReLU before."""
    if kernel == 1 and stride > 1:  # selects the pixels first, for the reason given in `FactorizedReduce`
        return PreActivated(Pick(stride), nn.Conv2d(c_in, c_out, 1, bias=False), norm(c_out))
    conv = nn.Conv2d(c_in, c_out, kernel, stride=stride, padding=kernel // 2, bias=False)
    return PreActivated(conv, norm(c_out))


def conv_norm_relu(c_in: int, c_out: int, kernel: int, norm: nn.Module, stride: int = 1) -> nn.Sequential:
    """Build convolution, batch norm, ReLU."""
    if kernel == 1 and stride > 1:  # as in `conv_norm`
        conv = nn.Conv2d(c_in, c_out, 1, bias=False)
        return nn.Sequential(Pick(stride), conv, norm, nn.ReLU())
    conv = nn.Conv2d(c_in, c_out, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(conv, norm, nn.ReLU())


def separable(channels: int, kernel: int, stride: int, dilation: int = 1) -> list[nn.Module]:
    """Build a depthwise and a 1×1 convolution."""
    if dilation == stride > 1:
        # The pixels in between are never read. Without them there is no dilation; oneDNN's gradients of
        # strided dilated convolutions take ten to twenty times as long.
        return [Pick(stride), *separable(channels, kernel, stride=1)]
    return [depthwise(channels, kernel, stride, dilation), nn.Conv2d(channels, channels, 1, bias=False)]


def depthwise(channels: int, kernel: int, stride: int, dilation: int) -> nn.Conv2d:
    """Build a depthwise convolution, with fast gradients where `DepthwiseConv2d` has some."""
    if stride == 1 and (kernel == 5 or (kernel, dilation) == (3, 2)):
        return DepthwiseConv2d(channels, kernel, dilation)
    padding = dilation * (kernel // 2)
    return nn.Conv2d(
        channels, channels, kernel, stride, padding, dilation=dilation, groups=channels, bias=False
    )


def weighted(op: nn.Module, x: Tensor, weight: Tensor) -> Tensor:
    """Return weight · op(x), for a scalar weight.

    A bare batch norm at the end of the operation takes the weight as its scale. This saves a pass over the
    maps, and the gradient of the weight need not save op(x): a factor of 1.17 in the speed of an architecture
    step (space=darts, batch size 16).

    >>> op = conv_norm(2, 2, 1, 1, Norm(affine=False, tracked=False))
    >>> x, weight = torch.randn(4, 2, 3, 3), torch.tensor(0.3)
    >>> torch.allclose(weighted(op, x, weight), 0.3 * op(x))
    True
    """
    if not isinstance(op, nn.Sequential):
        return op(x) * weight
    last = op[-1]
    if not is_bare(last):
        return op(x) * weight
    # repeat instead of expand: torch's kernel reads the scale as if it were contiguous
    scale = weight.to(torch.promote_types(x.dtype, torch.float32)).repeat(last.num_features)
    return run_layers([*op], x, scale)


# The registry of names

OpFactory = Callable[[int, int, Norm], nn.Module]
Factory = TypeVar("Factory", bound=OpFactory)
OpKind = Literal["skip", "pooling", "learned"]

NONE = "none"  # the zero operation, which is never built
SKIP = "skip_connect"


class Operation(NamedTuple):
    """A registered operation.

    Args:
        name: in spaces and genotypes.
        build: (channels, stride, norm) → module.
        kind: `skip`: the identity; `pooling`: has no parameters; `learned`: has parameters.
        target: the dotted name of `build`.

    >>> conv = find_operation("sep_conv_3x3")
    >>> conv.kind, conv.is_custom, conv.build(4, 2, nn.BatchNorm2d)(torch.rand(1, 4, 6, 6)).shape
    ('learned', False, torch.Size([1, 4, 3, 3]))
    """

    name: str
    build: OpFactory
    kind: OpKind
    target: str

    @property
    def is_custom(self) -> bool:
        """Whether it is the user's own; a file may name it only if the user has named it, too."""
        return not self.target.startswith("nas_lightning.")


_OPERATIONS: dict[str, Operation] = {}


def operation(name: str | None = None, *, kind: OpKind | None = None) -> Callable[[Factory], Factory]:
    """Register the decorated class or function as an operation.

    Args:
        name: None: its dotted name.
        kind: None: determined from its parameters.
    """

    def register(build: Factory) -> Factory:
        add_operation(build, name, kind)
        return build

    return register


def add_operation(target: str | OpFactory, name: str | None = None, kind: OpKind | None = None) -> Operation:
    """Register an operation by its class or function, or by its dotted name."""
    build = _import(target) if isinstance(target, str) else target
    for known in _OPERATIONS.values():
        if known.build is build:  # the import has registered it
            return known
    function = build.func if isinstance(build, partial) else build
    dotted = f"{function.__module__}.{function.__qualname__}"
    taken = _OPERATIONS.get(name or dotted)
    if taken is not None and taken.target != dotted:  # notebooks define the same class again
        raise InputError(f"The name is already that of {taken.target}", got=taken.name)
    added = Operation(name or dotted, build, kind or _kind_of(build, dotted), dotted)
    _OPERATIONS[added.name] = added
    return added


def find_operation(name: str, expected: str = "Unknown operation") -> Operation:
    """Return the registered operation of that name, without importing anything.

    Args:
        name: its name in files and configurations.
        expected: the start of the error message.

    >>> find_operation("max_pool_3x3").kind
    'pooling'
    """
    if name not in _OPERATIONS:
        raise InputError(f"{expected} ({near_match(name, _OPERATIONS)})", got=name)
    return _OPERATIONS[name]


def is_operation(name: str) -> bool:
    """Return whether an operation of that name is registered, or the name is `none`."""
    return name == NONE or name in _OPERATIONS


def all_operations() -> tuple[Operation, ...]:
    """Return all registered operations."""
    return tuple(_OPERATIONS.values())


def operation_names(ops: Iterable[str | OpFactory]) -> tuple[str, ...]:
    """Return the names of a space's candidates; import and register the user's own.

    >>> operation_names(["none", "skip_connect", "nas_lightning.spaces.operations.max_pool_3x3"])
    ('none', 'skip_connect', 'max_pool_3x3')
    """
    if isinstance(ops, str) or not isinstance(ops, Iterable):
        raise InputError("`ops` must be a list of operations", got=ops, where="space.ops")
    names = tuple(op if isinstance(op, str) and is_operation(op) else add_operation(op).name for op in ops)
    if not names or len({*names}) < len(names):
        raise InputError(
            "`ops` must be distinct, with at least one other than none", got=[*names], where="space.ops"
        )
    return names


def custom_targets(names: Iterable[str]) -> list[str]:
    """Return the dotted names of the user's own operations among these candidates."""
    found = [find_operation(name) for name in names if name != NONE]
    return [op.target for op in found if op.is_custom]


def build_op(name: str, channels: int, stride: int, norm: Norm) -> nn.Module:
    """Build the operation; it keeps the number of channels and divides the resolution by `stride`."""
    return find_operation(name).build(channels, stride, norm)


def has_parameters(name: str) -> bool:
    """Return whether an operation of stride 1 has parameters.

    >>> [has_parameters(name) for name in ("sep_conv_3x3", "skip_connect", "max_pool_3x3", "none")]
    [True, False, False, False]
    """
    return name != NONE and find_operation(name).kind == "learned"


def _kind_of(build: OpFactory, dotted: str) -> OpKind:
    try:
        with torch.device("meta"):  # draws no random numbers
            module = build(16, 1, Norm(affine=False))
    except TypeError as error:
        expected = f"An operation must take the arguments (channels, stride, norm): {error}"
        raise InputError(expected, got=dotted) from None
    if isinstance(module, nn.Identity):
        return "skip"
    return "learned" if any(True for _ in module.parameters()) else "pooling"


def _import(target: str) -> OpFactory:
    """Import the user's class or function by its dotted name."""
    module, _, name = target.rpartition(".")
    if not module:
        find_operation(target)  # raises with the known names
    try:
        build = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"Cannot import the operation: {error}", got=target, where="space.ops") from None
    if not callable(build):
        raise InputError(
            "An operation must be a class or function that builds a module", got=target, where="space.ops"
        )
    return build


# Convolutions: separable and dilated (DARTS, arXiv:1806.09055), wide (NASNet, arXiv:1707.07012), plain
# (NAS-Bench-201, arXiv:2001.00326)


def sep_conv(channels: int, stride: int, norm: Norm, *, kernel: int) -> nn.Module:
    """Build two separable convolutions."""
    first = [*separable(channels, kernel, stride), norm(channels)]
    second = [*separable(channels, kernel, 1), norm(channels)]
    return PreActivated(*first, nn.ReLU(), *second)


def dil_conv(channels: int, stride: int, norm: Norm, *, kernel: int) -> nn.Module:
    """Build a separable convolution of dilation 2."""
    return PreActivated(*separable(channels, kernel, stride, dilation=2), norm(channels))


def nor_conv(channels: int, stride: int, norm: Norm, *, kernel: int) -> nn.Module:
    """Build a plain convolution."""
    return conv_norm(channels, channels, kernel, stride, norm)


@operation("conv_7x1_1x7")
def conv_7x1_1x7(channels: int, stride: int, norm: Norm) -> nn.Module:
    """Build a wide convolution, along rows and then along columns."""
    return PreActivated(
        nn.Conv2d(channels, channels, (1, 7), stride=(1, stride), padding=(0, 3), bias=False),
        nn.Conv2d(channels, channels, (7, 1), stride=(stride, 1), padding=(3, 0), bias=False),
        norm(channels),
    )


for build, kernels in ((sep_conv, (3, 5, 7)), (dil_conv, (3, 5)), (nor_conv, (1, 3))):
    for kernel in kernels:
        operation(f"{build.__name__}_{kernel}x{kernel}")(partial(build, kernel=kernel))


# Pooling of 3×3 pixels (DARTS, section 3.1.1)


@operation("max_pool_3x3", kind="pooling")
def max_pool_3x3(channels: int, stride: int, norm: Norm) -> nn.Module:
    return _with_norm(nn.MaxPool2d(3, stride, padding=1), channels, norm)


@operation("avg_pool_3x3", kind="pooling")
def avg_pool_3x3(channels: int, stride: int, norm: Norm) -> nn.Module:
    """Build average pooling that does not count the padding."""
    return _with_norm(nn.AvgPool2d(3, stride, padding=1, count_include_pad=False), channels, norm)


def _with_norm(pool: nn.Module, channels: int, norm: Norm) -> nn.Module:
    return nn.Sequential(pool, norm(channels)) if norm.after_pool else pool


# Skip connections (DARTS, section 3.1.1)


@operation(SKIP, kind="skip")
def skip_connect(channels: int, stride: int, norm: Norm) -> nn.Module:
    """Build the identity, or a `FactorizedReduce` for stride 2."""
    return nn.Identity() if stride == 1 else FactorizedReduce(channels, channels, norm)


# Operations of NAS-Bench-101's vertices (arXiv:1902.09635, section 2.1)


def conv_bn_relu(channels: int, stride: int, norm: Norm, *, kernel: int) -> nn.Module:
    return conv_norm_relu(channels, channels, kernel, norm(channels), stride)


@operation("maxpool3x3", kind="pooling")
def maxpool3x3(channels: int, stride: int, norm: Norm) -> nn.Module:
    """Build max pooling without a norm, also in supernets."""
    return nn.MaxPool2d(3, stride, padding=1)


for kernel in (3, 1):
    operation(f"conv{kernel}x{kernel}-bn-relu")(partial(conv_bn_relu, kernel=kernel))


# Noise (RobustDARTS, Zela et al. 2020, arXiv:1909.09656, section 3): an operation that no architecture should
# have. The numbers are a hash of the image, so they repeat when a search resumes or a cell is recomputed.

_GOLDEN, _FIRST, _SECOND = -7046029254386353131, -4658895280553007687, -7723592293110705685
"""The constants of SplitMix64 (Steele et al. 2014) as signed integers."""


@operation("noise", kind="pooling")
class NoiseOp(nn.Module):
    """N(0, 1) noise, independent of the input.

    Args:
        channels: of the input.
        stride: by which the resolution is divided.
        norm: unused.

    >>> op, image = NoiseOp(2, 1, Norm()), torch.ones(1, 2, 8, 8)
    >>> torch.equal(op(image), op(image)), torch.equal(op(image), op(2 * image))
    (True, False)
    """

    def __init__(self, channels: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        keys = double(x.detach()).sum(dim=(1, 2, 3)).view(torch.int64)
        return normal(keys, x[:, :, :: self.stride, :: self.stride])


def normal(keys: Tensor, like: Tensor) -> Tensor:
    """Return standard normal numbers determined by the key of each image: (b,) → (b, c, h, w).

    √(−2 ln u) cos(2π v), with u and v uniform (Box and Muller).
    """
    index = torch.arange(2 * like[0].numel(), device=keys.device)
    u, v = uniform(keys[:, None] + _GOLDEN * (index + 1)).chunk(2, dim=1)
    return (torch.sqrt(-2 * torch.log(u)) * torch.cos(2 * math.pi * v)).view(like.shape).to(like)


def uniform(numbers: Tensor) -> Tensor:
    """Return SplitMix64's hash of integers as float64 numbers in (0, 1)."""
    mixed = (numbers ^ _shift(numbers, 30)) * _FIRST
    mixed = (mixed ^ _shift(mixed, 27)) * _SECOND
    mixed = mixed ^ _shift(mixed, 31)
    return (_shift(mixed, 11).double() + 0.5) * 2.0**-53


def _shift(numbers: Tensor, bits: int) -> Tensor:
    """Shift right without keeping the sign."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)
