"""What is said of a network that is measured: once, however many batches; or why it cannot be."""

from __future__ import annotations

import warnings
from functools import cache

from nas_lightning.errors import InputError

TWICE = "expected operations that can be differentiated twice"


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


def explain(error: BaseException | None) -> InputError | None:
    """Torch's error as what was expected of the network; None for any other.

    >>> str(explain(RuntimeError("derivative for aten::_pdist_backward is not implemented")))
    "expected operations that can be differentiated twice, got 'aten::_pdist_backward'"
    """
    text = str(error) if isinstance(error, RuntimeError) else ""
    if "use_reentrant=True" in text:
        expected = "expected checkpointing with use_reentrant=False, which gradients can be asked of"
        return InputError(expected, got=True)
    if text.startswith("derivative for ") and text.endswith(" is not implemented"):
        return InputError(TWICE, got=text.split()[2])
    return None
