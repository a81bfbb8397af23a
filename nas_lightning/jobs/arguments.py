"""What a class or a function can be called with: names and annotations, as its signature has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from nas_lightning.checks import argument_hints


def arguments(target: Callable[..., Any]) -> dict[str, Any] | None:
    """The names and annotations of what a class or function can be called with; None: anything.

    A constructor with `**options` passes them on, so those of its base classes count too.

    >>> class Base:
    ...     def __init__(self, seed: int = 0) -> None: ...
    >>> class Open(Base):
    ...     def __init__(self, space: str, **options: int) -> None: ...
    >>> arguments(Open)
    {'seed': <class 'int'>, 'space': <class 'str'>}
    """
    chain = [target]
    if isinstance(target, type):
        ancestors = target.__mro__[:-1]  # `object` takes nothing
        chain = [vars(ancestor)["__init__"] for ancestor in ancestors if "__init__" in vars(ancestor)]
    hints: dict[str, Any] = {}
    for function in chain:
        named, passes_on = _signature(function)
        hints = {**named, **hints}
        if not passes_on:
            return hints
    return hints if isinstance(target, type) else None


def _signature(function: Callable[..., Any]) -> tuple[dict[str, Any], bool]:
    """Arguments with their annotations, and whether there can be others."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # of a builtin one, which says nothing of itself
        return {}, True
    return argument_hints(function), any(p.kind is p.VAR_KEYWORD for p in parameters)
