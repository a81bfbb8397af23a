"""What is said of a network once, however many batches of it are measured."""

from __future__ import annotations

import warnings
from functools import cache


@cache
def say_row_by_row(network: str, reason: str) -> None:
    """The kernel is not the sum over layers."""
    warnings.warn(
        f"the kernel of {network} is computed row by row, one backward pass a sample: {reason}", stacklevel=2
    )


@cache
def say_silent(network: str, layer: str) -> None:
    """No gradient comes past the last layer."""
    warnings.warn(
        f"the last layer of {network}, {layer!r}, is all zeros: gradients are of it alone; "
        "`initialise(network)` draws its weights",
        stacklevel=2,
    )
