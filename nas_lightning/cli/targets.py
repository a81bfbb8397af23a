"""Check every `_target_` of a configuration against the signature of what it names, before anything is built.

Constructors of ours validate themselves; this also covers the classes of other libraries, and those that are
built only after hours, such as a retraining's optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from nas_lightning.errors import InputError
from nas_lightning.validation import arguments, check_argument, check_names

_SPECIAL = ("_target_", "_partial_", "_recursive_", "_convert_", "_args_")


def check_targets(config: DictConfig) -> None:
    """Raise `InputError` for the first setting that its target does not take."""
    for group in ("callbacks", "logger"):
        for name, item in (config.get(group) or {}).items():
            if item is not None and "_target_" not in item:
                raise InputError("expected a _target_, the class that it stands for", where=f"{group}.{name}")
    for where, node in _nodes(OmegaConf.to_container(config, resolve=True), ""):
        hints = arguments(locate(node["_target_"], where))
        for name, value in node.items():
            if name not in _SPECIAL:
                check_value(name, value, hints, where)


def check_value(name: str, value: Any, hints: Mapping[str, Any] | None, where: str) -> None:
    """Raise `InputError` unless `name` is an argument and `value` is what its annotation says."""
    if hints is None:  # anything goes
        return
    check_names([name], hints, where)
    if not any(_nodes(value, "")):  # what is not built yet is checked by whom it is passed to
        check_argument(name, value, hints[name], f"{where}.{name}")


def locate(name: str, where: str) -> Callable[..., Any]:
    """Return the class or function of that dotted name."""
    try:
        target = get_object(name)
    except (ImportError, ValueError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise InputError(f"expected a class that can be imported: {reason}", got=name, where=where) from None
    if not callable(target):
        raise InputError("expected a class or function", got=name, where=where)
    return target


def _nodes(value: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all mappings with a target, and the path to each."""
    if isinstance(value, dict) and "_target_" in value:
        yield where, value
    entries = dict(enumerate(value)) if isinstance(value, list) else value
    if isinstance(entries, dict):
        for key, entry in entries.items():
            yield from _nodes(entry, f"{where}.{key}".lstrip("."))
