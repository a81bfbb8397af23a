"""A user's own network, by the dotted name of what builds it.

A file may name it only where its user has named it, too: `modules=["my.net.MyNet"]`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, ClassVar

from torch import nn

from nas_lightning.checks import checked
from nas_lightning.errors import InputError
from nas_lightning.spaces.given.base import GivenNetwork, first_line

Builder = Callable[..., nn.Module]
CHANNELS, CLASSES = ("in_channels", "in_chans"), ("num_classes", "n_classes")
"""Arguments that are handed over to who names them."""
_OWN: dict[str, Builder] = {}


class OwnNetwork(GivenNetwork):
    """What a class or function of a user's own builds.

    It is given the images' channels as `in_channels` or `in_chans` and the number of classes as `num_classes`
    or `n_classes`, where it has such an argument.

    Args:
        path: the class or function, or its dotted name.
        args: what it takes besides.

    >>> space = OwnNetwork("torchvision.models.SqueezeNet", {"version": "1_1"})
    >>> space.network(space.genotype, in_channels=3, num_classes=2).num_classes
    2
    """

    name: ClassVar[str] = "module"
    key: ClassVar[str] = "path"

    @checked
    def __init__(self, path: str | Builder, args: Mapping[str, Any] = {}) -> None:
        super().__init__(path if isinstance(path, str) else add_module(path), args)

    @property
    def modules(self) -> tuple[str, ...]:
        return (self.title,)

    def build(self, in_channels: int, num_classes: int) -> nn.Module:
        builder = _OWN.get(self.title) or find_module(self.title)
        facts = {**dict.fromkeys(CHANNELS, in_channels), **dict.fromkeys(CLASSES, num_classes)}
        given = {name: value for name, value in facts.items() if name in arguments(builder)}
        try:
            network = builder(**{**given, **self.args})
        except Exception as error:  # whatever a user's own code raises
            expected = (
                f"expected what {self.title} is built with: {type(error).__name__}: {first_line(error)}"
            )
            raise InputError(expected, got={**given, **self.args}, where="network") from error
        if not isinstance(network, nn.Module):
            got = type(network).__name__
            raise InputError("expected what builds a torch.nn.Module", got=got, where="network.path")
        return network


def add_module(target: str | Builder) -> str:
    """Let files name this network of a user's own; returns the name that they have of it."""
    if isinstance(target, str):
        return target
    name = f"{target.__module__}.{target.__qualname__}"
    _OWN[name] = target
    return name


def check_allowed(wanted: Iterable[str], allowed: Iterable[str | Builder]) -> None:
    """Raise for a network of somebody's own that the user has not named."""
    known = {add_module(target) for target in allowed}
    for name in wanted:
        if name not in known:
            expected = "expected a network that you allow: modules=[…] with its class, or its dotted name"
            raise InputError(expected, got=name)


def arguments(builder: Builder) -> list[str]:
    """The names that it takes; none where it does not say."""
    try:
        return [*inspect.signature(builder).parameters]
    except ValueError:
        return []


def find_module(path: str) -> Builder:
    """The class or function of that dotted name."""
    module, _, name = path.rpartition(".")
    try:
        builder: Builder = getattr(import_module(module), name)
    except Exception as error:  # whatever a user's own module raises
        expected = f"expected a class or function that can be imported: {first_line(error)}"
        raise InputError(expected, got=path, where="network.path") from None
    if not callable(builder):
        raise InputError("expected what builds a torch.nn.Module", got=path, where="network.path")
    return builder
