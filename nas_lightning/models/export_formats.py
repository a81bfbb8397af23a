"""How the formats of exported networks are written and read: ONNX, and torch.export's `.pt2`."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nas_lightning.errors import InputError

INPUT, OUTPUT = "images", "logits"
FURTHER = (64, 128)
"""Pixels by which images of another size are larger. Sides that differ by a multiple of 64 are even or odd
alike at each of the resolutions of a network that halves them up to six times."""
Image = tuple[int, int, int]
Run = Callable[[Tensor], Tensor]


class Dynamic(NamedTuple):
    """Whether a file takes any number of images, and images of other sizes."""

    batch: bool  # any number of images
    size: bool  # images of other heights and widths


def _write_pt2(network: nn.Module, x: Tensor, dynamic: Dynamic, path: Path) -> None:
    batch = {0: torch.export.Dim("batch", min=1)} if dynamic.batch else {}
    size = dict.fromkeys((2, 3), torch.export.Dim.DYNAMIC) if dynamic.size else {}
    program = torch.export.export(network, (x,), dynamic_shapes=({**batch, **size},))
    with warnings.catch_warnings():  # of weights that are not on the CPU
        warnings.filterwarnings("ignore", "No complete tensor found in the group")
        whole = io.BytesIO()  # torch ends the process where a disk refuses a part
        torch.export.save(program, whole)
    path.write_bytes(whole.getbuffer())


def _sizes_pt2(image: Image) -> tuple[Image, list[Image]]:
    """A program refuses sizes that take other ways through the code than were taken when it was traced."""
    return image, [image, _larger(image)]


def _read_pt2(path: Path) -> Run:
    with path.open("rb") as file:
        return torch.export.load(file).module()


def _write_onnx(network: nn.Module, x: Tensor, dynamic: Dynamic, path: Path) -> None:
    _onnxruntime()
    batch = {0: "batch"} if dynamic.batch else {}
    size = {2: "height", 3: "width"} if dynamic.size else {}
    torch.onnx.export(
        network,
        (x,),
        path,
        dynamo=True,
        dynamic_shapes=({**batch, **size},),
        input_names=[INPUT],
        output_names=[OUTPUT],
        external_data=False,
        verbose=False,
    )


def _sizes_onnx(image: Image) -> tuple[Image, list[Image]]:
    """Traced where every resolution is odd: the steps that this needs do nothing where one is even."""
    odd = (image[0], FURTHER[0] + 1, FURTHER[1] + 1)
    return odd, [image, _larger(image), (image[0], image[1] + 1, image[2] + 2)]


def read_onnx(path: Path, threads: int = 0) -> Run:
    """What ONNX Runtime computes of that file; 0 threads: as many as it thinks best."""
    runtime = _onnxruntime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda x: torch.from_numpy(session.run([OUTPUT], {INPUT: x.numpy()})[0])


def _onnxruntime() -> Any:
    try:
        import onnx
        import onnxruntime
        import onnxscript
    except ModuleNotFoundError as error:
        needed = "expected the packages that ONNX needs: pip install 'nas-lightning[export]'"
        raise InputError(needed, got=f"no {error.name}") from None
    del onnx, onnxscript
    return onnxruntime


def _larger(image: Image) -> Image:
    return image[0], image[1] + FURTHER[0], image[2] + FURTHER[1]


class _Format(NamedTuple):
    """How a format is written and read, and with dynamic sizes: which to trace, which to compare."""

    write: Callable[[nn.Module, Tensor, Dynamic, Path], None]
    read: Callable[[Path], Run]
    sizes: Callable[[Image], tuple[Image, list[Image]]]


FORMATS = {
    ".onnx": _Format(_write_onnx, read_onnx, _sizes_onnx),
    ".pt2": _Format(_write_pt2, _read_pt2, _sizes_pt2),
}
