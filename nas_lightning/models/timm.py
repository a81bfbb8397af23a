"""Derived networks as models of timm."""

from __future__ import annotations

import inspect
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from timm.layers import create_classifier
from timm.models import build_model_with_cfg, register_model
from torch import Tensor, nn

from nas_lightning import zoo
from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import Genotype, read_genotypes
from nas_lightning.models.file import describe, file_of
from nas_lightning.spaces import DartsNasi, DartsSpace, NasBench101, NasBench201, SearchSpace
from nas_lightning.spaces.network import Backbone, Network, channels_last, list_last

# Derived networks with the methods of timm's models.

_SIDE = 256  # of the image by which stages are found


class NasModel(nn.Module):
    """A derived network with timm's methods; names of weights are those of `Network`.

    Args:
        build: maps in_channels and num_classes to the network.
        feature_info: the result of `stages`.
        num_classes: number of classes; 0: no classifier.
        in_chans: channels of the images.
        global_pool: timm's name of the pooling; empty: none.
        drop_rate: dropout before the classifier.
        drop_path_rate: rate of drop path.
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
        """Replace the classifier, and the pooling if `global_pool` is given."""
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
        """Return the last features of each resolution; `norm` applies the final norm to the last ones."""
        if output_fmt != "NCHW":
            raise InputError("`output_fmt` must be NCHW", got=output_fmt)
        cells = [info["cell"] for info in _take(self.feature_info, indices)]
        stop = max(cells) if stop_early or intermediates_only else -1
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
        """Group the parameters of each cell, for layer-wise learning rates."""
        cells = r"^backbone\.stages\.(\d+)" if coarse else r"^backbone\.stages\.(\d+)\.(\d+)"
        with_the_one_before = (99999,)  # timm's constant
        blocks = [
            (r"^backbone\.cells\.(\d+)", None),
            (cells, None),
            (r"^backbone\.blocks\.(\d+)", with_the_one_before),
            (r"^backbone\.last_norm", with_the_one_before),
        ]
        return {"stem": r"^backbone\.stem", "blocks": blocks}

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        if enable:
            raise InputError("These networks do not have gradient checkpointing")


def _take(infos: Sequence[dict[str, Any]], indices: int | Sequence[int] | None) -> list[dict[str, Any]]:
    """Return the chosen stages as timm does: all, the last ones, or those of the indices."""
    if indices is None or isinstance(indices, int):
        count = len(infos) if indices is None else indices
        if not 0 < count <= len(infos):
            raise InputError(f"There must be 1 to {len(infos)} stages", got=count, where="indices")
        return list(infos[-count:])
    for index in indices:
        if not -len(infos) <= index < len(infos):
            raise InputError(f"`indices` must be those of {len(infos)} stages", got=index, where="indices")
    return [infos[index] for index in indices]


def stages(backbone: Backbone) -> list[dict[str, Any]]:
    """Return the last cell of each resolution as timm's `feature_info`, for a backbone on the meta device."""
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


# Models: importing this module registers `nas_darts`, `nas_nasbench201`, …. `genotype` is the name of a
# published architecture, a genotype in its space's notation, or the path of a run or a file. A trained run
# also defines sizes and normalization, and with `pretrained=True` the weights.

_OWN = {"genotype", "in_channels", "num_classes", "auxiliary", "dropout", "norm"}
"""Arguments of `SearchSpace.network` that timm names differently, or that are for our training."""


def _cfg(**fields: Any) -> dict[str, Any]:
    """Return timm's defaults for networks of images of CIFAR's size."""
    small = {"input_size": (3, 32, 32), "crop_pct": 1.0, "num_classes": 10}
    return {**small, "first_conv": "backbone.stem.0", "classifier": "head", **fields}


default_cfgs = {
    "nas_darts": _cfg(first_conv="backbone.stem.0.0"),
    "nas_darts_nasi": _cfg(first_conv="backbone.stem.0.0"),
    "nas_nasbench101": _cfg(),
    "nas_nasbench201": _cfg(),
}
_IMAGENET = {"input_size": (3, 224, 224), "crop_pct": 0.875, "num_classes": 1000}


@register_model
def nas_darts(pretrained: bool = False, **options: Any) -> nn.Module:
    """Return a network of DARTS cells; use `stem="imagenet"` for large images.

    >>> import timm
    >>> model = timm.create_model("nas_darts", genotype="darts_v2", channels=4, cells=3, num_classes=5)
    >>> model(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 5])
    >>> stages = timm.create_model("nas_darts", genotype="darts_v2", channels=4, cells=3, features_only=True)
    >>> [(x.shape[1], x.shape[2]) for x in stages(torch.zeros(2, 3, 32, 32))]
    [(16, 32), (32, 16), (64, 8)]
    """
    return _create("nas_darts", DartsSpace(), pretrained, **options)


@register_model
def nas_darts_nasi(pretrained: bool = False, **options: Any) -> nn.Module:
    """Return a network of DARTS cells in NASI's variant."""
    return _create("nas_darts_nasi", DartsNasi(), pretrained, **options)


@register_model
def nas_nasbench101(pretrained: bool = False, **options: Any) -> nn.Module:
    """Return a network of NAS-Bench-101."""
    return _create("nas_nasbench101", NasBench101(), pretrained, **options)


@register_model
def nas_nasbench201(pretrained: bool = False, **options: Any) -> nn.Module:
    """Return a network of NAS-Bench-201."""
    return _create("nas_nasbench201", NasBench201(), pretrained, **options)


def _create(
    name: str,
    space: SearchSpace,
    pretrained: bool,
    *,
    genotype: str | Path | Genotype | None = None,
    pretrained_cfg_overlay: dict[str, Any] | None = None,
    **options: Any,
) -> nn.Module:
    if genotype is None:
        raise InputError("Pass an architecture, such as genotype=darts_v2 or the folder of a run", where=name)
    architecture, sizes, cfg = _find(genotype, space)
    for size in inspect.signature(space.network).parameters.keys() - _OWN:
        if size in options:
            sizes[size] = options.pop(size)
    if not cfg and sizes.get("stem") == "imagenet":
        cfg = _IMAGENET
    build = partial(space.network, architecture, **sizes)
    with torch.device("meta"):
        info = stages(build(in_channels=3, num_classes=2).backbone)
    if options.get("features_only"):
        options["num_classes"] = 0
    return build_model_with_cfg(
        NasModel,
        name,
        pretrained,
        pretrained_cfg_overlay={**cfg, **(pretrained_cfg_overlay or {})},
        feature_cfg={"out_indices": tuple(range(len(info))), "feature_cls": "getter"},
        build=build,
        feature_info=info,
        **options,
    )


def _find(
    genotype: str | Path | Genotype, space: SearchSpace
) -> tuple[Genotype, dict[str, Any], dict[str, Any]]:
    """Return the architecture, and for a trained network its sizes and timm's `pretrained_cfg`."""
    if isinstance(genotype, Genotype):
        return genotype, {}, {}
    text = str(genotype)
    if text in zoo.names():
        published = zoo.published(text)
        if published.space.name != space.name:
            raise InputError(f"`{text}` must be an architecture of the space `{space.name}`.")
        return published.genotype, {}, {}
    if (os.path.isdir(text) and file_of(text).is_file()) or text.endswith(".safetensors"):
        about = describe(text)
        space.check(about.genotype)
        sizes = {size: value for size, value in about.sizes.items() if size not in _OWN}
        cfg = {"mean": about.mean, "std": about.std, "num_classes": len(about.classes), "crop_pct": 1.0}
        source = {"file": str(file_of(text)), "label_names": about.classes}
        return about.genotype, sizes, {"input_size": about.image, **cfg, **source}
    if os.path.exists(text):
        return read_genotypes(text)[0], {}, {}
    if text.isidentifier():
        raise InputError(
            f"Unknown architecture ({near_match(text, zoo.names())}), and no such path", got=text
        )
    return space.parse(text), {}, {}


# timm's scripts with these models:
#
#     python -m nas_lightning.models.timm train.py --model nas_darts --model-kwargs genotype=darts_v2 …
#     torchrun --nproc-per-node 8 -m nas_lightning.models.timm train.py …


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a script as `python SCRIPT …` does, with the models registered."""
    script, *options = [*(sys.argv[1:] if arguments is None else arguments)] or [""]
    if not Path(script).is_file():
        said = "error: Pass a script of timm, such as its train.py, and its arguments"
        sys.exit(f"{said}, got {script!r}")
    sys.argv[:] = [script, *options]
    sys.path.insert(0, str(Path(script).absolute().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
