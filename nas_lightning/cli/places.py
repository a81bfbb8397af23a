"""The places besides the run's folder that settings name, tried before hours of work go there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from omegaconf import DictConfig

from nas_lightning.cli.stored_words import places
from nas_lightning.errors import InputError
from nas_lightning.utils.files import check_file, check_writable


def check_places(config: DictConfig, run: Path) -> None:
    """Raise for the first place outside the run's folder that nothing can be written to."""
    for where, place in _named_places(config):
        if not place.is_relative_to(run):
            check_file(place)
            try:
                check_writable(place)
            except (OSError, ValueError) as error:  # ValueError: a name that no file can have
                reason = getattr(error, "strerror", None) or str(error)
                expected = f"expected a place that can be written: {reason}"
                raise InputError(expected, got=str(place), where=where) from None


def _named_places(config: DictConfig) -> Iterator[tuple[str, Path]]:
    groups = {group for group, _ in places()}
    for group in sorted(groups & {str(name) for name in config if config.get(name)}):
        waiting = [(group, config[group])]
        while waiting:
            where, node = waiting.pop()
            for name, value in node.items_ex(resolve=True) if isinstance(node, DictConfig) else ():
                place = f"{where}.{name!s}"
                waiting.append((place, value))
                if (group, str(name)) in places() and isinstance(value, str):
                    yield place, Path(value)
