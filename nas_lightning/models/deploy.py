"""Export of trained runs: the file normalizes images itself, and describes them in its metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from nas_lightning.errors import InputError, near_match
from nas_lightning.models.ensemble import Ensemble, McDropPath, is_ensemble
from nas_lightning.models.export import ExportedFile, export
from nas_lightning.models.file import Description, describe, load

Input = Literal["float", "uint8", "normalized"]
VALUES = {
    "float": "float32 from 0 to 1",
    "uint8": "uint8 from 0 to 255",
    "normalized": "float32, normalized with mean and std",
}


class FromBytes(nn.Module):
    """Map bytes from 0 to 255 to floats from 0 to 1.

    >>> FromBytes()(torch.tensor([255], dtype=torch.uint8))
    tensor([1.])
    """

    def forward(self, x: Tensor) -> Tensor:
        return x.float() / 255


def trained_network(run: str | Path, values: Input = "float", **own: Any) -> tuple[nn.Module, Description]:
    """Load the network or ensemble of a run for images of these values.

    Args:
        run: the folder of a training or of an ensemble, or a model file.
        values: `float`: from 0 to 1; `uint8`: from 0 to 255; `normalized`: normalized by the caller.
        **own: custom classes, see `nas_lightning.load`.
    """
    inside = values != "normalized"
    if is_ensemble(run):
        ensemble = Ensemble.load(run, with_normalization=inside, **own)
        if isinstance(ensemble, McDropPath):
            expected = "Passes with random drop path cannot be exported: pass an ensemble of networks"
            raise InputError(expected, got="MC DropPath", where=run)
        network: nn.Module = ensemble
        about = ensemble.descriptions[0]
    else:
        network, about = load(run, with_normalization=inside, **own), describe(run, **own)
    return nn.Sequential(FromBytes(), network).eval() if values == "uint8" else network, about


def dtype_of(values: Input) -> torch.dtype:
    """Return the data type of such images."""
    return torch.uint8 if values == "uint8" else torch.float32


def metadata_of(about: Description, values: Input) -> dict[str, str]:
    """Return the metadata of a file: values of its images, and `classes`, `mean`, `std`, `size` in JSON."""
    described = {"classes": about.classes, "mean": about.mean, "std": about.std, "size": about.image}
    texts = {name: json.dumps(value) for name, value in described.items()}
    return {"input": VALUES[values], "task": about.task, **texts}


def export_run(
    run: str | Path,
    path: str | Path,
    values: Input = "float",
    *,
    batch: int | None = None,
    dynamic_size: bool = False,
    **own: Any,
) -> ExportedFile:
    """Export the network or ensemble of a run, with the normalization of its images inside.

    The metadata of the file has `classes`, `mean`, `std`, `size` (channels, height, width), and `input`.

    Args:
        run: the folder of a training or of an ensemble, or a model file.
        path: the file, `.onnx` or `.pt2`.
        values: the values of images: `float`: from 0 to 1; `uint8`: from 0 to 255; `normalized`: normalized
            by the caller, with no normalization in the file.
        batch: see `export`.
        dynamic_size: see `export`.
        **own: custom classes, see `nas_lightning.load`.
    """
    if values not in VALUES:
        raise InputError(f"Unknown values of images ({near_match(values, get_args(Input))})", got=values)
    network, about = trained_network(run, values, **own)
    options: dict[str, Any] = {"batch": batch, "dynamic_size": dynamic_size, "dtype": dtype_of(values)}
    return export(network, path, about.image, **options, metadata=metadata_of(about, values))
