"""Operations by name: each registers itself in its own file, a user's own by its dotted name.

An operation is what `(channels, stride, norm)` builds: a module that keeps the channels and divides the
resolution by the stride. `norm(channels)` is the batch norm to use. One that starts with a ReLU says so
(`NeedsReLU`) and expects its input already rectified: a node does that once for all its edges.

    @operation()
    class GhostConv(nn.Module):  # in my_ops.py: space.ops=[skip_connect,my_ops.GhostConv]
        def __init__(self, channels: int, stride: int, norm: Norm) -> None: …
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib import import_module
from typing import Literal, NamedTuple, TypeVar

import torch
from torch import nn

from nas_lightning.errors import InputError, near_match
from nas_lightning.spaces.ops.norm import Norm

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
    >>> conv.kind, conv.is_own, conv.build(4, 2, nn.BatchNorm2d)(torch.rand(1, 4, 6, 6)).shape
    ('learned', False, torch.Size([1, 4, 3, 3]))
    """

    name: str
    build: OpFactory
    kind: OpKind
    target: str

    @property
    def is_own(self) -> bool:
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
    _register_ours()
    if name not in _OPERATIONS:
        raise InputError(f"{expected} ({near_match(name, _OPERATIONS)})", got=name)
    return _OPERATIONS[name]


def is_operation(name: str) -> bool:
    """Whether an operation of that name is registered; `none` counts."""
    _register_ours()
    return name == NONE or name in _OPERATIONS


def all_operations() -> tuple[Operation, ...]:
    """All that are registered."""
    _register_ours()
    return tuple(_OPERATIONS.values())


def operation_names(ops: Iterable[str | OpFactory]) -> tuple[str, ...]:
    """The candidates of a space by name; a user's own are imported and registered.

    >>> operation_names(["none", "skip_connect", "nas_lightning.spaces.ops.pooling.max_pool_3x3"])
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
    return [op.target for op in found if op.is_own]


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


@cache
def _register_ours() -> None:
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(import_module(package).__path__):
        import_module(f"{package}.{module.name}")
