"""How long a predictor takes for images that are in memory already."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from torch import Tensor


def milliseconds(run: Callable[[Tensor], object], pixels: Tensor, seconds: float = 0.3) -> float:
    """The median time of a call, over calls that take so many seconds, after one that warms up.

    >>> import torch
    >>> milliseconds(torch.relu, torch.zeros(1), seconds=0.01) > 0
    True
    """
    run(pixels)
    times: list[float] = []
    while sum(times) < seconds:
        start = time.perf_counter()
        run(pixels)
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)
