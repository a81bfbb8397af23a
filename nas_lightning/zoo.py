"""Published architectures: what they are, what their papers report, and their networks.

>>> darts = published("darts_v2")
>>> darts.about
'DARTS, second order (Liu et al. 2019, arXiv:1806.09055)'
>>> darts.reported["cifar10_error"]  # percent, as printed in the paper; not a result of this package
2.76
>>> network = darts.network(channels=4, cells=3, num_classes=10)
>>> network(torch.zeros(2, 3, 32, 32)).shape
torch.Size([2, 10])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import yaml

from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import Genotype
from nas_lightning.options import config_folder, description
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.registry import make_space
from nas_lightning.utils.files import read_text


@dataclass(frozen=True)
class Published:
    """A published architecture.

    Args:
        name: its option of `genotype=`.
        about: the method and its paper.
        source: where the cells were read.
        space: the search space that contains it.
        genotype: the architecture.
        reported: numbers of its paper: `cifar10_error`, `cifar100_error`, and `imagenet_error` (top-1) in
            percent, and `cifar10_parameters` and `imagenet_parameters` in millions. Empty if the cell was
            never trained in a paper of its own.
    """

    name: str
    about: str
    source: str
    space: SearchSpace
    genotype: Genotype
    reported: Mapping[str, float]

    def network(self, **sizes: Any) -> torch.nn.Module:
        """Return its network with new weights.

        Args:
            **sizes: arguments of the space's networks, such as `channels`, `cells`, and `num_classes`.

        Returns:
            A network that maps (b, c, h, w) to (b, classes).
        """
        return self.space.network(self.genotype, **{"in_channels": 3, **sizes})


def names() -> tuple[str, ...]:
    """Return the names of the published architectures.

    >>> "pr_darts" in names()
    True
    """
    return tuple(
        path.stem for path in sorted((config_folder() / "genotype").glob("*.yaml")) if path.stem != "file"
    )


def published(name: str) -> Published:
    """Return a published architecture by its name.

    Raises:
        InputError: there is none of this name.
    """
    if name not in names():
        raise InputError(f"There is no published architecture `{name}` ({near_match(name, names())}).")
    path = config_folder() / "genotype" / f"{name}.yaml"
    chosen = yaml.safe_load(read_text(path))
    space = make_space(chosen["space"])
    reported = {key: float(value) for key, value in chosen.get("reported", {}).items()}
    return Published(name, description(path), chosen["source"], space, space.parse(chosen), reported)
