"""Spaces by name, as the yamls of `conf/space` and of a user's own folders say.

Files of networks and architectures name a space and its settings; no class that stands in a file is imported.

>>> make_space("darts", {"nodes": 2}).nodes
2
>>> make_space("nasbench1shot1_s2").variant  # an option has the settings of its yaml
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

_OLD = "nas_lightning.spaces."
NAMES_OF_0_1: Mapping[str, str] = {
    f"{_OLD}darts.DartsSpace": "darts",
    f"{_OLD}darts_nasi.DartsNasi": "darts_nasi",
    f"{_OLD}mlp.Mlp": "mlp",
    f"{_OLD}nasbench101.NasBench101": "nasbench101",
    f"{_OLD}nasbench1shot1.NasBench1Shot1": "nasbench1shot1",
    f"{_OLD}nasbench201.NasBench201": "nasbench201",
    f"{_OLD}two_layer.TwoLayer": "two_layer",
}
"""Spaces' names by those of their classes, which version 0.1 wrote into files."""

_GROUPS = ("space", "network")
"""Options that make one: a network that somebody has made is a space of one architecture."""


def make_space(
    name: str,
    settings: Mapping[str, Any] = {},
    *,
    folders: Iterable[str | Path] = (),
    space: type[SearchSpace] | None = None,
    operations: Iterable[str | OpFactory] = (),
    modules: Iterable[str | Callable[..., Any]] = (),
) -> SearchSpace:
    """The space of that name, made with those settings where they are not its own.

    Args:
        name: what the space calls itself, or an option of `space=`, whose yaml has settings of its own.
        settings: arguments of its class.
        folders: of a user's own configuration, whose spaces are known too.
        space: a user's own class, where no yaml names it.
        operations: a user's own that `settings` may name, by their dotted names or as they are.
        modules: a user's own networks that `settings` may name, in the same way.
    """
    for own_operation in operations:
        add_operation(own_operation)
    named = settings.get("ops", ())
    for op in named if isinstance(named, (list, tuple)) else ():  # of what else it is, the space says it
        if not isinstance(op, str) or not is_operation(op):
            raise InputError("expected operations that are known (your own: operations=[…])", got=op)
    if space is None:
        made, own = find_space(name, folders)
    elif name in (space.name, f"{space.__module__}.{space.__qualname__}"):
        made, own = space, {}
    else:
        raise InputError(f"expected the space {name!r}", got=space.name, where="space")
    try:
        ready = made(**{**own, **settings})
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"expected the settings that {name} takes: {error}", got=dict(settings)) from None
    check_allowed(ready.modules, modules)
    return ready


def find_space(name: str, folders: Iterable[str | Path] = ()) -> tuple[type[SearchSpace], dict[str, Any]]:
    """The class of a space, and the settings that its option has besides."""
    option = find_option(name, folders)
    target, own = _options(tuple(map(Path, folders)))[option]
    made = _import(option, target)
    return made, {} if made.name == name else own


def find_option(name: str, folders: Iterable[str | Path] = ()) -> str:
    """The option of `space=` that is called so, else the first one whose class is."""
    options = _options(tuple(map(Path, folders)))
    if name in options:
        return name
    for option, (target, _) in options.items():
        if _import(option, target).name == name:
            return option
    expected = f"expected a space ({near_match(name, options)}; your own: folders=[…] or space=its class)"
    raise InputError(expected, got=name)


@cache
def _options(folders: tuple[Path, ...]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Class and settings by option, as the yamls have them."""
    options = {}
    for group, option in [(kind, name) for kind in _GROUPS for name in groups(folders)[kind]]:
        content = yaml.safe_load(read_text(option_file(group, option, folders)))
        settings = dict(content.get(group, content) or {})
        if "_target_" in settings:  # others are made of these
            options[option] = str(settings.pop("_target_")), settings
    return options


def _import(option: str, target: str) -> type[SearchSpace]:
    module, _, name = target.rpartition(".")
    try:
        made = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        where = f"{option}.yaml"
        raise InputError(f"expected a class that can be imported: {error}", got=target, where=where) from None
    if not (isinstance(made, type) and issubclass(made, SearchSpace)):
        raise InputError("expected a search space", got=target, where=f"{option}.yaml")
    return made
