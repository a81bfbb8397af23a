"""Every `_target_` of a configuration, held against the signature of what it names before anything is built.

So a setting that does not exist, or is of another kind than its argument, is one line at the start, and none
is accepted and ignored.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from hydra.errors import InstantiationException
from hydra.utils import get_object
from omegaconf import DictConfig, ListConfig

from nas_lightning.errors import InputError, near_match

_SPECIAL = ("_target_", "_partial_", "_recursive_", "_convert_", "_args_")
_SEQUENCES = (list, tuple, Sequence)
_KINDS: dict[Any, tuple[str, tuple[type, ...]]] = {
    bool: ("true or false", (bool,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    str: ("text", (str,)),
    Path: ("a path", (str,)),
    type(None): ("null", (type(None),)),
}


def check_targets(config: DictConfig) -> None:
    """Raise for the first setting that its target does not take."""
    for group in ("callbacks", "logger"):
        for name, item in (config.get(group) or {}).items():
            if item is not None and "_target_" not in item:
                raise InputError("expected a _target_, the class that it stands for", where=f"{group}.{name}")
    for where, node in _nodes(config, ""):
        known = arguments(locate(node["_target_"], where))
        for key, value in node.items_ex(resolve=True):
            if key not in _SPECIAL:
                check_value(str(key), value, known, where)


def check_value(key: str, value: Any, known: Mapping[str, Any] | None, where: str) -> None:
    """Raise unless `key` is an argument and `value` is of the kind that its annotation says."""
    if known is None:
        return
    if not known:
        raise InputError(f"expected no setting of {where}, which takes none", got=key, where=where)
    if key not in known:
        raise InputError(f"expected a setting of {where} ({near_match(key, known)})", got=key, where=where)
    if not fits(value, known[key]):
        raise InputError(f"expected {_said(known[key])}", got=value, where=f"{where}.{key}")


def locate(name: str, where: str) -> Callable[..., Any]:
    """The class or function of that dotted name."""
    try:
        return get_object(name)
    except (InstantiationException, ImportError, ValueError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise InputError(f"expected a class that can be imported: {reason}", got=name, where=where) from None


def arguments(target: Callable[..., Any]) -> dict[str, Any] | None:
    """The names and annotations of what a class or function can be called with; None: anything.

    A constructor with `**options` passes them on, so those of its base classes count too.
    """
    chain = [target]
    if isinstance(target, type):
        ancestors = target.__mro__[:-1]  # `object` takes nothing
        chain = [vars(ancestor)["__init__"] for ancestor in ancestors if "__init__" in vars(ancestor)]
    known: dict[str, Any] = {}
    for function in chain:
        found, passes_on = _signature(function)
        known = {**found, **known}
        if not passes_on:
            return known
    return known if isinstance(target, type) else None


def _signature(function: Callable[..., Any]) -> tuple[dict[str, Any], bool]:
    """Arguments with their annotations, and whether there can be others."""
    parameters = inspect.signature(function).parameters.values()
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    named = {
        p.name: _evaluated(p.annotation, scope)
        for p in parameters
        if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and p.name != "self"
    }
    return named, any(p.kind is p.VAR_KEYWORD for p in parameters)


def _evaluated(annotation: Any, scope: dict[str, Any]) -> Any:
    """An annotation that may be text; Any where its names are imported for type checkers only."""
    if annotation is inspect.Parameter.empty:
        return Any
    try:
        return eval(annotation, scope) if isinstance(annotation, str) else annotation
    except NameError:
        return Any


def fits(value: Any, hint: Any) -> bool:
    """Whether a value from a configuration can be an argument of that annotation.

    >>> fits(3, float), fits("3", float), fits(None, int | None), fits("cosine", Literal["cosine", "linear"])
    (True, False, True, True)
    """
    if get_origin(hint) in (Union, types.UnionType):
        return any(fits(value, option) for option in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint in _KINDS:
        kinds = _KINDS[hint][1]
        return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
    if get_origin(hint) in _SEQUENCES:
        return isinstance(value, ListConfig)
    return True  # what else there is, its owner judges


def _said(hint: Any) -> str:
    """An annotation in words."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_said(option) for option in get_args(hint)))
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(str(option) for option in get_args(hint))
    if hint in _KINDS:
        return _KINDS[hint][0]
    return "a list" if get_origin(hint) in _SEQUENCES else str(hint)


def _nodes(config: DictConfig, where: str) -> Iterator[tuple[str, DictConfig]]:
    """All nodes with a target, and the path to each."""
    if "_target_" in config:
        yield where, config
    for key, value in config.items_ex(resolve=True):
        if isinstance(value, DictConfig):
            yield from _nodes(value, ".".join([*filter(None, [where]), str(key)]))
