"""Latency of networks on this machine, under stated conditions: runtime, threads, and clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from nas_lightning.errors import InputError
from nas_lightning.models.export import FORMATS, export, random_images, read_onnx
from nas_lightning.models.file import Normalize
from nas_lightning.objectives.latency import CLOCKS, Array, Clock, medians, time_in_turn
from nas_lightning.objectives.memory import inference_memory
from nas_lightning.utils.machine import Processes
from nas_lightning.utils.progress import follow
from nas_lightning.validation import checked

Image = tuple[int, int, int]
Runtime = Literal["eager", "compiled", "onnx"]
ROUNDS = 20
_NAMES = {"eager": "PyTorch", "compiled": "torch.compile", "onnx": "ONNX Runtime"}


@checked
@dataclass(frozen=True)
class Conditions:
    """The conditions of a measurement.

    Args:
        runtime: `eager`; `compiled`, by `torch.compile`, which takes minutes per network; or `onnx`, by ONNX
            Runtime.
        threads: threads of a network.
        clock: `wall`; or `processor`, with one thread, on a machine that is busy.
        accelerator: type of the device that computes.

    >>> print(Conditions("onnx"))
    ONNX Runtime, 1 thread, wall clock
    >>> Conditions.read({"runtime": "onnx", "threads": "1", "clock": "wall"}) == Conditions("onnx")
    True
    """

    runtime: Runtime = "eager"
    threads: Processes = 1
    clock: Clock = "wall"
    accelerator: Literal["cpu", "cuda", "mps"] = "cpu"

    def __post_init__(self) -> None:
        if self.clock == "processor" and self.threads > 1:
            raise InputError(
                "Processor time needs a single thread: `threads` must be 1", got=self.threads, where="threads"
            )
        if self.accelerator != "cpu" and (self.runtime == "onnx" or self.clock == "processor"):
            expected = f"runtime={self.runtime} and clock={self.clock} need trainer.accelerator=cpu"
            raise InputError(expected, got=self.accelerator)

    def __str__(self) -> str:
        where = "" if self.accelerator == "cpu" else f" on {self.accelerator}"
        return state_conditions(_NAMES[self.runtime] + where, self.threads, self.clock)

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a device's file."""
        settings = {"runtime": self.runtime, "threads": str(self.threads), "clock": self.clock}
        return settings if self.accelerator == "cpu" else {**settings, "accelerator": self.accelerator}

    @classmethod
    def read(cls, settings: Mapping[str, str]) -> Conditions | None:
        """Return the conditions in a device's file; None if this machine cannot repeat them."""
        runtime, threads, clock = (settings.get(name, "") for name in ("runtime", "threads", "clock"))
        if runtime not in get_args(Runtime) or not threads.isdecimal() or clock not in CLOCKS:
            return None
        accelerator = settings.get("accelerator", "cpu")
        here = torch.accelerator.current_accelerator(check_available=True)
        if accelerator != "cpu" and (here is None or here.type != accelerator):
            return None
        try:
            return cls(runtime, int(threads), clock, accelerator)  # type: ignore[arg-type]
        except InputError:  # more threads than this machine has
            return None


def state_conditions(runtime: str, threads: int, clock: str = "wall") -> str:
    """Return the conditions for people.

    >>> state_conditions("torch.export", 2)
    'torch.export, 2 threads, wall clock'
    """
    return f"{runtime}, {threads} thread{'s' * (threads > 1)}, {clock} clock"


def measure_networks(
    networks: Sequence[Callable[[], nn.Module]],
    image: Image,
    conditions: Conditions,
    rounds: int = ROUNDS,
    **options: Any,
) -> Array:
    """Measure networks in turn on one image; return the median milliseconds of each round.

    The normalization of the image is included, as in exported files.

    Args:
        networks: functions that build the networks.
        image: (channels, height, width).
        conditions: of the measurement.
        rounds: number of rounds.
        **options: of `time_in_turn`.

    Returns:
        Shape (networks, rounds).

    >>> measure_networks([nn.Flatten], (3, 8, 8), Conditions(), rounds=2, least_ms=0.1).shape
    (1, 2)
    """
    device = torch.device(conditions.accelerator)
    x, normalize = torch.rand(1, *image).to(device), Normalize([0.5] * image[0], [0.25] * image[0])
    with fixed_threads(conditions.threads), torch.inference_mode(), TemporaryDirectory() as place:
        calls = []
        for number, build in enumerate(follow(networks, "networks")):
            with torch.random.fork_rng(devices=[]):
                network = nn.Sequential(normalize, build()).to(device).eval()
            run = _runner(network, conditions, image, Path(place) / f"{number}.onnx")
            calls.append(partial(run, x))
        return time_in_turn(calls, rounds, clock=conditions.clock, device=device, **options)


def _runner(
    network: nn.Module, conditions: Conditions, image: Image, place: Path
) -> Callable[[Tensor], object]:
    """Return a function that computes the network; `place` is the file of an exported one."""
    if conditions.runtime == "compiled":
        network.compile()
    if conditions.runtime != "onnx":
        return network
    with torch.inference_mode(False):
        return read_onnx(export(network, place, image).path, conditions.threads)


@contextmanager
def fixed_threads(count: int) -> Iterator[None]:
    """Set the number of threads inside the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# An exported file


class Speed(NamedTuple):
    """Latency and memory of an exported file.

    Args:
        ms: median milliseconds of a call.
        error: its bootstrap error.
        bytes: peak memory of a forward pass, weights included.
        images: batch size.
        conditions: runtime, threads, and clock.

    >>> print(Speed(1.234, 0.04, bytes=2_500_000, images=1, conditions=str(Conditions("onnx"))))
    1.23 ± 0.04 ms (median of calls; ONNX Runtime, 1 thread, wall clock) and 2.5 MB for 1 image at a time
    """

    ms: float
    error: float
    bytes: int
    images: int
    conditions: str

    def __str__(self) -> str:
        time = f"{self.ms:.3g} ± {self.error:.1g} ms (median of calls; {self.conditions})"
        count = f"{self.images} image{'s' * (self.images > 1)} at a time"
        return f"{time} and {self.bytes / 1e6:.3g} MB for {count}"


_OF_FILES = {".onnx": "ONNX Runtime", ".pt2": "torch.export"}


def benchmark(
    path: Path,
    network: nn.Module,
    image: Image,
    batch: int | None = None,
    *,
    threads: int = 1,
    dtype: torch.dtype = torch.float32,
) -> Speed:
    """Measure an exported file as `study=latency` measures networks.

    Args:
        path: the file.
        network: the exported network, whose memory is counted.
        image: (channels, height, width).
        batch: batch size of the file. None: any, measured with one image.
        threads: number of threads.
        dtype: data type of the images.
    """
    x = random_images(batch or 1, image, dtype)
    with fixed_threads(threads), torch.inference_mode():
        run = read_onnx(path, threads) if path.suffix == ".onnx" else FORMATS[path.suffix].read(path)
        ms, errors = medians(time_in_turn([lambda: run(x)], ROUNDS))
        memory = inference_memory(network, x)
    conditions = state_conditions(_OF_FILES[path.suffix], threads)
    return Speed(float(ms[0]), float(errors[0]), memory, len(x), conditions)
