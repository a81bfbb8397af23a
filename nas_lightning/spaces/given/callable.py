"""Whether somebody's network can be called as all networks are: with images, once its layers have shapes."""

from __future__ import annotations

import inspect

from torch import nn
from torch.nn.parameter import is_lazy

from nas_lightning.errors import InputError


def check_callable(network: nn.Module) -> None:
    """Raise unless `network(x)` is what it asks for.

    >>> class N(nn.Module):
    ...     def forward(self):
    ...         return 0
    >>> check_callable(N())
    Traceback (most recent call last):
        ...
    nas_lightning.errors.InputError: expected a network of images alone, forward(x), got 'forward()' (in N)
    """
    check_not_lazy(network)
    try:
        signature = inspect.signature(network.forward)
    except (TypeError, ValueError):  # of what is compiled to something that has none
        return
    try:
        signature.bind(None)
    except TypeError:
        got = f"forward{str(signature).partition(' ->')[0]}"
        raise InputError(
            "expected a network of images alone, forward(x)", got=got, where=type(network).__name__
        ) from None


def check_not_lazy(network: nn.Module) -> None:
    """Raise where a layer waits for its first images to know its shapes."""
    if any(is_lazy(parameter) for parameter in network.parameters()):
        raise InputError(
            "expected a network that has seen images, so that its lazy layers have shapes: network(x)"
        )
