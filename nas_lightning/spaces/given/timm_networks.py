"""timm's networks (github.com/huggingface/pytorch-image-models)."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, ClassVar

import timm
from torch import nn

from nas_lightning.checks import checked
from nas_lightning.errors import InputError, near_match
from nas_lightning.spaces.given.base import GivenNetwork, first_line

_READ_FILES = ("pretrained", "checkpoint_path", "cache_dir", "file", "url")


class TimmNetwork(GivenNetwork):
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
