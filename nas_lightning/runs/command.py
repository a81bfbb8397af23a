"""A command: what was typed for a run, with its shorthands written out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Command:
    """What was asked for.

    Args:
        script: `search`, `train` or `analyze`.
        words: the settings, as Hydra takes them.
        folders: the user's own folders of configurations.
        sweep: whether it is several runs (-m).

    >>> command = Command("search", ("strategy=darts", "++trainer.precision=16", "seed=1"))
    >>> command.settings("trainer."), command.without("seed=")
    (['++trainer.precision=16'], ['strategy=darts', '++trainer.precision=16'])
    """

    script: str
    words: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    sweep: bool = False

    def settings(self, *beginnings: str) -> list[str]:
        """The words that set something of these names."""
        return [word for word in self.words if word.lstrip("+").startswith(beginnings)]

    def without(self, *beginnings: str) -> list[str]:
        """The other words."""
        return [word for word in self.words if not word.lstrip("+").startswith(beginnings)]
