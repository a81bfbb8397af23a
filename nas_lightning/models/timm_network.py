"""A derived network with the methods that timm asks of its models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from timm.layers import create_classifier
from timm.models._features import feature_take_indices
from torch import Tensor, nn

from nas_lightning.errors import InputError
from nas_lightning.spaces.network import Backbone, Network, channels_last, list_last

_SIDE = 256  # of the image that shows where the resolution falls


class NasModel(nn.Module):
    """A derived network with timm's methods; its weights have the names that they have in `Network`.

    Args:
        build: (in_channels, num_classes) → the network.
        feature_info: where the resolution falls, as `stages` finds it.
        num_classes: 0: no classifier.
        in_chans: channels of the images.
        global_pool: timm's name of the pooling; empty: none.
        drop_rate: dropout before the classifier.
        drop_path_rate: at which operations are dropped, the same everywhere.

    """

    def __init__(
        self,
        build: Callable[..., Network],
        feature_info: list[dict[str, Any]],
        num_classes: int = 10,
        in_chans: int = 3,
        global_pool: str = "avg",
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__()
        network = build(in_channels=in_chans, num_classes=2)
        network.set_drop_path(drop_path_rate)
        self.backbone = network.backbone
        self.num_features = self.head_hidden_size = self.backbone.widths[-1]
        self.in_chans, self.feature_info, self.pool_type = in_chans, feature_info, global_pool
        self.head_drop = nn.Dropout(drop_rate)
        self.reset_classifier(num_classes)
        self.to(memory_format=torch.channels_last)

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A new classifier; without `global_pool` the pooling stays."""
        self.pool_type = self.pool_type if global_pool is None else global_pool
        self.num_classes = num_classes
        self.global_pool, self.head = create_classifier(self.num_features, num_classes, self.pool_type)

    def forward_features(self, x: Tensor) -> Tensor:  # (b, c, h, w) → (b, num_features, h', w')
        return self.backbone.final(list_last(self.backbone.cells_outputs(channels_last(x))))

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        x = self.head_drop(self.global_pool(x))
        return x if pre_logits else self.head(x)

    def forward(self, x: Tensor) -> Tensor:  # (b, c, h, w) → (b, classes)
        return self.forward_head(self.forward_features(x))

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        """The last features of each resolution; with `norm` the very last as `forward_features` has them."""
        if output_fmt != "NCHW":
            raise InputError("expected the format NCHW", got=output_fmt)
        taken, last = feature_take_indices(len(self.feature_info), indices)
        cells = [self.feature_info[index]["cell"] for index in taken]
        stop = self.feature_info[last]["cell"] if stop_early or intermediates_only else -1
        intermediates = []
        for index, features in enumerate(self.backbone.cells_outputs(channels_last(x))):
            if index in cells:
                final = norm and index == len(self.backbone.widths) - 1
                intermediates.append(self.backbone.final(features) if final else features)
            if index == stop:
                break
        if intermediates_only:
            return intermediates
        return (features if stop_early else self.backbone.final(features)), intermediates

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Which parameters have a learning rate in common where it falls with depth: each cell's."""
        cells = r"^backbone\.stages\.(\d+)" if coarse else r"^backbone\.stages\.(\d+)\.(\d+)"
        with_the_one_before = (99999,)  # timm's sign
        blocks = [
            (r"^backbone\.cells\.(\d+)", None),
            (cells, None),
            (r"^backbone\.blocks\.(\d+)", with_the_one_before),
            (r"^backbone\.last_norm", with_the_one_before),
        ]
        return {"stem": r"^backbone\.stem", "blocks": blocks}

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        if enable:
            raise InputError("expected no gradient checkpointing, which these networks do not have")


def stages(backbone: Backbone) -> list[dict[str, Any]]:
    """The last cell of each resolution, as timm's `feature_info`, of a backbone on the meta device."""
    made: list[tuple[Any, str]] = []

    def watch(module: nn.Module, name: str) -> None:
        module.register_forward_hook(lambda module, inputs, output: made.append((output, name)))

    for name, module in backbone.eval().named_modules(prefix="backbone"):
        watch(module, name)
    stage_of = {}
    for index, x in enumerate(backbone.cells_outputs(torch.empty(1, 3, _SIDE, _SIDE, device="meta"))):
        outermost = next(name for output, name in reversed(made) if output is x)
        reduction = _SIDE // x.shape[-1]
        stage_of[reduction] = {
            "num_chs": x.shape[1],
            "reduction": reduction,
            "module": outermost,
            "cell": index,
        }
    return list(stage_of.values())
