"""A trained network as one file: weights as safetensors, and a header that rebuilds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.decoder import make_dense
from nas_lightning.spaces.fixed import FixedNetwork
from nas_lightning.spaces.network import DerivedNetwork, Network
from nas_lightning.spaces.registry import make_space
from nas_lightning.utils.files import json_text, parse_json, replacing

# The description of a trained network, from which it is built again.

_FORMAT = 2
_AUXILIARY = "auxiliary."
_MOST = {"cells": 1000}  # limits for numbers in files
_MOST_OF_OTHERS = 10_000


@dataclass(frozen=True)
class Description:
    """The description of a network in its file.

    Args:
        space: name of the space.
        settings: arguments of the space that differ from its defaults.
        genotype: the architecture.
        sizes: arguments of `space.network` besides `in_channels` and `num_classes`.
        image: (channels, height, width) of the training images.
        classes: names of the outputs.
        mean: mean of the images' channels, with values from 0 to 1.
        std: standard deviation of the images' channels.
        task: name of the task.
        dense: whether there is an output for each pixel.
        own: arguments of `make_space` for custom classes, which are not stored in the file.

    >>> from nas_lightning.spaces import NasBench201
    >>> space, sizes = NasBench201(), {"channels": 4, "cells": 1}
    >>> genotype = space.sample(torch.Generator().manual_seed(0))
    >>> known = description(space, genotype, sizes, (3, 8, 8), ("cat", "dog"))
    >>> known.network()(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 2])
    >>> Description.from_json(known.to_json(), Path("a file")) == known
    True
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
        """Return the space with its settings."""
        return make_space(self.space, self.settings, **self.own)

    def network(self, **sizes: Any) -> Network:
        """Build the network with new weights; `sizes` replace those of the description."""
        size = {"in_channels": self.image[0], "num_classes": len(self.classes), **self.sizes, **sizes}
        try:
            network = self.make_space().network(self.genotype, **size)
        except TypeError as error:
            raise InputError(f"Invalid sizes of a network: {error}", got=size) from None
        if isinstance(network, DerivedNetwork):
            if not size.get("auxiliary"):
                network.auxiliary = None  # which a space may give by default
            if self.dense:
                make_dense(network)
        else:
            materialize(network, self.image)
        return network

    def state(self, **sizes: Any) -> dict[str, Tensor]:
        """Return the network's state by name, on the meta device if the network can be built there."""
        try:
            with torch.device("meta"):
                return weights_of(self.network(**sizes))
        except Exception:  # custom networks may need values
            if not isinstance(self.make_space(), FixedNetwork):
                raise
        with torch.random.fork_rng(devices=[]):
            return weights_of(self.network(**sizes))

    def of_classes(self) -> set[str]:
        """Return the names of the weights whose shapes depend on the number of classes."""
        own, other = (self.state(num_classes=len(self.classes) + more) for more in (0, 1))
        return {name for name in own if own[name].shape != other[name].shape}

    def check(self, network: nn.Module) -> None:
        """Raise unless the network matches the description, so that its file can be loaded."""
        check_same(self.state(), weights_of(network))

    def to_json(self) -> str:
        """Return the description as JSON."""
        space = {"name": self.space, "settings": dict(self.settings)}
        task = {"task": {"name": self.task, "dense": self.dense}} if self.task != "multi_class" else {}
        rest: dict[str, Any] = {
            name: getattr(self, name) for name in ("sizes", "image", "classes", "mean", "std")
        }
        content = {"format": _FORMAT, "space": space, "genotype": self.genotype.to_dict(), **rest, **task}
        return json_text(content)

    @classmethod
    def from_json(cls, text: str, where: Path, **own: Any) -> Description:
        """Parse the JSON of a file's header."""
        data = parse_json(text, where=where)
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise InputError(f"The description must have format {_FORMAT}", got=data, where=where)
        genotype = Genotype.from_dict(data.get("genotype"), where)
        try:
            image, classes, mean, std = (tuple(data[key]) for key in ("image", "classes", "mean", "std"))
            name, settings = str(data["space"]["name"]), dict(data["space"]["settings"])
            if [type(side) for side in image] != [int] * 3:
                raise InputError("`image` must be (channels, height, width)", got=image, where=where)
            built_with = settings.get("args")
            args = built_with if isinstance(built_with, Mapping) else {}
            _check_numbers({**settings, **args, **data["sizes"], "image": max(image, default=0)}, where)
            return cls(
                name, settings, genotype, dict(data["sizes"]), image, classes, mean, std, *_task(data), own
            )
        except InputError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"The description of the network is incomplete: {error!r}", where=where
            ) from None


def _check_numbers(sizes: Mapping[str, Any], where: Path) -> None:
    """Raise for numbers that would exhaust the memory."""
    for name, value in sizes.items():
        most = _MOST.get(name, _MOST_OF_OTHERS)
        if isinstance(value, (int, float)) and not value <= most:
            raise InputError(f"`{name}` must be at most {most}", got=value, where=where)


def _task(data: Mapping[str, Any]) -> tuple[str, bool]:
    about = data.get("task") or {"name": "multi_class", "dense": False}
    return str(about["name"]), bool(about["dense"])


def description(
    space: SearchSpace,
    genotype: Genotype,
    sizes: Mapping[str, Any],
    image: tuple[int, int, int],
    classes: Sequence[str],
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Description:
    """Return the checked description of a network; the arguments are those of `save`."""
    kept = {name: False if name == "auxiliary" else value for name, value in sizes.items()}
    shift, scale = (tuple(given or [default] * image[0]) for given, default in ((mean, 0.0), (std, 1.0)))
    if {len(shift), len(scale)} != {image[0]}:
        raise InputError(
            f"`mean` and `std` must have a value for each of {image[0]} channels", got=f"{shift}, {scale}"
        )
    settings = space.settings.to_dict()
    own = {"space": type(space), "modules": space.modules}
    described = Description(
        space.name, settings, genotype, kept, image, tuple(classes), shift, scale, own=own
    )
    try:
        described.to_json()
    except TypeError as error:
        raise InputError(f"`sizes` must be representable in JSON: {error}") from None
    return described


def weights_of(network: nn.Module) -> dict[str, Tensor]:
    """Return the stored state of a network: all but its auxiliary head."""
    left_out = _AUXILIARY if isinstance(network, DerivedNetwork) else ()
    return {k: v for k, v in network.state_dict().items() if not k.startswith(left_out)}


def materialize(network: nn.Module, image: tuple[int, int, int]) -> None:
    """Initialize lazy layers by a forward pass."""
    if any(is_lazy(parameter) for parameter in network.parameters()):
        device = next(network.parameters()).device
        training = network.training
        with torch.no_grad():
            network.eval()(torch.zeros(2, *image, device=device))
        network.train(training)


def check_same(expected: Mapping[str, Tensor], stored: Mapping[str, Tensor], where: object = None) -> None:
    """Raise for the first tensor that is missing or has another shape."""
    shapes = [{name: tuple(value.shape) for name, value in state.items()} for state in (expected, stored)]
    for name in [*expected, *stored]:
        shape, got = (known.get(name, "nothing") for known in shapes)
        if shape != got:
            needed = f"{name} must have shape {shape}" if name in expected else f"{name} must not exist"
            raise InputError(f"The network must be the same: {needed}", got=got, where=where)


# Writing and reading files. The auxiliary head, which serves training only, is not stored.

FILE_NAME = "model.safetensors"
Runtime = Literal["torch", "onnx"]
_KEY = "nas_lightning"
_EXPECTED = f"The path must be the folder of a run of nas-train, or its {FILE_NAME}"


def save(
    network: nn.Module,
    path: str | Path,
    space: SearchSpace,
    genotype: Genotype,
    sizes: Mapping[str, Any],
    *,
    image: tuple[int, int, int],
    classes: Sequence[str],
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Path:
    """Write a network built by `space.network(genotype, …, **sizes)`.

    Args:
        network: the trained network.
        path: the file.
        space: its search space.
        genotype: its architecture.
        sizes: the arguments it was built with besides `in_channels` and `num_classes`.
        image: (channels, height, width) of the training images.
        classes: names of the outputs.
        mean: mean that images were normalized with. Default: 0.
        std: standard deviation that images were normalized with. Default: 1.

    Raises:
        InputError: If the network does not match the description.

    >>> from tempfile import TemporaryDirectory
    >>> from nas_lightning.spaces import NasBench201
    >>> space, sizes = NasBench201(), {"channels": 4, "cells": 1}
    >>> genotype = space.sample(torch.Generator().manual_seed(0))
    >>> network = space.network(genotype, in_channels=3, num_classes=2, **sizes).eval()
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / FILE_NAME
    ...     _ = save(network, path, space, genotype, sizes, image=(3, 8, 8), classes=("cat", "dog"))
    ...     again, known = load(path), describe(path)
    >>> x = torch.randn(1, 3, 8, 8)
    >>> torch.equal(again(x), network(x)), known.classes
    (True, ('cat', 'dog'))
    """
    about = description(space, genotype, sizes, image, classes, mean, std)
    about.check(network)
    return write(network, path, about)


def write(network: nn.Module, path: str | Path, about: Description) -> Path:
    """Write the weights of a network and its description, atomically."""
    path = Path(path)
    weights = {name: value.detach().cpu().clone().contiguous() for name, value in weights_of(network).items()}
    with replacing(path) as partial:
        save_file(weights, partial, {_KEY: about.to_json()})  # one key, since the order of several is random
    return path


def describe(path: str | Path, **own: Any) -> Description:
    """Return the description in a run's folder or a file; `own` as in `load`."""
    return _read(path, weights=False, **own)[0]


def check_file(path: str | Path, **own: Any) -> None:
    """Raise unless the weights in a file match its description."""
    _check_weights(*_read(path, weights=True, **own), path)


def load(
    path: str | Path,
    *,
    with_normalization: bool = False,
    runtime: Runtime = "torch",
    optimize: bool = False,
    **own: Any,
) -> nn.Module:
    """Load the network of a training run or a file, in eval mode, on the CPU.

    It maps (b, c, h, w) to logits (b, classes). Files import nothing, so custom classes must be passed.

    Args:
        path: the folder of a run, or a file.
        with_normalization: take images with values from 0 to 1, and normalize them first. Default: take
            images normalized with the `mean` and `std` of `describe(path)`.
        runtime: `onnx`: compute with ONNX Runtime, several times as fast on a CPU, for prediction only.
        optimize: fold norms and freeze the weights (torch only).
        **own: custom classes: `space=<a class>` or `folders=[…]` of your configuration,
            `operations=["my_ops.GhostConv"]`, `modules=[MyNet]` (or dotted names).
    """
    if runtime not in get_args(Runtime):
        raise InputError(f"Unknown runtime ({near_match(runtime, get_args(Runtime))})", got=runtime)
    if optimize and runtime != "torch":
        raise InputError("`optimize` needs runtime='torch'", got=runtime, where="runtime")
    about, weights = _read(path, weights=True, **own)
    _check_weights(about, weights, path)
    with torch.random.fork_rng(devices=[]):  # its initial weights are replaced
        network = about.network()
    if isinstance(network, DerivedNetwork):
        network.load_state_dict(weights, assign=True)
        network.to(memory_format=torch.channels_last)
    else:  # whose layers may share weights
        network.load_state_dict(weights)
    network.eval()
    scaled = (
        nn.Sequential(Normalize(about.mean, about.std), network).eval() if with_normalization else network
    )
    if optimize:
        from nas_lightning.models.export import FrozenNetwork

        return FrozenNetwork(scaled, about.image).eval()
    if runtime == "torch":
        return scaled
    from nas_lightning.models.export import OnnxNetwork

    return OnnxNetwork(scaled, about.image).eval()


def take_weights_over(network: nn.Module, path: str | Path, classes: Sequence[str], **own: Any) -> bool:
    """Copy the weights of a trained network; those of the classifier only if the classes are the same.

    An auxiliary head keeps its new weights. `own` as in `load`.

    Returns:
        Whether the classifier was copied.
    """
    about, weights = _read(path, weights=True, **own)
    whole = about.classes == tuple(classes)
    new = set() if whole else about.of_classes()
    inherited = {name: value for name, value in weights.items() if name not in new}
    own = {name: value for name, value in weights_of(network).items() if name not in new}
    check_same(own, inherited, path)
    network.load_state_dict(inherited, strict=False)
    return whole


class Normalize(nn.Module):
    """(x − mean) / std, channel by channel.

    Args:
        mean: one number per channel.
        std: one number per channel.

    >>> Normalize(mean=(0.5,), std=(0.25,))(torch.ones(1, 1, 1, 1))
    tensor([[[[2.]]]])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:  # (b, c, h, w) → (b, c, h, w)
        return (x - self.mean) / self.std


def _check_weights(about: Description, weights: Mapping[str, Tensor], path: str | Path) -> None:
    """Raise unless the weights match the description, without building the network."""
    cells = about.sizes.get("cells", 0)
    if isinstance(cells, int) and cells > len(weights):
        raise InputError(
            "There must be weights of every cell", got=f"{len(weights)} for {cells} cells", where=path
        )
    check_same(about.state(), weights, path)


def file_of(path: str | Path) -> Path:
    """Return the file of a run's folder, or the file itself."""
    path = Path(path)
    return path / FILE_NAME if path.is_dir() else path


def _read(path: str | Path, *, weights: bool, **own: Any) -> tuple[Description, dict[str, Tensor]]:
    file = file_of(path)
    if not file.is_file():
        raise InputError(_EXPECTED, got=str(path))
    try:
        with safe_open(file, framework="pt") as opened:
            text = (opened.metadata() or {}).get(_KEY)
            names = opened.keys() if weights else []
            # copied, since the file may be replaced while the network is in use
            found = {name: opened.get_tensor(name).clone() for name in names}
    except (SafetensorError, OSError) as error:
        raise InputError(_EXPECTED, got=f"a damaged file or another kind ({error})", where=file) from None
    if text is None:
        raise InputError(_EXPECTED, got="weights without a description of their network", where=file)
    return Description.from_json(text, file, **own), found
