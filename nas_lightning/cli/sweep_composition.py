"""A sweep's configurations: that of each combination of its choices, and what its jobs share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from pathlib import Path

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from nas_lightning.cli.composer import Composer
from nas_lightning.cli.failures import FAILURES, first_line
from nas_lightning.cli.swept_values import WHERE, group_of, swept_values
from nas_lightning.errors import InputError
from nas_lightning.options import groups

MOST_COMBINATIONS = 200  # of a sweep's groups that are composed beforehand


def combinations_of(overrides: Sequence[Override], folders: Sequence[Path]) -> Iterator[tuple[str, ...]]:
    """The choices of groups together, at most so many, with the first value of every other sweep."""
    options_of = groups(folders)
    options: list[list[str]] = []
    for override in overrides:
        if not override.is_sweep_override():
            options.append([override.input_line or ""])
            continue
        key = override.get_key_element()
        values = [f"{key}={value}" for value in swept_values(override)]
        options.append(values if group_of(override) in options_of else values[:1])
    yield from islice(product(*options), MOST_COMBINATIONS)


def compose_sweep(composer: Composer, overrides: Sequence[Override], words: Sequence[str]) -> DictConfig:
    """What a sweep's jobs share; they themselves are composed one by one.

    Hydra leaves out what varies. Where other words need that, the first job's choices stand for it.
    """
    options_of = groups(composer.folders)
    varying = [o for o in overrides if o.is_sweep_override() and group_of(o) in options_of]
    first = {str(o.input_line): f"{o.get_key_element()}={swept_values(o)[0]}" for o in varying}
    try:
        return _compose_whole(composer, words)
    except FAILURES as error:
        if not first:  # such as to sweep what is Hydra's own
            raise _misfit(error) from None
    try:
        config = _compose_whole(composer, [first.get(word, word) for word in words])
    except FAILURES as error:
        raise _misfit(error) from None
    typed = {choice: word for word, choice in first.items()}  # which the sweeper goes over
    config.hydra.overrides.task = [typed.get(word, word) for word in config.hydra.overrides.task]
    return config


def _compose_whole(composer: Composer, words: Sequence[str]) -> DictConfig:
    return composer.compose([*words, "hydra.mode=MULTIRUN"], sweep=True)


def _misfit(error: Exception) -> InputError:
    return InputError(f"expected a sweep that fits together: {first_line(error)}", where=WHERE)
