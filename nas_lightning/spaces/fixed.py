"""Networks that are fixed: models of timm, of torchvision, and of the user."""

from __future__ import annotations

import inspect
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar

import timm
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torchvision import models

from nas_lightning.errors import InputError, near_match
from nas_lightning.frozen_map import FrozenMap
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.validation import checked

# A network that somebody has made, as a space of one architecture.
#
# So it is trained, resumed, saved, loaded, put into ensembles and compared as what a search finds; there is
# nothing in it to search. A new source of networks is one file with one subclass, and one yaml in
# `conf/network`.


class FixedNetwork(SearchSpace):
    """A network by its name and what it is built with.

    Args:
        title: its name among those of its source.
        args: what it is built with besides the images' channels and the number of classes.
    """

    def __init__(self, title: str, args: Mapping[str, Any]) -> None:
        self.title, self.args = title, dict(args)

    @abstractmethod
    def build(self, in_channels: int, num_classes: int) -> nn.Module:
        """The network with weights of its own."""

    @cached_property
    def settings(self) -> FrozenMap:
        return FrozenMap({self.key: self.title, **({"args": self.args} if self.args else {})})

    key: ClassVar[str] = "name"
    """The setting that names the network."""

    @property
    def groups(self) -> Mapping[str, Group]:
        return {}

    @property
    def genotype(self) -> Genotype:
        """The one architecture that there is."""
        return Genotype(self.name, {}, self.settings, {"network": self.title})

    def supernet(self, *, in_channels: int, num_classes: int, **size: Any) -> Supernet:
        raise InputError("expected a space with something to search", got=self.name, where="space")

    def network(self, genotype: Genotype, *, in_channels: int, num_classes: int) -> Any:  # type: ignore[override]
        self.check(genotype)
        return self.build(in_channels, num_classes)

    def discretize(self, scores: Mapping[str, Tensor]) -> Genotype:
        return self.genotype

    def sample(self, generator: torch.Generator) -> Genotype:
        return self.genotype

    def neighbors(self, genotype: Genotype) -> list[Genotype]:
        return []

    def parse(self, text: str | Mapping[str, Any]) -> Genotype:
        if isinstance(text, Mapping):
            return self.genotype_from_dict(text)
        if text != self.notation(self.genotype):
            raise InputError(f"expected {self.notation(self.genotype)}", got=text)
        return self.genotype

    def notation(self, genotype: Genotype) -> str:
        return (
            f"{self.title}({', '.join(f'{name}={value}' for name, value in self.args.items())})".removesuffix(
                "()"
            )
        )


def first_line(error: Exception) -> str:
    """What a library says first of what went wrong."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


# Whether somebody's network can be called as all networks are: with images, once its layers have shapes.


def check_callable(network: nn.Module) -> None:
    """Raise unless `network(x)` is what it asks for.

    >>> class N(nn.Module):
    ...     def forward(self):
    ...         return 0
    >>> check_callable(N())
    Traceback (most recent call last):
        ...
    nas_lightning.errors.InputError: expected a network of images alone, forward(x), got 'forward()' (in N)
    """
    check_not_lazy(network)
    try:
        signature = inspect.signature(network.forward)
    except (TypeError, ValueError):  # of what is compiled to something that has none
        return
    try:
        signature.bind(None)
    except TypeError:
        got = f"forward{str(signature).partition(' ->')[0]}"
        raise InputError(
            "expected a network of images alone, forward(x)", got=got, where=type(network).__name__
        ) from None


def check_not_lazy(network: nn.Module) -> None:
    """Raise where a layer waits for its first images to know its shapes."""
    if any(is_lazy(parameter) for parameter in network.parameters()):
        raise InputError(
            "expected a network that has seen images, so that its lazy layers have shapes: network(x)"
        )


# timm's networks (github.com/huggingface/pytorch-image-models).

_READ_FILES = ("pretrained", "checkpoint_path", "cache_dir", "file", "url")


class TimmNetwork(FixedNetwork):
    """A network of timm's, for images of any channels.

    Args:
        name: timm's name of it, such as `resnet18`.
        args: what `timm.create_model` takes for it, such as `drop_path_rate` and `img_size`.
        pretrained: start from timm's weights, which are downloaded where they are not there yet.

    >>> space = TimmNetwork("resnet18")
    >>> space.network(space.genotype, in_channels=1, num_classes=10).fc.out_features
    10
    """

    name: ClassVar[str] = "timm"

    @checked
    def __init__(self, name: str, args: Mapping[str, Any] = {}, pretrained: bool = False) -> None:
        if ":" in name or not timm.is_model(name):  # nor one of a hub or a folder
            near = get_close_matches(name, timm.list_models(), 1)
            match = near_match(name, near) if near else "timm.list_models() has their names"
            raise InputError(f"expected a network of timm's ({match})", got=name, where="network.name")
        for key in args:
            if key.startswith(_READ_FILES):
                where = f"network.args.{key}"
                raise InputError("expected network.pretrained=true or init=FILE for weights", where=where)
        super().__init__(name, args)
        self.pretrained = pretrained

    def build(self, in_channels: int, num_classes: int) -> nn.Module:
        sizes = {"in_chans": in_channels, "num_classes": num_classes}
        try:
            return timm.create_model(self.title, pretrained=self.pretrained, **{**sizes, **self.args})
        except Exception as error:  # each family has its own for what does not fit, downloads have more
            expected = f"expected what timm builds {self.title} with: {first_line(error)}"
            raise InputError(expected, got=self.args, where="network") from None


# torchvision's classifiers (github.com/pytorch/vision).

_COLORS = 3


class TorchvisionNetwork(FixedNetwork):
    """A classifier of torchvision's; for other than three channels its first convolution is another one.

    Args:
        name: torchvision's name of it, such as `resnet18`.
        args: what `torchvision.models.get_model` takes for it, such as `dropout` and `image_size`.
        pretrained: start from torchvision's weights, which are downloaded where they are not there yet; what
            depends on channels or classes that they are not of is new.

    >>> space = TorchvisionNetwork("resnet18")
    >>> space.network(space.genotype, in_channels=1, num_classes=10).conv1.in_channels
    1
    """

    name: ClassVar[str] = "torchvision"

    @checked
    def __init__(self, name: str, args: Mapping[str, Any] = {}, pretrained: bool = False) -> None:
        known = models.list_models(module=models)
        if name not in known:
            match = near_match(name, known)
            raise InputError(f"expected a network of torchvision's ({match})", got=name, where="network.name")
        for key in args:
            if key.startswith("weights"):
                where = f"network.args.{key}"
                raise InputError("expected network.pretrained=true or init=FILE for weights", where=where)
        super().__init__(name, args)
        self.pretrained = pretrained

    def build(self, in_channels: int, num_classes: int) -> nn.Module:
        try:
            network = self._get(num_classes=num_classes)
            if in_channels != _COLORS:
                replace_first_convolution(network, in_channels)
            if self.pretrained:
                take_over(self._get(weights="DEFAULT"), network)
        except Exception as error:  # each family has its own for what does not fit, downloads have more
            expected = f"expected what torchvision builds {self.title} with: {first_line(error)}"
            raise InputError(expected, got=self.args, where="network") from None
        return network

    def _get(self, **options: Any) -> nn.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice on how weights are drawn
            return models.get_model(self.title, **options, **self.args)


def replace_first_convolution(network: nn.Module, in_channels: int) -> None:
    """Put a convolution that takes so many channels, and is else the same, in place of the first one."""
    name, old = next((n, m) for n, m in network.named_modules() if isinstance(m, nn.Conv2d))
    new = nn.Conv2d(
        in_channels,
        old.out_channels,
        old.kernel_size,  # type: ignore[arg-type]
        old.stride,  # type: ignore[arg-type]
        old.padding,  # type: ignore[arg-type]
        bias=old.bias is not None,
    )
    nn.init.kaiming_normal_(new.weight, mode="fan_out", nonlinearity="relu")
    network.set_submodule(name, new)


def take_over(source: nn.Module, target: nn.Module) -> None:
    """Copy what has the same name and shape in both."""
    own = target.state_dict()
    same = {n: v for n, v in source.state_dict().items() if n in own and v.shape == own[n].shape}
    target.load_state_dict(same, strict=False)


# A user's own network, by the dotted name of what builds it.
#
# A file may name it only where its user has named it, too: `modules=["my.net.MyNet"]`.

Builder = Callable[..., nn.Module]
CHANNELS, CLASSES = ("in_channels", "in_chans"), ("num_classes", "n_classes")
"""Arguments that are handed over to who names them."""
_OWN: dict[str, Builder] = {}


class OwnNetwork(FixedNetwork):
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
