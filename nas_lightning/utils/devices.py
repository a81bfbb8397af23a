"""What devices differ in: float64, rounding, and random numbers.

The rule of float64: what is computed in float64 is computed on the tensor's device, or on the CPU if the
device has no float64, as Apple's MPS. Sums that stay on the device are float32 there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

CPU = torch.device("cpu")


@cache
def has_float64(device: torch.device) -> bool:
    """Return whether the device computes in float64.

    >>> has_float64(torch.device("cpu"))
    True
    """
    try:
        torch.empty(0, dtype=torch.float64, device=device)
    except (TypeError, RuntimeError):
        return False
    return True


def double(x: Tensor) -> Tensor:
    """Return the tensor in float64, on the CPU if its device has no float64.

    >>> double(torch.ones(1))
    tensor([1.], dtype=torch.float64)
    """
    return (x if has_float64(x.device) else x.cpu()).double()


def double_zeros(*shape: int, like: Tensor) -> Tensor:
    """Return zeros in float64, where `double` would place `like`."""
    device = like.device if has_float64(like.device) else "cpu"
    return torch.zeros(shape, dtype=torch.float64, device=device)


def widest_float(device: torch.device) -> torch.dtype:
    """Return float64, or float32 if the device has no float64."""
    return torch.float64 if has_float64(device) else torch.float32


def arithmetic(device: torch.device) -> str:
    """Return the type of the device and its rounding of float32, which results depend on.

    >>> arithmetic(CPU)
    'cpu'
    """
    if device.type != "cuda":
        return device.type
    convolutions = "TF32" if torch.backends.cudnn.allow_tf32 else "float32"
    return f"cuda, convolutions in {convolutions}, products {torch.get_float32_matmul_precision()}"


@contextmanager
def seeded(seed: int, device: torch.device = CPU) -> Iterator[None]:
    """Seed the generators of the CPU and of a device inside the context, and restore them at its end.

    Other devices keep their state, whereas `torch.manual_seed` seeds all of them.

    >>> with seeded(0):
    ...     first = torch.rand(1)
    >>> with seeded(0):
    ...     torch.equal(torch.rand(1), first)
    True
    """
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        state = torch.mps.get_rng_state() if device.type == "mps" else None
        if state is not None:
            torch.mps.manual_seed(seed)
        try:
            yield
        finally:
            if state is not None:
                torch.mps.set_rng_state(state)
