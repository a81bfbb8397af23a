"""A network as a file for other programs: ONNX, or torch.export's `.pt2`, compared with itself."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nas_lightning.errors import InputError
from nas_lightning.files import replacing
from nas_lightning.lock import hold_file
from nas_lightning.metrics.passes.outputs import logits_of
from nas_lightning.models.export_formats import FORMATS, Dynamic, Image, Run
from nas_lightning.spaces.network import DerivedNetwork

TOLERANCE = 1e-5  # of outputs, as a share of the largest one where that is above 1


class ExportedFile(NamedTuple):
    """A file, its size in bytes, and how far its outputs are from the network's.

    Args:
        path: of the file.
        size: its bytes.
        difference: the largest, of an output.
    """

    path: Path
    size: int
    difference: float

    def __str__(self) -> str:
        return f"{self.path}: {self.size:,} bytes, outputs differ by at most {self.difference:.1e}"


def export(
    network: nn.Module,
    path: str | Path,
    image: Image = (3, 32, 32),
    *,
    batch: int | None = None,
    dynamic_size: bool = False,
) -> ExportedFile:
    """Write the network, in eval mode and without its auxiliary head, where `path` says: .onnx or .pt2.

    The file is read again and run on random images; where its outputs differ from the network's by more than
    `TOLERANCE`, it is not written. It takes `batch` images at a time, None: any number.

    Args:
        network: any module from (b, c, h, w) to logits (b, classes), alone or among other outputs.
        path: the file.
        image: (channels, height, width).
        batch: how many images at a time; None: any number.
        dynamic_size: take images of other sizes, too. ONNX: of any. torch.export keeps to sides that are even
            where those of `image` are, at each resolution: such as differ by a multiple of what the network
            divides them by.

    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise InputError(f"expected a file that ends in {' or '.join(FORMATS)}", got=path.name)
    if batch is not None and batch < 1:
        raise InputError("expected a batch of at least one image", got=batch)
    export_format = FORMATS[path.suffix]
    plain = _plain(network, image)
    traced, sizes = export_format.sizes(image) if dynamic_size else (image, [image])
    _check_sizes(plain, [traced, *sizes])
    dynamic, batches = Dynamic(batch is None, dynamic_size), [batch] if batch else [1, 3]
    try:
        with hold_file(path), replacing(path) as partial:
            export_format.write(plain, torch.randn(batch or 2, *traced), dynamic, partial)
            run = export_format.read(partial)
            difference = max(_difference(plain, run, size, batches) for size in sizes)
    except (InputError, OSError):
        raise
    except Exception as error:  # torch and ONNX Runtime have many for a step that values or one size decide
        line = next(iter(str(error.__cause__ or error).splitlines()), type(error).__name__)
        same = "all sizes" if dynamic_size else "all images"
        raise InputError(f"expected a network whose steps are the same for {same}: {line}") from error
    return ExportedFile(path, path.stat().st_size, difference)


def _check_sizes(network: nn.Module, sizes: Sequence[Image]) -> None:
    """Raise where the network itself does not take images of each of those sizes."""
    for size in sizes:
        _run(network, size)


def _run(network: nn.Module, size: Image) -> Any:
    try:
        return network(torch.zeros(1, *size))
    except (RuntimeError, AssertionError, ValueError, TypeError) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"expected a network that takes images of {size}: {line}") from None


class _LogitsAlone(nn.Module):
    """A network whose output has logits among other things, without these."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return logits_of(self.network(x))


def _plain(network: nn.Module, image: Image) -> nn.Module:
    """A copy with nothing that serves training only."""
    plain = copy.deepcopy(network).cpu().float().eval().requires_grad_(False)
    for module in plain.modules():
        if isinstance(module, DerivedNetwork):
            module.auxiliary = None
    return plain if isinstance(_run(plain, image), Tensor) else _LogitsAlone(plain).eval()


@torch.no_grad()
def _difference(network: nn.Module, run: Run, image: Image, batches: Sequence[int]) -> float:
    """max |f(x) − g(x)| over random images; raises where that is too much."""
    largest = 0.0
    for batch in batches:
        x = torch.randn(batch, *image)
        expected, found = network(x), run(x)
        difference = float((expected - found).abs().max())
        allowed = TOLERANCE * max(1.0, float(expected.abs().max()))
        if not difference <= allowed:  # nor where it is no number
            raise InputError(f"expected outputs within {allowed:.1e} of the network's", got=difference)
        largest = max(largest, difference)
    return largest
