"""Candidate operations: layers, their factories, and the registry of names."""

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

# How the batch norms of operations behave, in a search and in training.


@dataclass(frozen=True)
class Norm:
    """How the batch norms of a network behave.

    `affine` and `tracked` are torch's; `after_pool` adds one behind each pooling operation, which supernets
    need to keep the candidates of an edge on one scale and which derived networks leave out.

    Args:
        affine: whether they scale and shift.
        tracked: whether they keep running statistics.
        after_pool: whether there is one behind each pooling operation.

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
        """The norms of stems and heads, which every path has in common, keep their parameters."""
        return nn.BatchNorm2d(channels, track_running_stats=self.tracked)


TRAIN_NORM = Norm()
# Paths share a supernet's norms: without parameters or running statistics none can spoil another's.
SEARCH_NORM = Norm(affine=False, tracked=False, after_pool=True)


# What operations are made of.


class NeedsReLU:
    """Marks a module that stands behind a ReLU and leaves it to its caller.

    >>> layers = PreActivated(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
    >>> isinstance(layers, NeedsReLU), isinstance(nn.Identity(), NeedsReLU)
    (True, False)
    """


class PreActivated(NeedsReLU, nn.Sequential):
    """Layers in a row, behind a ReLU.

    >>> conv = PreActivated(nn.Conv2d(4, 8, 1), nn.BatchNorm2d(8))
    >>> conv(torch.rand(2, 4, 6, 6).relu()).shape
    torch.Size([2, 8, 6, 6])
    """

    def forward(self, x: Tensor) -> Tensor:
        return run_layers([*self], x)


class Pick(nn.Module):
    """The pixels of every `stride`-th row and column, from the one numbered `first` on.

    A slice's gradient is laid out in the order of the dimensions, hence the channels are last when it is cut.

    Args:
        stride: of rows and columns.
        first: the number of the first.

    >>> Pick(2, first=1)(torch.arange(16.0).view(1, 1, 4, 4)).flatten().tolist()
    [5.0, 7.0, 13.0, 15.0]
    """

    def __init__(self, stride: int, first: int = 0) -> None:
        super().__init__()
        self.pixels = slice(first, None, stride)

    def forward(self, x: Tensor) -> Tensor:
        return x.movedim(1, -1)[:, self.pixels, self.pixels].movedim(-1, 1)


class FactorizedReduce(NeedsReLU, nn.Module):
    """Halve the resolution with two 1×1 convolutions, one of them shifted by a pixel, to lose none.

    The pixels are picked before the convolutions, which then need no stride: with one, oneDNN's weight
    gradient of a channels-last 1×1 convolution of few channels writes out of bounds (oneDNN issue 6035).

    Args:
        c_in: channels of the input.
        c_out: channels of the output.
        norm: behind the convolutions.

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
        if height % 2 or width % 2:  # an odd side has one even pixel more than odd ones
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
    """(ReLU,) convolution, batch norm."""
    if kernel == 1 and stride > 1:  # picks the pixels first, as `FactorizedReduce` does and for its reason
        return PreActivated(Pick(stride), nn.Conv2d(c_in, c_out, 1, bias=False), norm(c_out))
    conv = nn.Conv2d(c_in, c_out, kernel, stride=stride, padding=kernel // 2, bias=False)
    return PreActivated(conv, norm(c_out))


def separable(channels: int, kernel: int, stride: int, dilation: int = 1) -> list[nn.Module]:
    """A depthwise convolution and a 1×1 one."""
    if dilation == stride > 1:
        # Nothing is read of the pixels between. Without them there is no dilation, whose gradients together
        # with a stride take oneDNN ten to twenty times as long.
        return [Pick(stride), *separable(channels, kernel, stride=1)]
    return [depthwise(channels, kernel, stride, dilation), nn.Conv2d(channels, channels, 1, bias=False)]


def depthwise(channels: int, kernel: int, stride: int, dilation: int) -> nn.Conv2d:
    """A convolution of each channel by itself."""
    if stride == 1 and (kernel == 5 or (kernel, dilation) == (3, 2)):
        return DepthwiseConv2d(channels, kernel, dilation)
    padding = dilation * (kernel // 2)
    return nn.Conv2d(
        channels, channels, kernel, stride, padding, dilation=dilation, groups=channels, bias=False
    )


def weighted(op: nn.Module, x: Tensor, weight: Tensor) -> Tensor:
    """weight · op(x), for a scalar weight.

    A batch norm without a scale of its own, at the end of the operation, takes the weight as its scale. That
    saves a pass over the images, and the gradient of the weight needs no op(x) kept for it.

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
    # repeated, not expanded: torch's kernel reads the scale as if it were contiguous
    scale = weight.to(torch.promote_types(x.dtype, torch.float32)).repeat(last.num_features)
    return run_layers([*op], x, scale)


# Operations by name: each registers itself in its own file, a user's own by its dotted name.
#
# An operation is what `(channels, stride, norm)` builds: a module that keeps the channels and divides the
# resolution by the stride. `norm(channels)` is the batch norm to use. One that starts with a ReLU says so
# (`NeedsReLU`) and expects its input already rectified: a node does that once for all its edges.
#
#     @operation()
#     class GhostConv(nn.Module):  # in my_ops.py: space.ops=[skip_connect,my_ops.GhostConv]
#         def __init__(self, channels: int, stride: int, norm: Norm) -> None: …

OpFactory = Callable[[int, int, Norm], nn.Module]
Factory = TypeVar("Factory", bound=OpFactory)
OpKind = Literal["skip", "pooling", "learned"]

NONE = "none"  # contributes nothing, so it is never built
SKIP = "skip_connect"


class Operation(NamedTuple):
    """A candidate of cells.

    Args:
        name: in spaces and genotypes.
        build: (channels, stride, norm) → the module.
        kind: skip: hands on what it gets; pooling: learns nothing; learned: has parameters.
        target: the dotted name of what builds it.

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
        """Whether it is a user's own, which a file may name only where the user has named it too."""
        return not self.target.startswith("nas_lightning.")


_OPERATIONS: dict[str, Operation] = {}


def operation(name: str | None = None, *, kind: OpKind | None = None) -> Callable[[Factory], Factory]:
    """Register what builds an operation.

    Args:
        name: None: its dotted name.
        kind: None: as its parameters say.
    """

    def register(build: Factory) -> Factory:
        add_operation(build, name, kind)
        return build

    return register


def add_operation(target: str | OpFactory, name: str | None = None, kind: OpKind | None = None) -> Operation:
    """Register an operation, imported where its dotted name is given."""
    build = _import(target) if isinstance(target, str) else target
    for known in _OPERATIONS.values():
        if known.build is build:  # its file has registered it
            return known
    plain = build.func if isinstance(build, partial) else build
    dotted = f"{plain.__module__}.{plain.__qualname__}"
    taken = _OPERATIONS.get(name or dotted)
    if taken is not None and taken.target != dotted:  # the same again comes of a notebook
        raise InputError(f"expected another name than that of {taken.target}", got=taken.name)
    added = Operation(name or dotted, build, kind or _measured_kind(build, dotted), dotted)
    _OPERATIONS[added.name] = added
    return added


def find_operation(name: str, expected: str = "expected an operation") -> Operation:
    """The registered operation of that name; nothing of a user's is imported.

    Args:
        name: as files and configurations have it.
        expected: how the message begins where there is none.

    >>> find_operation("max_pool_3x3").kind
    'pooling'
    """
    if name not in _OPERATIONS:
        raise InputError(f"{expected} ({near_match(name, _OPERATIONS)})", got=name)
    return _OPERATIONS[name]


def is_operation(name: str) -> bool:
    """Whether an operation of that name is registered; `none` counts."""
    return name == NONE or name in _OPERATIONS


def all_operations() -> tuple[Operation, ...]:
    """All that are registered."""
    return tuple(_OPERATIONS.values())


def operation_names(ops: Iterable[str | OpFactory]) -> tuple[str, ...]:
    """The candidates of a space by name; a user's own are imported and registered.

    >>> operation_names(["none", "skip_connect", "nas_lightning.spaces.operations.max_pool_3x3"])
    ('none', 'skip_connect', 'max_pool_3x3')
    """
    if isinstance(ops, str) or not isinstance(ops, Iterable):
        raise InputError("expected a list of operations", got=ops, where="space.ops")
    names = tuple(op if isinstance(op, str) and is_operation(op) else add_operation(op).name for op in ops)
    if not names or len({*names}) < len(names):
        raise InputError("expected distinct operations, one other than none", got=[*names], where="space.ops")
    return names


def own_targets(names: Iterable[str]) -> list[str]:
    """The dotted names of a user's own among these candidates."""
    found = [find_operation(name) for name in names if name != NONE]
    return [op.target for op in found if op.is_custom]


def build_op(name: str, channels: int, stride: int, norm: Norm) -> nn.Module:
    """The operation `name`; it keeps the number of channels and divides the resolution by `stride`."""
    return find_operation(name).build(channels, stride, norm)


def has_parameters(name: str) -> bool:
    """Whether an operation learns anything where it keeps the resolution.

    >>> [has_parameters(name) for name in ("sep_conv_3x3", "skip_connect", "max_pool_3x3", "none")]
    [True, False, False, False]
    """
    return name != NONE and find_operation(name).kind == "learned"


def _measured_kind(build: OpFactory, dotted: str) -> OpKind:
    try:
        with torch.device("meta"):  # draws no random numbers, which would depend on what was asked before
            module = build(16, 1, Norm(affine=False))
    except TypeError as error:
        raise InputError(f"expected what (channels, stride, norm) builds: {error}", got=dotted) from None
    if isinstance(module, nn.Identity):
        return "skip"
    return "learned" if any(True for _ in module.parameters()) else "pooling"


def _import(target: str) -> OpFactory:
    """What a user's dotted name stands for."""
    module, _, name = target.rpartition(".")
    if not module:
        find_operation(target)  # says what there is
    try:
        build = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"expected an operation that can be imported: {error}", got=target, where="space.ops"
        ) from None
    if not callable(build):
        raise InputError("expected what builds an operation", got=target, where="space.ops")
    return build


# Convolutions: separable and dilated (DARTS, arXiv:1806.09055), wide (NASNet), plain (arXiv:2001.00326).


def sep_conv(channels: int, stride: int, norm: Norm, *, kernel: int) -> nn.Module:
    """A separable convolution, twice."""
    first = [*separable(channels, kernel, stride), norm(channels)]
    second = [*separable(channels, kernel, 1), norm(channels)]
    return PreActivated(*first, nn.ReLU(), *second)


def dil_conv(channels: int, stride: int, norm: Norm, *, kernel: int) -> nn.Module:
    """A separable convolution that reads every second pixel."""
    return PreActivated(*separable(channels, kernel, stride, dilation=2), norm(channels))


def nor_conv(channels: int, stride: int, norm: Norm, *, kernel: int) -> nn.Module:
    """A plain convolution."""
    return conv_norm(channels, channels, kernel, stride, norm)


@operation("conv_7x1_1x7")
def conv_7x1_1x7(channels: int, stride: int, norm: Norm) -> nn.Module:
    """A wide convolution, along rows and then along columns."""
    return PreActivated(
        nn.Conv2d(channels, channels, (1, 7), stride=(1, stride), padding=(0, 3), bias=False),
        nn.Conv2d(channels, channels, (7, 1), stride=(stride, 1), padding=(3, 0), bias=False),
        norm(channels),
    )


for build, kernels in ((sep_conv, (3, 5, 7)), (dil_conv, (3, 5)), (nor_conv, (1, 3))):
    for kernel in kernels:
        operation(f"{build.__name__}_{kernel}x{kernel}")(partial(build, kernel=kernel))


# Pooling of 3×3 pixels (DARTS, arXiv:1806.09055, section 3.1.1).


@operation("max_pool_3x3", kind="pooling")
def max_pool_3x3(channels: int, stride: int, norm: Norm) -> nn.Module:
    return _with_norm(nn.MaxPool2d(3, stride, padding=1), channels, norm)


@operation("avg_pool_3x3", kind="pooling")
def avg_pool_3x3(channels: int, stride: int, norm: Norm) -> nn.Module:
    """The mean of the pixels that there are: the padding does not count."""
    return _with_norm(nn.AvgPool2d(3, stride, padding=1, count_include_pad=False), channels, norm)


def _with_norm(pool: nn.Module, channels: int, norm: Norm) -> nn.Module:
    return nn.Sequential(pool, norm(channels)) if norm.after_pool else pool


# Skip connections (DARTS, arXiv:1806.09055, section 3.1.1).


@operation(SKIP, kind="skip")
def skip_connect(channels: int, stride: int, norm: Norm) -> nn.Module:
    """The identity; where the resolution is halved, two 1×1 convolutions."""
    return nn.Identity() if stride == 1 else FactorizedReduce(channels, channels, norm)


# Operations on the vertices of NAS-Bench-101's modules (arXiv:1902.09635, section 2.1).


def conv_norm_relu(c_in: int, c_out: int, kernel: int, norm: nn.Module, stride: int = 1) -> nn.Sequential:
    """Convolution, batch norm, ReLU."""
    if kernel == 1 and stride > 1:  # as `conv_norm`, for its reason
        conv = nn.Conv2d(c_in, c_out, 1, bias=False)
        return nn.Sequential(Pick(stride), conv, norm, nn.ReLU())
    conv = nn.Conv2d(c_in, c_out, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(conv, norm, nn.ReLU())


def conv_bn_relu(channels: int, stride: int, norm: Norm, *, kernel: int) -> nn.Module:
    return conv_norm_relu(channels, channels, kernel, norm(channels), stride)


@operation("maxpool3x3", kind="pooling")
def maxpool3x3(channels: int, stride: int, norm: Norm) -> nn.Module:
    """Without a norm, in a supernet too."""
    return nn.MaxPool2d(3, stride, padding=1)


for kernel in (3, 1):
    operation(f"conv{kernel}x{kernel}-bn-relu")(partial(conv_bn_relu, kernel=kernel))


# Noise in place of an operation (RobustDARTS, Zela et al. 2020, arXiv:1909.09656, section 3).
#
# An operation that no architecture should have: what comes out says nothing of what came in. Its numbers are
# a hash of the image, so that they are the same whenever a search is resumed or a cell is computed again.

_GOLDEN, _FIRST, _SECOND = -7046029254386353131, -4658895280553007687, -7723592293110705685
"""The odd numbers of SplitMix64 (Steele et al. 2014), as signed ones."""


@operation("noise", kind="pooling")
class NoiseOp(nn.Module):
    """N(0, 1) of the shape of its input, whatever that is.

    Args:
        channels: of the input.
        stride: what it divides the resolution by.
        norm: has nothing to do.

    >>> op, image = NoiseOp(2, 1, Norm()), torch.ones(1, 2, 8, 8)
    >>> torch.equal(op(image), op(image)), torch.equal(op(image), op(2 * image))
    (True, False)
    """

    def __init__(self, channels: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        keys = x.detach().double().sum(dim=(1, 2, 3)).view(torch.int64)
        return normal(keys, x[:, :, :: self.stride, :: self.stride])


def normal(keys: Tensor, like: Tensor) -> Tensor:
    """Standard normal numbers that follow from the key of each image: (b,) → (b, c, h, w).

    √(−2 ln u) cos(2π v), with u and v uniform (Box and Muller).
    """
    index = torch.arange(2 * like[0].numel(), device=like.device)
    u, v = uniform(keys[:, None] + _GOLDEN * (index + 1)).chunk(2, dim=1)
    return (torch.sqrt(-2 * torch.log(u)) * torch.cos(2 * math.pi * v)).view(like.shape).to(like)


def uniform(numbers: Tensor) -> Tensor:
    """SplitMix64's hash of integers, as numbers in (0, 1), float64."""
    mixed = (numbers ^ _shift(numbers, 30)) * _FIRST
    mixed = (mixed ^ _shift(mixed, 27)) * _SECOND
    mixed = mixed ^ _shift(mixed, 31)
    return (_shift(mixed, 11).double() + 0.5) * 2.0**-53


def _shift(numbers: Tensor, bits: int) -> Tensor:
    """A logical shift to the right."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)
