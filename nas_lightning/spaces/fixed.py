"""Fixed networks: models of timm, of torchvision, and the user's own, as spaces of one architecture."""

from __future__ import annotations

import inspect
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar

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

Builder = Callable[..., nn.Module]


class FixedNetwork(SearchSpace):
    """A space of one architecture: a network that is trained, saved, and compared like a searched one.

    A new source of networks is a subclass and a yaml in `conf/network`.

    Args:
        title: the name of the network in its source.
        args: further arguments with which it is built.
    """

    key: ClassVar[str] = "name"
    """The setting that names the network."""

    def __init__(self, title: str, args: Mapping[str, Any]) -> None:
        self.title, self.args = title, dict(args)

    @abstractmethod
    def build(self, in_channels: int, num_classes: int) -> nn.Module:
        """Build the network with newly drawn or pretrained weights."""

    @cached_property
    def settings(self) -> FrozenMap:
        return FrozenMap({self.key: self.title, **({"args": self.args} if self.args else {})})

    @property
    def groups(self) -> Mapping[str, Group]:
        return {}

    @property
    def genotype(self) -> Genotype:
        """The only architecture."""
        return Genotype(self.name, {}, self.settings, {"network": self.title})

    def supernet(self, *, in_channels: int, num_classes: int, **size: Any) -> Supernet:
        raise InputError("The space has nothing to search", got=self.name, where="space")

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
            raise InputError(
                f"The only architecture of the space is {self.notation(self.genotype)}", got=text
            )
        return self.genotype

    def notation(self, genotype: Genotype) -> str:
        """The name of the network, with its further arguments in brackets."""
        args = ", ".join(f"{name}={value}" for name, value in self.args.items())
        return f"{self.title}({args})" if args else self.title


class TimmNetwork(FixedNetwork):
    """A network of timm (github.com/huggingface/pytorch-image-models), for images of any channels.

    Args:
        name: the name in timm, such as `resnet18`.
        args: further arguments of `timm.create_model`, such as `drop_path_rate` and `img_size`.
        pretrained: start from timm's weights, which are downloaded if necessary.

    >>> space = TimmNetwork("resnet18")
    >>> space.network(space.genotype, in_channels=1, num_classes=10).fc.out_features
    10
    """

    name: ClassVar[str] = "timm"

    @checked
    def __init__(self, name: str, args: Mapping[str, Any] = {}, pretrained: bool = False) -> None:
        import timm  # which takes a second

        if ":" in name or not timm.is_model(name):  # nor one of a hub or a folder
            near = get_close_matches(name, timm.list_models(), 1)
            match = near_match(name, near) if near else "timm.list_models() lists the names"
            raise InputError(f"Unknown network of timm ({match})", got=name, where="network.name")
        _refuse_weight_files(args, ("pretrained", "checkpoint_path", "cache_dir", "file", "url"))
        super().__init__(name, args)
        self.pretrained = pretrained

    def build(self, in_channels: int, num_classes: int) -> nn.Module:
        import timm

        sizes = {"in_chans": in_channels, "num_classes": num_classes}
        try:
            return timm.create_model(self.title, pretrained=self.pretrained, **{**sizes, **self.args})
        except Exception as error:  # the exception depends on the model family and on the download
            expected = f"Cannot build {self.title} of timm with these arguments: {first_line(error)}"
            raise InputError(expected, got=self.args, where="network") from None


class TorchvisionNetwork(FixedNetwork):
    """A classifier of torchvision; for images of other than three channels its first convolution is replaced.

    Args:
        name: the name in torchvision, such as `resnet18`.
        args: further arguments of `torchvision.models.get_model`, such as `dropout` and `image_size`.
        pretrained: start from torchvision's weights, which are downloaded if necessary; layers whose shapes
            differ because of the channels or classes keep newly drawn weights.

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
            raise InputError(f"Unknown network of torchvision ({match})", got=name, where="network.name")
        _refuse_weight_files(args, ("weights",))
        super().__init__(name, args)
        self.pretrained = pretrained

    def build(self, in_channels: int, num_classes: int) -> nn.Module:
        try:
            network = self._get(num_classes=num_classes)
            if in_channels != 3:
                replace_first_convolution(network, in_channels)
            if self.pretrained:
                copy_matching_weights(self._get(weights="DEFAULT"), network)
        except Exception as error:  # the exception depends on the model family and on the download
            expected = f"Cannot build {self.title} of torchvision with these arguments: {first_line(error)}"
            raise InputError(expected, got=self.args, where="network") from None
        return network

    def _get(self, **options: Any) -> nn.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice on how weights are initialized
            return models.get_model(self.title, **options, **self.args)


class CustomNetwork(FixedNetwork):
    """A network that the user's class or function builds.

    The builder receives the images' channels as `in_channels` or `in_chans` and the number of classes as
    `num_classes` or `n_classes`, if it has such an argument. A model file may name the builder only where the
    user names it, too: `modules=["my.net.MyNet"]`.

    Args:
        path: the class or function, or its dotted name.
        args: its further arguments.

    >>> space = CustomNetwork("torchvision.models.SqueezeNet", {"version": "1_1"})
    >>> space.network(space.genotype, in_channels=3, num_classes=2).num_classes
    2
    """

    name: ClassVar[str] = "custom"
    key: ClassVar[str] = "path"

    @checked
    def __init__(self, path: str | Builder, args: Mapping[str, Any] = {}) -> None:
        super().__init__(path if isinstance(path, str) else register_builder(path), args)

    @property
    def modules(self) -> tuple[str, ...]:
        return (self.title,)

    def build(self, in_channels: int, num_classes: int) -> nn.Module:
        builder = _BUILDERS.get(self.title) or import_builder(self.title)
        channels = dict.fromkeys(("in_channels", "in_chans"), in_channels)
        classes = dict.fromkeys(("num_classes", "n_classes"), num_classes)
        accepted = argument_names(builder)
        sizes = {name: value for name, value in {**channels, **classes}.items() if name in accepted}
        try:
            network = builder(**{**sizes, **self.args})
        except Exception as error:  # any exception of the user's code
            reason = f"{type(error).__name__}: {first_line(error)}"
            expected = f"Cannot build {self.title} with these arguments: {reason}"
            raise InputError(expected, got={**sizes, **self.args}, where="network") from error
        if not isinstance(network, nn.Module):
            got = type(network).__name__
            raise InputError(
                "`network.path` must name a class or function that returns a torch.nn.Module",
                got=got,
                where="network.path",
            )
        return network


# Builders of custom networks

_BUILDERS: dict[str, Builder] = {}


def register_builder(target: str | Builder) -> str:
    """Allow model files to name this builder; return its dotted name."""
    if isinstance(target, str):
        return target
    name = f"{target.__module__}.{target.__qualname__}"
    _BUILDERS[name] = target
    return name


def check_allowed(wanted: Iterable[str], allowed: Iterable[str | Builder]) -> None:
    """Raise for a custom network that the user has not named."""
    known = {register_builder(target) for target in allowed}
    for name in wanted:
        if name not in known:
            expected = "A custom network must be allowed: pass modules=[…] with its class or its dotted name"
            raise InputError(expected, got=name)


def argument_names(builder: Builder) -> list[str]:
    """Return the names of the builder's arguments; none if it has no signature."""
    try:
        return [*inspect.signature(builder).parameters]
    except ValueError:
        return []


def import_builder(path: str) -> Builder:
    """Import a class or function by its dotted name."""
    module, _, name = path.rpartition(".")
    try:
        builder: Builder = getattr(import_module(module), name)
    except Exception as error:  # any exception of the user's module
        expected = f"Cannot import the class or function: {first_line(error)}"
        raise InputError(expected, got=path, where="network.path") from None
    if not callable(builder):
        raise InputError("`network.path` must name a class or function", got=path, where="network.path")
    return builder


# Checks of a network


def check_callable(network: nn.Module) -> None:
    """Raise unless `network(x)` fits the signature of its `forward`.

    >>> class N(nn.Module):
    ...     def forward(self):
    ...         return 0
    >>> check_callable(N())
    Traceback (most recent call last):
        ...
    nas_lightning.errors.InputError: The network must take images alone, forward(x), got 'forward()' (in N)
    """
    check_not_lazy(network)
    try:
        signature = inspect.signature(network.forward)
    except (TypeError, ValueError):  # a compiled network may have none
        return
    try:
        signature.bind(None)
    except TypeError:
        got = f"forward{str(signature).partition(' ->')[0]}"
        raise InputError(
            "The network must take images alone, forward(x)", got=got, where=type(network).__name__
        ) from None


def check_not_lazy(network: nn.Module) -> None:
    """Raise if a lazy layer has no shape yet."""
    if any(is_lazy(parameter) for parameter in network.parameters()):
        raise InputError("Lazy layers have no shapes yet: call network(x) first")


def _refuse_weight_files(args: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for key in args:
        if key.startswith(names):
            where = f"network.args.{key}"
            raise InputError("Pass either network.pretrained=true or pretrained=FILE", where=where)


def first_line(error: Exception) -> str:
    """Return the first line of an exception's message."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


# Changes of torchvision's networks


def replace_first_convolution(network: nn.Module, in_channels: int) -> None:
    """Replace the first convolution by one of `in_channels` input channels that is otherwise the same."""
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


def copy_matching_weights(source: nn.Module, target: nn.Module) -> None:
    """Copy the entries of the state that have the same name and shape in both."""
    ours = target.state_dict()
    same = {n: v for n, v in source.state_dict().items() if n in ours and v.shape == ours[n].shape}
    target.load_state_dict(same, strict=False)
