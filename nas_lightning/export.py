"""A network as a file for other programs: ONNX, or torch.export's `.pt2`, compared with the network itself.

python -m nas_lightning.export RUN_OR_FILE TARGET.onnx|TARGET.pt2 [--batch 8] [--with-normalisation]
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nas_lightning.errors import InputError
from nas_lightning.model_file import describe, load
from nas_lightning.spaces.network import Network

TOLERANCE = 1e-5  # of outputs, as a share of the largest one where that is above 1
INPUT, OUTPUT = "images", "logits"
Run = Callable[[Tensor], Tensor]


class Exported(NamedTuple):
    """A file, its size in bytes, and how far its outputs are from the network's."""

    path: Path
    size: int
    difference: float

    def __str__(self) -> str:
        return f"{self.path}: {self.size:,} bytes, outputs differ by at most {self.difference:.1e}"


def export(
    network: nn.Module,
    path: str | Path,
    image: tuple[int, int, int] = (3, 32, 32),
    *,
    batch: int | None = None,
) -> Exported:
    """Write the network, in eval mode and without its auxiliary head, where `path` says: .onnx or .pt2.

    The file is read again and run on random images; where its outputs differ from the network's by more than
    `TOLERANCE`, it is not written. It takes images of one size, `batch` at a time, None: any number.
    """
    path = Path(path)
    if path.suffix not in _FORMATS:
        raise InputError(f"expected a file that ends in {' or '.join(_FORMATS)}", got=path.name)
    if batch is not None and batch < 1:
        raise InputError("expected a batch of at least one image", got=batch)
    write, read = _FORMATS[path.suffix]
    plain = _plain(network)
    partial = path.with_name(f"{path.stem}.partial{path.suffix}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        write(plain, torch.randn(batch or 2, *image), batch is None, partial)
        difference = _difference(plain, read(partial), image, [batch] if batch else [1, 3])
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return Exported(path, path.stat().st_size, difference)


def _plain(network: nn.Module) -> nn.Module:
    """A copy with nothing that serves training only."""
    plain = copy.deepcopy(network).cpu().float().eval().requires_grad_(False)
    for module in plain.modules():
        if isinstance(module, Network):
            module.auxiliary = None
    return plain


@torch.no_grad()
def _difference(network: nn.Module, run: Run, image: tuple[int, int, int], batches: Sequence[int]) -> float:
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


def _write_pt2(network: nn.Module, x: Tensor, dynamic: bool, path: Path) -> None:
    shapes = ({0: torch.export.Dim("batch", min=1)},) if dynamic else None
    program = torch.export.export(network, (x,), dynamic_shapes=shapes)
    with warnings.catch_warnings():  # of weights that are not on the CPU
        warnings.filterwarnings("ignore", "No complete tensor found in the group")
        torch.export.save(program, path)


def _read_pt2(path: Path) -> Run:
    return torch.export.load(path).module()


def _write_onnx(network: nn.Module, x: Tensor, dynamic: bool, path: Path) -> None:
    _onnxruntime()
    torch.onnx.export(
        network,
        (x,),
        path,
        dynamo=True,
        dynamic_shapes=({0: "batch"},) if dynamic else None,
        input_names=[INPUT],
        output_names=[OUTPUT],
        external_data=False,
        verbose=False,
    )


def _read_onnx(path: Path) -> Run:
    session = _onnxruntime().InferenceSession(path, providers=["CPUExecutionProvider"])
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


_FORMATS: dict[str, tuple[Callable[[nn.Module, Tensor, bool, Path], None], Callable[[Path], Run]]] = {
    ".onnx": (_write_onnx, _read_onnx),
    ".pt2": (_write_pt2, _read_pt2),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command; prints where the file is, its size and the largest difference."""
    parser = argparse.ArgumentParser(
        prog="python -m nas_lightning.export", description=__doc__.split("\n")[0]
    )
    parser.add_argument("source", help="the folder of a run of train.py, or its model.safetensors")
    parser.add_argument("target", type=Path, help="the .onnx or .pt2 file to write")
    parser.add_argument(
        "--batch", default="dynamic", help="images at a time; dynamic: any number (the default)"
    )
    parser.add_argument(
        "--with-normalisation", action="store_true", help="take images with values from 0 to 1, as they are"
    )
    options = parser.parse_args(arguments)
    try:
        if options.batch != "dynamic" and not options.batch.isdecimal():
            raise InputError("expected a number or dynamic", got=options.batch, where="--batch")
        batch = None if options.batch == "dynamic" else int(options.batch)
        network = load(options.source, with_normalisation=options.with_normalisation)
        print(export(network, options.target, describe(options.source).image, batch=batch))
    except InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
