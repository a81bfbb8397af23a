"""Export of networks to ONNX and torch.export, and networks run by ONNX Runtime or frozen."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nas_lightning.errors import InputError
from nas_lightning.metrics.recording import logits_of
from nas_lightning.spaces.network import DerivedNetwork
from nas_lightning.utils.files import hold_file, replacing

# Formats: ONNX, and torch.export's `.pt2`.

INPUT, OUTPUT = "images", "logits"
FURTHER = (64, 128)
"""Additional pixels of images of other sizes: sides stay even or odd through six halvings."""
Image = tuple[int, int, int]
Run = Callable[[Tensor], Tensor]


class Dynamic(NamedTuple):
    """The dimensions of the input that may vary.

    Args:
        batch: whether the file takes any batch size.
        size: whether it takes images of other sizes.
    """

    batch: bool
    size: bool


Metadata = Mapping[str, str]


def _write_pt2(network: nn.Module, x: Tensor, dynamic: Dynamic, metadata: Metadata, path: Path) -> None:
    batch = {0: torch.export.Dim("batch", min=1)} if dynamic.batch else {}
    size = dict.fromkeys((2, 3), torch.export.Dim.DYNAMIC) if dynamic.size else {}
    program = torch.export.export(network, (x,), dynamic_shapes=({**batch, **size},))
    with warnings.catch_warnings():  # of weights that are not on the CPU
        warnings.filterwarnings("ignore", "No complete tensor found in the group")
        whole = io.BytesIO()  # torch aborts the process on a full disk
        torch.export.save(program, whole, extra_files=dict(metadata))
    path.write_bytes(whole.getbuffer())


def _sizes_pt2(image: Image) -> tuple[Image, list[Image]]:
    """Return the size to trace and the sizes to compare; programs only take sizes with the same control
    flow.
    """
    return image, [image, _larger(image)]


def _read_pt2(path: Path) -> Run:
    with path.open("rb") as file:
        return torch.export.load(file).module()


def _write_onnx(network: nn.Module, x: Tensor, dynamic: Dynamic, metadata: Metadata, path: Path) -> None:
    _onnxruntime()
    import onnx

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
    model = onnx.load(path)
    onnx.helper.set_model_props(model, dict(metadata))
    onnx.save(model, path)


def _sizes_onnx(image: Image) -> tuple[Image, list[Image]]:
    """Return the size to trace, with odd sides at every resolution, and the sizes to compare."""
    odd = (image[0], FURTHER[0] + 1, FURTHER[1] + 1)
    return odd, [image, _larger(image), (image[0], image[1] + 1, image[2] + 2)]


def read_onnx(path: Path, threads: int = 0) -> Run:
    """Return a function that runs the file in ONNX Runtime; 0: ONNX Runtime's default number of threads."""
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
        needed = "ONNX needs further packages: pip install 'nas-lightning[export]'"
        raise InputError(needed, got=f"no {error.name}") from None
    del onnx, onnxscript
    return onnxruntime


def _larger(image: Image) -> Image:
    return image[0], image[1] + FURTHER[0], image[2] + FURTHER[1]


class _Format(NamedTuple):
    """Functions that write and read a format, and choose sizes to trace and compare."""

    write: Callable[[nn.Module, Tensor, Dynamic, Metadata, Path], None]
    read: Callable[[Path], Run]
    sizes: Callable[[Image], tuple[Image, list[Image]]]


FORMATS = {
    ".onnx": _Format(_write_onnx, read_onnx, _sizes_onnx),
    ".pt2": _Format(_write_pt2, _read_pt2, _sizes_pt2),
}


# Frozen networks: traced, with norms folded into convolutions.

_CLOSE = 1e-5
_CHECKED = (1, 3)  # batches that are compared


class FrozenNetwork(nn.Module):
    """A traced and frozen copy of a network, equal within 1e-5, on the CPU and without gradients.

    Args:
        network: maps (b, c, h, w) to (b, classes), in eval mode.
        image: (channels, height, width), the only size that it takes.

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(12, 2)).eval()
    >>> FrozenNetwork(network, (3, 2, 2))(torch.zeros(5, 3, 2, 2)).shape
    torch.Size([5, 2])
    """

    def __init__(self, network: nn.Module, image: tuple[int, int, int]) -> None:
        super().__init__()
        self.image = image
        self.run = _freeze(network, image)
        random = torch.Generator().manual_seed(0)
        for images in _CHECKED:
            _check(network, self.run, torch.randn(images, *image, generator=random))

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:  # (b, c, h, w) → (b, classes)
        if x.shape[1:] != self.image:
            raise InputError(f"Images must have shape {self.image}", got=tuple(x.shape[1:]))
        logits: Tensor = self.run(x.detach().float().cpu())
        return logits


class _Logits(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return logits_of(self.network(x))


@torch.no_grad()
def _freeze(network: nn.Module, image: tuple[int, int, int]) -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations
        try:
            traced = torch.jit.trace(_Logits(network).eval(), torch.zeros(2, *image), check_trace=False)
            return torch.jit.freeze(traced)
        except Exception as error:  # custom networks raise all kinds
            expected = f"torch cannot freeze the network: {str(error).strip().splitlines()[0]}"
            raise InputError(expected, where="optimize") from None


@torch.no_grad()
def _check(network: nn.Module, frozen: torch.jit.ScriptModule, x: Tensor) -> None:
    expected, found = logits_of(network(x)), frozen(x)
    if expected.shape == found.shape:
        error = float((expected - found).abs().max() / expected.abs().max().clamp(min=1))
        if error <= _CLOSE:
            return
        raise InputError(
            f"The outputs differ from those of the network by more than {_CLOSE}", got=error, where="optimize"
        )
    where, got = "optimize", tuple(found.shape)
    raise InputError(f"The outputs must have shape {tuple(expected.shape)}", got=got, where=where)


# Export to a file, whose outputs are compared with the network's.

TOLERANCE = 1e-5  # of outputs, relative to the largest one if that is above 1


class ExportedFile(NamedTuple):
    """An exported file.

    Args:
        path: the file.
        size: size in bytes.
        difference: largest difference of outputs from the network's.
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
    dtype: torch.dtype = torch.float32,
    metadata: Metadata | None = None,
) -> ExportedFile:
    """Export a network in eval mode, without its auxiliary head, to ONNX or torch.export.

    The file takes the images that the network takes; `deploy.export_run` includes their normalization.

    The file is read again and run on random images. It is not written if outputs differ by more than
    `TOLERANCE`.

    Args:
        network: any module from (b, c, h, w) to logits (b, classes), alone or among other outputs.
        path: the file, `.onnx` or `.pt2`.
        image: (channels, height, width).
        batch: the batch size of the file. Default: any.
        dynamic_size: take images of other sizes. With ONNX any size; with torch.export only sizes that differ
            by a multiple of the network's total stride.
        dtype: data type of the images: float32 or uint8.
        metadata: texts to keep in the file: ONNX's metadata, or `extra_files` of torch.export.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise InputError(f"The file must end in {' or '.join(FORMATS)}", got=path.name)
    if batch is not None and batch < 1:
        raise InputError("`batch` must be at least 1", got=batch)
    export_format = FORMATS[path.suffix]
    plain = _plain(network, image, dtype)
    traced, sizes = export_format.sizes(image) if dynamic_size else (image, [image])
    for size in (traced, *sizes):
        _run(plain, size, dtype)
    dynamic, batches = Dynamic(batch is None, dynamic_size), [batch] if batch else [1, 3]
    try:
        with hold_file(path), replacing(path) as partial:
            x = random_images(batch or 2, traced, dtype)
            export_format.write(plain, x, dynamic, metadata or {}, partial)
            run = export_format.read(partial)
            difference = max(_difference(plain, run, size, batches, dtype) for size in sizes)
    except (InputError, OSError):
        raise
    except Exception as error:  # torch and ONNX Runtime raise many kinds
        line = next(iter(str(error.__cause__ or error).splitlines()), type(error).__name__)
        same = "all sizes" if dynamic_size else "all images"
        raise InputError(f"The operations of the network must be the same for {same}: {line}") from error
    return ExportedFile(path, path.stat().st_size, difference)


def random_images(count: int, image: Image, dtype: torch.dtype) -> Tensor:
    """Return standard normal images, or random bytes: (count, c, h, w)."""
    if dtype == torch.uint8:
        return torch.randint(256, (count, *image), dtype=dtype)
    return torch.randn(count, *image, dtype=dtype)


def _run(network: nn.Module, size: Image, dtype: torch.dtype) -> Any:
    """Run the network on a black image; raise unless it takes images of this size."""
    try:
        return network(torch.zeros(1, *size, dtype=dtype))
    except (RuntimeError, AssertionError, ValueError, TypeError) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"The network fails on images of {size}: {line}") from None


class _LogitsAlone(nn.Module):
    """A network that returns only the logits of its outputs."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return logits_of(self.network(x))


def _plain(network: nn.Module, image: Image, dtype: torch.dtype) -> nn.Module:
    """Return a copy without parts for training."""
    plain = copy.deepcopy(network).cpu().float().eval().requires_grad_(False)
    for module in plain.modules():
        if isinstance(module, DerivedNetwork):
            module.auxiliary = None
    return plain if isinstance(_run(plain, image, dtype), Tensor) else _LogitsAlone(plain).eval()


@torch.no_grad()
def _difference(
    network: nn.Module, run: Run, image: Image, batches: Sequence[int], dtype: torch.dtype
) -> float:
    """Return max |f(x) − g(x)| over random images; raise if it is too large."""
    largest = 0.0
    for batch in batches:
        x = random_images(batch, image, dtype)
        expected, found = network(x), run(x)
        difference = float((expected - found).abs().max())
        allowed = TOLERANCE * max(1.0, float(expected.abs().max()))
        if not difference <= allowed:  # also for NaN
            raise InputError(
                f"The outputs differ from those of the network by more than {allowed:.1e}", got=difference
            )
        largest = max(largest, difference)
    return largest


# Networks in ONNX Runtime.


class OnnxNetwork(nn.Module):
    """A network computed by ONNX Runtime, equal within 1e-5, on the CPU and without gradients.

    Args:
        network: maps (b, c, h, w) to (b, classes).
        image: (channels, height, width), the only size that it takes.

    >>> import torch
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(12, 2)).eval()
    >>> OnnxNetwork(network, (3, 2, 2))(torch.zeros(5, 3, 2, 2)).shape
    torch.Size([5, 2])
    """

    def __init__(self, network: nn.Module, image: Image) -> None:
        super().__init__()
        self.image = image
        with TemporaryDirectory() as folder:
            self.run = read_onnx(
                export(network, Path(folder) / "network.onnx", image).path, torch.get_num_threads()
            )

    def forward(self, x: Tensor) -> Tensor:  # (b, c, h, w) → (b, classes)
        if x.shape[1:] != self.image:
            raise InputError(f"Images must have shape {self.image}", got=tuple(x.shape[1:]))
        return self.run(x.detach().float().cpu())
