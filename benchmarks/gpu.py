"""Training and search steps on a GPU: memory layout, precision, cuDNN's autotuner, and deterministic kernels.

    make bench-gpu, or python -m benchmarks.gpu [--device cuda] [--batch 64] [--steps 20]

Writes benchmarks/results/gpu_<name of the device>.md: milliseconds per step, images per second, and peak
memory. Takes some minutes. `--small` has tiny networks, for a try on the CPU: `--device cpu --small`.
"""

from __future__ import annotations

import argparse
import platform
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.retrain_step import DARTS_V2
from nas_lightning.spaces import DartsSpace
from nas_lightning.utils.tables import Entry, Table

RESULTS = Path(__file__).with_name("results")
COLUMNS = ("step", "layout", "precision", "cuDNN", "ms per step", "images/s", "peak MB")
LAYOUTS = {"NCHW": torch.contiguous_format, "channels last": torch.channels_last}
PRECISIONS = ("float32", "TF32", "bf16")
KERNELS = ("default", "benchmark", "deterministic")
Step = Callable[[], None]


@dataclass(frozen=True)
class Setting:
    """One row of the table.

    Args:
        layout: memory layout of images and weights.
        precision: of convolutions and matrix products.
        kernels: how cuDNN chooses kernels.
    """

    layout: str
    precision: str
    kernels: str

    @contextmanager
    def applied(self, device: torch.device) -> Iterator[None]:
        """Apply the setting within the context."""
        tf32, deterministic = self.precision == "TF32", self.kernels == "deterministic"
        products = torch.get_float32_matmul_precision()
        flags = {"enabled": True, "benchmark": self.kernels == "benchmark", "allow_tf32": tf32}
        with ExitStack() as stack:
            stack.enter_context(torch.backends.cudnn.flags(**flags, deterministic=deterministic))
            stack.callback(torch.set_float32_matmul_precision, products)
            torch.set_float32_matmul_precision("high" if tf32 else "highest")
            stack.callback(torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled())
            torch.use_deterministic_algorithms(deterministic)
            autocast = torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bf16")
            stack.enter_context(autocast)
            if self.layout == "NCHW":  # networks convert their input
                for module in ("network", "supernet"):
                    place = f"nas_lightning.spaces.{module}.channels_last"
                    stack.enter_context(mock.patch(place, lambda x: x.contiguous()))
            yield


def training_step(network: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Return a step of SGD on the weights."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.025, momentum=0.9, weight_decay=3e-4)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimizer.step()

    return step


class Weighed(nn.Module):
    """A supernet with equal weights of all operations.

    Args:
        space: the search space.
        supernet: its supernet.
    """

    def __init__(self, space: DartsSpace, supernet: nn.Module) -> None:
        super().__init__()
        self.supernet = supernet
        for name, group in space.groups.items():
            self.register_buffer(name, torch.full(group.shape, 1 / group.shape[1]))

    def forward(self, x: Tensor) -> Tensor:
        return self.supernet(x, dict(self.named_buffers(recurse=False)))


def build(batch: int, small: bool) -> dict[str, tuple[nn.Module, Tensor, Tensor]]:
    """Return network, images, and labels of each kind of step, on the CPU."""
    space, side = DartsSpace(nodes=2) if small else DartsSpace(), 8 if small else 32
    x, y = torch.randn(batch, 3, side, side), torch.randint(10, (batch,))
    sizes = {"in_channels": 3, "num_classes": 10}
    genotype = space.sample(torch.Generator().manual_seed(0)) if small else space.parse(DARTS_V2)
    of_network, of_supernet = ((4, 3), (2, 3)) if small else ((36, 20), (16, 8))
    network = space.network(genotype, **sizes, channels=of_network[0], cells=of_network[1])
    supernet = space.supernet(**sizes, channels=of_supernet[0], cells=of_supernet[1])
    return {"training": (network, x, y), "search, weights": (Weighed(space, supernet), x, y)}


def measure(step: Step, device: torch.device, steps: int) -> tuple[float, float | None]:
    """Return seconds per step, and the peak of allocated bytes, which only CUDA counts."""
    is_gpu, is_cuda = device.type != "cpu", device.type == "cuda"
    for _ in range(min(3, steps)):  # the autotuner tries kernels in the first
        step()
    if is_cuda:
        torch.cuda.reset_peak_memory_stats(device)
    if is_gpu:
        torch.accelerator.synchronize(device)
    start = time.perf_counter()
    for _ in range(steps):
        step()
    if is_gpu:
        torch.accelerator.synchronize(device)
    seconds = (time.perf_counter() - start) / steps
    return seconds, torch.cuda.max_memory_allocated(device) if is_cuda else None


def run(device: torch.device, batch: int, steps: int, small: bool) -> Table:
    """Measure all settings; those that need more memory than there is have empty cells."""
    rows: list[list[Entry]] = []
    for layout, precision, kernels in product(LAYOUTS, PRECISIONS, KERNELS):
        setting = Setting(layout, precision, kernels)
        torch.manual_seed(0)
        for name, (network, x, y) in build(batch, small).items():
            found: list[Entry] = [None, None, None]
            with setting.applied(device):
                try:
                    network = network.to(device, memory_format=LAYOUTS[layout])
                    x = x.to(device, memory_format=LAYOUTS[layout])
                    step = training_step(network, x, y.to(device))
                    seconds, peak = measure(step, device, steps)
                    found = [1000 * seconds, batch / seconds, None if peak is None else peak / 2**20]
                except torch.OutOfMemoryError:
                    torch.cuda.empty_cache()
            rows.append([name, layout, precision, kernels, *found])
            print(*rows[-1], sep="  ", flush=True)
    note = "training: DARTS_V2, 36 channels, 20 cells; search: a weight step of DARTS, 16 channels, 8 cells"
    title = f"{name_of(device)}, torch {torch.__version__}, batch {batch}, {steps} steps"
    return Table(f"gpu_{plain(name_of(device))}", title, COLUMNS, rows, "Tiny networks" if small else note)


def name_of(device: torch.device) -> str:
    """Return the name of the GPU or processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device} {platform.machine()}"


def plain(name: str) -> str:
    """Return the name for a file.

    >>> plain("NVIDIA A100-SXM4-40GB")
    'nvidia_a100_sxm4_40gb'
    """
    return re.sub(r"\W+", "_", name.lower())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", help="default: the accelerator of this machine")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    device = torch.accelerator.current_accelerator() if options.device is None else options.device
    if device is None or (str(device) != "cpu" and not torch.accelerator.is_available()):
        parser.error("no GPU; to try it on the CPU: --device cpu --small --batch 4 --steps 1")
    table = run(torch.device(device), options.batch, options.steps, options.small)
    options.folder.mkdir(exist_ok=True)
    path = options.folder / f"{table.name}.md"
    path.write_text(table.markdown() + "\n", encoding="utf-8")
    print(f"\n{table.markdown()}\n\n{path}")


if __name__ == "__main__":
    main()
