"""Lightning without torch's compiler, until something is compiled: a second that no step needs.

Lightning imports the compiler for two names: the class of compiled modules, by which it recognizes them, and
a mark for functions that are not to be compiled. As long as the compiler is not loaded nothing is compiled,
so that no object is of that class and the mark says nothing; afterwards both are torch's.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any

_NAME = "torch._dynamo"


def import_without_compiler(name: str) -> None:
    """Import a module, to which the compiler is those two names; what else it asks for loads all of it.

    >>> import_without_compiler("pytorch_lightning.utilities.compile")
    """
    if _NAME not in sys.modules:
        sys.modules[_NAME] = _Placeholder(_NAME)
        try:
            with suppress(ImportError):  # of a part of the compiler, in a version that asks for one
                import_module(name)
        finally:
            _remove_placeholder()
    import_module(name)


class _OfCompiled(type):
    def __instancecheck__(cls, instance: object) -> bool:
        compiler = _loaded()
        return compiler is not None and isinstance(instance, compiler.OptimizedModule)


class _CompiledModule(metaclass=_OfCompiled):
    """Of which all compiled modules are instances."""


def _disable(function: Callable[..., Any] | None, *options: Any, **named: Any) -> Callable[..., Any]:
    """The function, which is not compiled; None: what makes such functions."""
    if function is None:
        return lambda marked: _disable(marked, *options, **named)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        compiler = _loaded()
        disabled = function if compiler is None else compiler.disable(function, *options, **named)
        return disabled(*args, **kwargs)

    return call


class _Placeholder(ModuleType):
    OptimizedModule = _CompiledModule
    disable = staticmethod(_disable)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what looks through all modules asks for that
            raise AttributeError(name)
        _remove_placeholder()
        return getattr(import_module(_NAME), name)


def _remove_placeholder() -> None:
    if isinstance(sys.modules.get(_NAME), _Placeholder):
        del sys.modules[_NAME]


def _loaded() -> Any:
    """The compiler; None before it is loaded."""
    module = sys.modules.get(_NAME)
    return None if isinstance(module, _Placeholder) else module
