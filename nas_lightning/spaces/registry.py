"""Spaces by name, from the yamls in `conf/space`, `conf/network`, and the user's own configuration folders.

Model and genotype files name a space and its settings; classes named in files are never imported.

>>> make_space("darts", {"nodes": 2}).nodes
2
>>> make_space("nasbench1shot1_s2").variant  # the setting in the yaml of the option
2
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from nas_lightning.errors import InputError, near_match
from nas_lightning.options import groups, option_file
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.fixed import check_allowed
from nas_lightning.spaces.operations import OpFactory, add_operation, is_operation
from nas_lightning.utils.files import read_text

_GROUPS = ("space", "network")  # a fixed network is a space of one architecture


def make_space(
    name: str,
    settings: Mapping[str, Any] = {},
    *,
    folders: Iterable[str | Path] = (),
    space: type[SearchSpace] | None = None,
    operations: Iterable[str | OpFactory] = (),
    modules: Iterable[str | Callable[..., Any]] = (),
) -> SearchSpace:
    """Build the space of that name.

    Args:
        name: the name of the space, or an option of `space=`, whose yaml may have further settings.
        settings: arguments of its class that differ from the defaults.
        folders: the user's configuration folders, which may have further spaces.
        space: the user's class, if no yaml names it.
        operations: the user's operations that `settings` may name: dotted names, classes, or functions.
        modules: the user's networks that `settings` may name, likewise.

    Raises:
        InputError: for an unknown name, wrong settings, or custom code that the user has not named.
    """
    for target in operations:
        add_operation(target)
    named = settings.get("ops", ())
    for op in named if isinstance(named, (list, tuple)) else ():  # the space checks other types
        if not isinstance(op, str) or not is_operation(op):
            raise InputError("Unknown operation; pass custom operations as operations=[…]", got=op)
    if space is None:
        space_class, defaults = find_space(name, folders)
    elif name in (space.name, f"{space.__module__}.{space.__qualname__}"):
        space_class, defaults = space, {}
    else:
        raise InputError(f"The space must be {name!r}", got=space.name, where="space")
    try:
        built = space_class(**{**defaults, **settings})
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"Invalid settings of {name}: {error}", got=dict(settings)) from None
    check_allowed(built.modules, modules)
    return built


def find_space(name: str, folders: Iterable[str | Path] = ()) -> tuple[type[SearchSpace], dict[str, Any]]:
    """Return the class of a space, and the settings in the yaml if `name` is that of an option."""
    option = find_option(name, folders)
    target, settings = _options(tuple(map(Path, folders)))[option]
    found = _import(option, target)
    return found, {} if found.name == name else settings


def find_option(name: str, folders: Iterable[str | Path] = ()) -> str:
    """Return the option of `space=` with that name, else the first one whose class has it."""
    options = _options(tuple(map(Path, folders)))
    if name in options:
        return name
    for option, (target, _) in options.items():
        if _import(option, target).name == name:
            return option
    expected = (
        f"Unknown space ({near_match(name, options)}; for a custom space pass folders=[…] or space=its class)"
    )
    raise InputError(expected, got=name)


@cache
def _options(folders: tuple[Path, ...]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the class and the settings in each option's yaml."""
    options = {}
    for group, option in [(kind, name) for kind in _GROUPS for name in groups(folders)[kind]]:
        content = yaml.safe_load(read_text(option_file(group, option, folders)))
        settings = dict(content.get(group, content) or {})
        if "_target_" in settings:  # others only change the settings of these
            options[option] = str(settings.pop("_target_")), settings
    return options


def _import(option: str, target: str) -> type[SearchSpace]:
    module, _, name = target.rpartition(".")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        where = f"{option}.yaml"
        raise InputError(f"Cannot import the class: {error}", got=target, where=where) from None
    if not (isinstance(found, type) and issubclass(found, SearchSpace)):
        raise InputError("`_target_` must be a search space", got=target, where=f"{option}.yaml")
    return found
