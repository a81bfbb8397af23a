"""Every `_target_` of a configuration, held against the signature of what it names before anything is built.

So a setting that does not exist, or is not what its argument's annotation says, is one line at the start, and
none is accepted and ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hydra._internal.utils import _locate
from hydra.errors import InstantiationException
from omegaconf import DictConfig

from nas_lightning.checks import check_argument
from nas_lightning.errors import InputError, near_match
from nas_lightning.jobs.arguments import arguments

_SPECIAL = ("_target_", "_partial_", "_recursive_", "_convert_", "_args_")


def check_targets(config: DictConfig) -> None:
    """Raise for the first setting that its target does not take."""
    for group in ("callbacks", "logger"):
        for name, item in (config.get(group) or {}).items():
            if item is not None and "_target_" not in item:
                raise InputError("expected a _target_, the class that it stands for", where=f"{group}.{name}")
    for where, node in _nodes(config, ""):
        hints = arguments(locate(node["_target_"], where))
        for key, value in node.items_ex(resolve=True):
            if key not in _SPECIAL:
                check_value(str(key), value, hints, where)


def check_value(key: str, value: Any, hints: Mapping[str, Any] | None, where: str) -> None:
    """Raise unless `key` is an argument and `value` is what its annotation says."""
    if hints is None:
        return
    if not hints:
        raise InputError(f"expected no setting of {where}, which takes none", got=key, where=where)
    if key not in hints:
        raise InputError(f"expected a setting of {where} ({near_match(key, hints)})", got=key, where=where)
    check_argument(key, value, hints[key], f"{where}.{key}")


def locate(name: str, where: str) -> Callable[..., Any]:
    """The class or function of that dotted name."""
    try:
        target: Any = _locate(name)  # which logs nothing
    except (InstantiationException, ImportError, ValueError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise InputError(f"expected a class that can be imported: {reason}", got=name, where=where) from None
    if not callable(target):
        raise InputError("expected a class or function", got=name, where=where)
    return target


def _nodes(config: DictConfig, where: str) -> Iterator[tuple[str, DictConfig]]:
    """All nodes with a target, and the path to each."""
    if "_target_" in config:
        yield where, config
    for key, value in config.items_ex(resolve=True):
        if isinstance(value, DictConfig):
            yield from _nodes(value, ".".join([*filter(None, [where]), str(key)]))
