"""What is known of a trained network besides its weights: enough to build it again.

Needs neither Hydra nor Lightning.

>>> from nas_lightning.spaces import NasBench201
>>> space, sizes = NasBench201(), {"channels": 4, "cells": 1}
>>> genotype = space.sample(torch.Generator().manual_seed(0))
>>> known = description(space, genotype, sizes, (3, 8, 8), ("cat", "dog"))
>>> known.network()(torch.zeros(1, 3, 8, 8)).shape
torch.Size([1, 2])
>>> Description.from_json(known.to_json(), Path("a file")) == known
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from nas_lightning.errors import InputError
from nas_lightning.files import json_text, parse_json
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.decoder import make_dense
from nas_lightning.spaces.given.base import GivenNetwork
from nas_lightning.spaces.network import DerivedNetwork, Network
from nas_lightning.spaces.registry import NAMES_OF_0_1, make_space

_FORMAT = 2  # 1: the space by the dotted name of its class
_AUXILIARY = "auxiliary."
_MOST = {"cells": 1000}  # far above any published network, as is the next
_MOST_OF_OTHERS = 10_000


@dataclass(frozen=True)
class Description:
    """What a file says of its network.

    Args:
        space: the name of the space.
        settings: what the space is made with, where that is not its own.
        genotype: the architecture.
        sizes: what `space.network` takes besides channels of images and number of classes.
        image: (channels, height, width) that it was trained with.
        classes: names of the outputs.
        mean: of the images' channels, as a fraction of the largest value; images come to the network without.
        std: which they are divided by.
        task: what the outputs mean.
        dense: whether there is an output for each pixel.
        own: what `make_space` is told of a user's own; no part of the file, which imports nothing.
    """

    space: str
    settings: Mapping[str, Any]
    genotype: Genotype
    sizes: Mapping[str, Any]
    image: tuple[int, int, int]
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    task: str = "multi_class"
    dense: bool = False
    own: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def make_space(self) -> SearchSpace:
        """The space with its settings."""
        return make_space(self.space, self.settings, **self.own)

    def network(self, **sizes: Any) -> Network:
        """A network as described, with weights of its own; `sizes` differ from those here."""
        size = {"in_channels": self.image[0], "num_classes": len(self.classes), **self.sizes, **sizes}
        try:
            network = self.make_space().network(self.genotype, **size)
        except TypeError as error:
            raise InputError(
                f"expected the sizes that the space's networks have: {error}", got=size
            ) from None
        if isinstance(network, DerivedNetwork):
            if not size.get("auxiliary"):
                network.auxiliary = None  # which a space may give by default
            if self.dense:
                make_dense(network)
        else:
            materialise(network, self.image)
        return network

    def state(self, **sizes: Any) -> dict[str, Tensor]:
        """The names and shapes of the network's weights, on the meta device where it can be built there."""
        try:
            with torch.device("meta"):
                return weights_of(self.network(**sizes))
        except Exception:  # others' networks may be built of values, too
            if not isinstance(self.make_space(), GivenNetwork):
                raise
        with torch.random.fork_rng(devices=[]):
            return weights_of(self.network(**sizes))

    def of_classes(self) -> set[str]:
        """The names of the weights whose shapes depend on the number of classes."""
        own, other = (self.state(num_classes=len(self.classes) + more) for more in (0, 1))
        return {name for name in own if own[name].shape != other[name].shape}

    def check(self, network: nn.Module) -> None:
        """Raise unless the network is as described, so that a file of it can be read again."""
        check_same(self.state(), weights_of(network))

    def to_json(self) -> str:
        """The inverse of `from_json`."""
        space = {"name": self.space, "settings": dict(self.settings)}
        task = {"task": {"name": self.task, "dense": self.dense}} if self.task != "multi_class" else {}
        rest: dict[str, Any] = {
            name: getattr(self, name) for name in ("sizes", "image", "classes", "mean", "std")
        }
        content = {"format": _FORMAT, "space": space, "genotype": self.genotype.to_dict(), **rest, **task}
        return json_text(content)

    @classmethod
    def from_json(cls, text: str, where: Path, **own: Any) -> Description:
        """What the text in a file's header says."""
        data = parse_json(text, where=where)
        if not isinstance(data, dict) or data.get("format") not in (1, _FORMAT):
            raise InputError(f"expected a description of format {_FORMAT}", got=data, where=where)
        genotype = Genotype.from_dict(data.get("genotype"), where)
        try:
            image, classes, mean, std = (tuple(data[key]) for key in ("image", "classes", "mean", "std"))
            name, settings = _space_of_0_1(data["space"]) if data["format"] == 1 else _space(data["space"])
            if [type(side) for side in image] != [int] * 3:
                raise InputError("expected (channels, height, width)", got=image, where=where)
            built_with = settings.get("args")
            args = built_with if isinstance(built_with, Mapping) else {}
            _check_numbers({**settings, **args, **data["sizes"], "image": max(image, default=0)}, where)
            return cls(
                name, settings, genotype, dict(data["sizes"]), image, classes, mean, std, *_task(data), own
            )
        except InputError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"expected a whole description of a network: {error!r}", where=where) from None


def _check_numbers(sizes: Mapping[str, Any], where: Path) -> None:
    """Raise for what would fill the memory before anything else is found to be wrong."""
    for name, value in sizes.items():
        most = _MOST.get(name, _MOST_OF_OTHERS)
        if isinstance(value, (int, float)) and not value <= most:
            raise InputError(f"expected {name} of at most {most}", got=value, where=where)


def _space(data: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    return str(data["name"]), dict(data["settings"])


def _task(data: Mapping[str, Any]) -> tuple[str, bool]:
    about = data.get("task") or {"name": "multi_class", "dense": False}
    return str(about["name"]), bool(about["dense"])


def _space_of_0_1(data: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    settings = dict(data)
    target = str(settings.pop("_target_"))
    return NAMES_OF_0_1.get(target, target), settings


def description(
    space: SearchSpace,
    genotype: Genotype,
    sizes: Mapping[str, Any],
    image: tuple[int, int, int],
    classes: Sequence[str],
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Description:
    """What a file of such a network says, checked; the arguments are those of `save`."""
    kept = {name: False if name == "auxiliary" else value for name, value in sizes.items()}
    shift, scale = (tuple(given or [default] * image[0]) for given, default in ((mean, 0.0), (std, 1.0)))
    if {len(shift), len(scale)} != {image[0]}:
        raise InputError(f"expected mean and std of {image[0]} channels", got=f"{shift}, {scale}")
    settings = space.settings.to_dict()
    own = {"space": type(space), "modules": space.modules}
    described = Description(
        space.name, settings, genotype, kept, image, tuple(classes), shift, scale, own=own
    )
    try:
        described.to_json()
    except TypeError as error:
        raise InputError(f"expected sizes that JSON has: {error}") from None
    return described


def weights_of(network: nn.Module) -> dict[str, Tensor]:
    """What is stored of a network."""
    left_out = _AUXILIARY if isinstance(network, DerivedNetwork) else ()
    return {k: v for k, v in network.state_dict().items() if not k.startswith(left_out)}


def materialise(network: nn.Module, image: tuple[int, int, int]) -> None:
    """Give lazy layers their shapes, which the first images decide."""
    if any(is_lazy(parameter) for parameter in network.parameters()):
        device = next(network.parameters()).device
        training = network.training
        with torch.no_grad():
            network.eval()(torch.zeros(2, *image, device=device))
        network.train(training)


def check_same(expected: Mapping[str, Tensor], stored: Mapping[str, Tensor], where: object = None) -> None:
    """Raise for the first name that not both have, or not of the same shape."""
    shapes = [{name: tuple(value.shape) for name, value in state.items()} for state in (expected, stored)]
    for name in [*expected, *stored]:
        shape, got = (known.get(name, "nothing") for known in shapes)
        if shape != got:
            raise InputError(f"expected the same network: {shape} for {name}", got=got, where=where)
