"""A trained network as one file: its weights as safetensors, and in the header all that rebuilds it.

Needs neither Hydra nor Lightning. The auxiliary head, which serves training only, stays out of the file.

>>> from tempfile import TemporaryDirectory
>>> from nas_lightning.spaces import NasBench201
>>> space, sizes = NasBench201(), {"channels": 4, "cells": 1}
>>> genotype = space.sample(torch.Generator().manual_seed(0))
>>> network = space.network(genotype, in_channels=3, num_classes=2, **sizes).eval()
>>> with TemporaryDirectory() as folder:
...     path = save(
...         network, Path(folder) / FILE_NAME, space, genotype, sizes, image=(3, 8, 8), classes=("cat", "dog")
...     )
...     again, known = load(path), describe(path)
>>> x = torch.randn(1, 3, 8, 8)
>>> torch.equal(again(x), network(x)), known.classes
(True, ('cat', 'dog'))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from nas_lightning.errors import InputError, near_match
from nas_lightning.files import replacing
from nas_lightning.genotype import Genotype
from nas_lightning.models.description import Description, check_same, description, weights_of
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.network import DerivedNetwork

__all__ = [
    "FILE_NAME",
    "Description",
    "Normalise",
    "check_file",
    "describe",
    "description",
    "file_of",
    "load",
    "save",
    "take_weights_over",
    "write",
]

FILE_NAME = "model.safetensors"
Runtime = Literal["torch", "onnx"]
_KEY = "nas_lightning"
_EXPECTED = f"expected the folder of a run of train.py, or its {FILE_NAME}"


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
    """Write a network that `space.network(genotype, …, **sizes)` has built; raises where it does not fit.

    `mean` and `std` are what images were normalised with, None: they were not.
    """
    about = description(space, genotype, sizes, image, classes, mean, std)
    about.check(network)
    return write(network, path, about)


def write(network: nn.Module, path: str | Path, about: Description) -> Path:
    """Write the weights of a network with what is known of it, complete or not at all."""
    path = Path(path)
    weights = {name: value.detach().cpu().clone().contiguous() for name, value in weights_of(network).items()}
    with replacing(path) as partial:
        save_file(weights, partial, {_KEY: about.to_json()})  # two keys would come in random order
    return path


def describe(path: str | Path, **own: Any) -> Description:
    """What is known of the network in a run's folder or a file; `own` as in `load`."""
    return _read(path, weights=False, **own)[0]


def check_file(path: str | Path, **own: Any) -> None:
    """Raise unless the weights in a file are of the network that it describes, before one is built."""
    _check_weights(*_read(path, weights=True, **own), path)


def load(
    path: str | Path,
    *,
    with_normalisation: bool = False,
    runtime: Runtime = "torch",
    optimise: bool = False,
    **own: Any,
) -> nn.Module:
    """The network of a training run's folder or of a file, ready to be used: in eval mode, on the CPU.

    It maps (b, c, h, w) to logits (b, classes) and takes images normalised with the `mean` and `std` of
    `describe(path)`; `with_normalisation` puts that before it, for images with values from 0 to 1.
    A file imports nothing: a space of your own is `space=<its class>` or known by the `folders=[…]` of your
    configuration, operations of your own are `operations=["my_ops.GhostConv"]`, a network of your own is
    `modules=[MyNet]`, or its dotted name in the list.
    With `runtime="onnx"` ONNX Runtime computes it, several times as fast on a CPU and to predict only; with
    `optimise=True` torch does, its norms folded and its weights frozen.
    """
    if runtime not in get_args(Runtime):
        raise InputError(f"expected a runtime ({near_match(runtime, get_args(Runtime))})", got=runtime)
    if optimise and runtime != "torch":
        raise InputError("expected runtime='torch', which optimise is for", got=runtime, where="runtime")
    about, weights = _read(path, weights=True, **own)
    _check_weights(about, weights, path)
    with torch.random.fork_rng(devices=[]):  # its first weights are drawn for nothing
        network = about.network()
    if isinstance(network, DerivedNetwork):
        network.load_state_dict(weights, assign=True)
        network.to(memory_format=torch.channels_last)
    else:  # whose layers may share weights
        network.load_state_dict(weights)
    network.eval()
    scaled = (
        nn.Sequential(Normalise(about.mean, about.std), network).eval() if with_normalisation else network
    )
    if optimise:
        from nas_lightning.models.frozen_network import FrozenNetwork

        return FrozenNetwork(scaled, about.image).eval()
    if runtime == "torch":
        return scaled
    from nas_lightning.models.onnx_network import OnnxNetwork

    return OnnxNetwork(scaled, about.image).eval()


def take_weights_over(network: nn.Module, path: str | Path, classes: Sequence[str], **own: Any) -> bool:
    """Take the weights over from a trained network; those of the classifier only where the classes are its.

    Returns whether the classifier was taken over. An auxiliary head is always a new one. `own` as in `load`.
    """
    about, weights = _read(path, weights=True, **own)
    whole = about.classes == tuple(classes)
    new = set() if whole else about.of_classes()
    inherited = {name: value for name, value in weights.items() if name not in new}
    own = {name: value for name, value in weights_of(network).items() if name not in new}
    check_same(own, inherited, path)
    network.load_state_dict(inherited, strict=False)
    return whole


class Normalise(nn.Module):
    """(x − mean) / std, channel by channel.

    Args:
        mean: a number a channel.
        std: a number a channel.

    >>> Normalise(mean=(0.5,), std=(0.25,))(torch.ones(1, 1, 1, 1))
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
    """Raise unless they are of the network that is described, which may be larger than the memory."""
    cells = about.sizes.get("cells", 0)
    if isinstance(cells, int) and cells > len(weights):
        raise InputError(
            "expected weights of every cell", got=f"{len(weights)} for {cells} cells", where=path
        )
    check_same(about.state(), weights, path)


def file_of(path: str | Path) -> Path:
    """The file of a run's folder, or the file itself."""
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
            # copied, for the file may be replaced while the network lives
            found = {name: opened.get_tensor(name).clone() for name in names}
    except (SafetensorError, OSError) as error:
        raise InputError(_EXPECTED, got=f"a damaged file or another kind ({error})", where=file) from None
    if text is None:
        raise InputError(_EXPECTED, got="weights without a description of their network", where=file)
    return Description.from_json(text, file, **own), found
