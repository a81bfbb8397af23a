"""Whether the settings that were typed exist, found by the one composition that the run gets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig

from nas_lightning.cli.composer import Composer
from nas_lightning.cli.failures import FAILURES, first_line
from nas_lightning.cli.plugins import check_plugin
from nas_lightning.cli.shape import check_shape
from nas_lightning.cli.suggestions import suggest
from nas_lightning.cli.sweep_composition import combinations_of, compose_sweep
from nas_lightning.cli.swept_values import WHERE, check_drawn, group_of, swept_values
from nas_lightning.errors import InputError, near_match
from nas_lightning.options import groups, top_names
from nas_lightning.runs.command import Command


def check_command(command: Command, composer: Composer) -> DictConfig:
    """The configuration, composed once; raises for what does not compose.

    A sweep is composed as a whole, and each combination of its groups to see that its jobs can be.
    """
    overrides = parse(command.words, composer)
    for override in overrides:
        _check_group(override, command.folders)
    swept = [override for override in overrides if override.is_sweep_override()]
    for combination in combinations_of(overrides, command.folders):
        chosen = [a for a, b in zip(combination, command.words, strict=True) if a != b]
        config = compose_checked(composer, combination, " with ".join([WHERE, *chosen]))
        if config.hydra.mode != RunMode.MULTIRUN and not command.sweep:  # it may choose a sweep, too
            if swept:
                got = swept[0].input_line
                raise InputError("expected one value, or -m for a sweep", got=got, where=WHERE)
            return config
        check_drawn(swept, config.hydra.sweeper)
    return compose_sweep(composer, overrides, command.words)


def parse(lines: Sequence[str], composer: Composer | None = None) -> list[Override]:
    """The overrides as Hydra understands them; with a composer those of glob(…) know the options."""
    nameless = [line for line in lines if line.startswith("=")]
    if nameless:
        raise InputError("expected settings as key=value", got=nameless[0], where=WHERE)
    try:
        loader = None if composer is None else composer.loader
        return OverridesParser.create(loader).parse_overrides(list(lines))
    except HydraException as error:
        raise InputError(f"expected settings as key=value: {first_line(error)}", where=WHERE) from None


def compose_checked(composer: Composer, words: Sequence[str], where: str = WHERE) -> DictConfig:
    """The configuration of these words; an `InputError` names what is unknown in them."""
    try:
        config = composer.compose(words)
    except FAILURES as error:
        check_plugin(str(error), composer.loader)
        _blame_group(composer, words)
        _blame_part(composer, words)
        _blame_key(composer, words, where)
        raise InputError(f"expected settings that fit together: {first_line(error)}", where=where) from None
    if any(_is_new(word, composer.script) for word in words):
        _blame_key(composer, words, where)
    check_shape(config, composer.script)
    return config


def _is_new(word: str, script: str) -> bool:
    """Whether a word adds something that no configuration of ours has a place for."""
    return word.startswith("+") and word.lstrip("+").split("=")[0].split(".")[0] not in top_names(script)


# Groups


def _is_of_hydra(override: Override) -> bool:
    """Whether it chooses an option of Hydra's or of a plugin's, such as hydra/launcher=joblib."""
    return group_of(override).startswith("hydra/")


def _check_group(override: Override, folders: Sequence[Path]) -> None:
    options_of, group = groups(folders), group_of(override)
    if group not in options_of or override.is_delete():
        return
    for choice in _choices(override):
        if choice not in ("null", *options_of[group]):
            article = "" if group.endswith("s") else "an " if group[0] in "aeiou" else "a "
            raise InputError(
                f"expected {article}{group} ({near_match(choice, options_of[group])})",
                got=choice,
                where=WHERE,
            )


def _choices(override: Override) -> Iterable[str]:
    if override.is_sweep_override():
        return swept_values(override)
    value = override.value()
    values = value if isinstance(value, list) else [value]  # callbacks=[search,ntk]
    return ["null" if value is None else str(value) for value in values]


def _blame_group(composer: Composer, lines: Sequence[str]) -> None:
    """Raise for the first choice that this script does not have, such as a strategy to train with."""
    known = groups(composer.folders)
    asked = [group_of(override).partition("@")[0] for override in parse(lines) if not override.is_add()]
    own = _groups_of(composer, [], {*asked} & known.keys())
    for group in asked:
        if group in known and group not in own:
            names = ", ".join(sorted(own & known.keys()))
            raise InputError(f"expected a choice of {composer.script}.py ({names})", got=group, where=WHERE)


def _blame_part(composer: Composer, lines: Sequence[str]) -> None:
    """Raise for the first part of a strategy that is not made of such."""
    overrides = parse(lines)
    strategies = [str(o.input_line) for o in overrides if group_of(o) == "strategy"]
    asked = {group_of(override) for override in overrides} & groups(composer.folders).keys()
    try:
        parts, chosen = (_groups_of(composer, words, asked) for words in ([], strategies))
    except FAILURES:  # of the strategy itself, which is said afterwards
        return
    for override in overrides:
        group = group_of(override)
        if strategies and group in parts and group not in chosen:
            reason = f"because {strategies[-1]} is not made of parts"
            raise InputError(f"expected no {group}, {reason}", got=override.input_line, where=WHERE)


def _groups_of(composer: Composer, words: list[str], asked: Set[str]) -> set[str]:
    """The groups that there is a choice in; of those that are asked for, those of lists, too."""
    chosen = {*composer.compose(words).hydra.runtime.choices}
    return chosen | {group for group in asked - chosen if _takes_list(composer, words, group)}


def _takes_list(composer: Composer, words: list[str], group: str) -> bool:
    """Whether the group is one such as that of regularizers, of which Hydra names no choice."""
    try:
        composer.compose([*words, f"{group}=[]"])
    except FAILURES:
        return False
    return True


# Single settings


def _blame_key(composer: Composer, lines: Sequence[str], where: str) -> None:
    """Raise for the first setting that does not exist once the groups are chosen."""
    options_of = groups(composer.folders)
    overrides = parse(lines)
    choosing = [str(o.input_line) for o in overrides if group_of(o) in options_of or _is_of_hydra(o)]
    try:
        config = composer.compose(choosing)
    except FAILURES:
        return
    for override in overrides:
        key = str(override.key_or_group)
        added = override.is_add() or override.is_force_add()
        if (
            group_of(override) in options_of
            or (added and key.split(".")[0] in config)
            or _is_of_hydra(override)
        ):
            continue
        if not _exists(config, key):
            hint = suggest(config, key, composer.folders)
            raise InputError(f"expected a setting that exists ({hint})", got=key, where=where)


def _exists(config: Any, key: str) -> bool:
    for part in key.split("."):
        if not (isinstance(config, DictConfig) and part in list(config)):
            return False
        config = config._get_node(part)
    return True
