"""torchvision's classifiers (github.com/pytorch/vision)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import nn
from torchvision import models

from nas_lightning.checks import checked
from nas_lightning.errors import InputError, near_match
from nas_lightning.spaces.given.base import GivenNetwork, first_line

_COLOURS = 3


class TorchvisionNetwork(GivenNetwork):
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
            if in_channels != _COLOURS:
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
