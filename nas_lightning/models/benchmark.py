"""How long an exported file takes on this machine, and the memory that its network needs."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from nas_lightning.cost.latency.timing import medians, time_in_turn
from nas_lightning.cost.memory import inference_memory
from nas_lightning.models.export_formats import FORMATS, Image

ROUNDS = 20


class Speed(NamedTuple):
    """What a file's network takes.

    Args:
        ms: milliseconds, the median of calls.
        error: its bootstrap deviation.
        bytes: weights, and the most of a forward pass that is alive at once.
        images: at a time.

    >>> print(Speed(ms=1.234, error=0.04, bytes=2_500_000, images=1))
    1.23 ± 0.04 ms and 2.5 MB for 1 image at a time
    """

    ms: float
    error: float
    bytes: int
    images: int

    def __str__(self) -> str:
        count = f"{self.images} image{'s' * (self.images > 1)} at a time"
        return f"{self.ms:.3g} ± {self.error:.1g} ms and {self.bytes / 1e6:.3g} MB for {count}"


def benchmark(path: Path, network: nn.Module, image: Image, batch: int | None = None) -> Speed:
    """Measure an exported file.

    Args:
        path: of the file.
        network: that it was exported from, whose memory is counted.
        image: (channels, height, width).
        batch: images that the file takes at a time; None: any number, of which one is measured.
    """
    run, x = FORMATS[path.suffix].read(path), torch.zeros(batch or 1, *image)
    with torch.inference_mode():
        ms, errors = medians(time_in_turn([lambda: run(x)], ROUNDS))
        return Speed(float(ms[0]), float(errors[0]), inference_memory(network, x), len(x))
