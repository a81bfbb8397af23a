"""Derived networks as models of timm: importing this module registers `nas_darts`, `nas_nasbench201`, ….

>>> import timm
>>> model = timm.create_model("nas_darts", genotype="darts_v2", channels=4, cells=3, num_classes=5)
>>> model(torch.zeros(2, 3, 32, 32)).shape
torch.Size([2, 5])
>>> stages = timm.create_model("nas_darts", genotype="darts_v2", channels=4, cells=3, features_only=True)
>>> [(x.shape[1], x.shape[2]) for x in stages(torch.zeros(2, 3, 32, 32))]
[(16, 32), (32, 16), (64, 8)]

`genotype` is a published architecture's name, a genotype in its space's notation, or the path of a run or a
file. Of a trained run it brings sizes and normalisation along, and with `pretrained=True` the weights.
"""

from __future__ import annotations

import inspect
import os
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml
from timm.models import build_model_with_cfg, register_model
from torch import nn

from nas_lightning.errors import InputError, near_match
from nas_lightning.files import read_text
from nas_lightning.genotype import Genotype, read_genotypes
from nas_lightning.models.file import describe, file_of
from nas_lightning.models.timm_network import NasModel, stages
from nas_lightning.options import config_folder
from nas_lightning.spaces import DartsNasi, DartsSpace, NasBench101, NasBench201, SearchSpace

_OWN = {"genotype", "in_channels", "num_classes", "auxiliary", "dropout", "norm"}
"""Arguments of a space's `network` that timm has others for, or that are for training with us."""


def _cfg(**fields: Any) -> dict[str, Any]:
    """timm's defaults of a network for images of CIFAR's size."""
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
    """A network of DARTS' cells; its stem `imagenet` is for large images."""
    return _create("nas_darts", DartsSpace(), pretrained, **options)


@register_model
def nas_darts_nasi(pretrained: bool = False, **options: Any) -> nn.Module:
    """A network of DARTS' cells as NASI searches them."""
    return _create("nas_darts_nasi", DartsNasi(), pretrained, **options)


@register_model
def nas_nasbench101(pretrained: bool = False, **options: Any) -> nn.Module:
    """A network of NAS-Bench-101."""
    return _create("nas_nasbench101", NasBench101(), pretrained, **options)


@register_model
def nas_nasbench201(pretrained: bool = False, **options: Any) -> nn.Module:
    """A network of NAS-Bench-201."""
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
        raise InputError("expected an architecture, such as genotype=darts_v2 or a run's folder", where=name)
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
    """The architecture, and of a trained network its sizes and timm's description of its weights."""
    if isinstance(genotype, Genotype):
        return genotype, {}, {}
    text = str(genotype)
    published = {path.stem: path for path in (config_folder() / "genotype").glob("*.yaml")}
    del published["file"]
    if text in published:
        chosen = yaml.safe_load(read_text(published[text]))
        if chosen["space"] != space.name:
            raise InputError(f"expected an architecture of the space {space.name!r}", got=text)
        return space.parse(chosen), {}, {}
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
        raise InputError(f"expected an architecture ({near_match(text, published)}) or a path", got=text)
    return space.parse(text), {}, {}
