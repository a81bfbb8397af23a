"""What a search without a supernet knows, which its checkpoints keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nas_lightning.checks import Seed, checked
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.strategies.base import Strategy

Scores = dict[str, float]
_ENTRY = "nas_lightning_black_box"  # of a checkpoint


class Remembering(Strategy):
    """Base of what goes on with the round that came next, with all that was scored and evaluated.

    Args:
        space: the search space.
        seed: of all that is drawn.
    """

    @checked
    def __init__(self, space: SearchSpace, seed: Seed) -> None:
        super().__init__(space, seed)
        self.scored: dict[str, Scores] = {}  # by notation, in their order
        self.evaluated: dict[str, float] = {}
        self.self_correlations: dict[str, float] | None = None  # None: not looked at yet
        self.spent = {"scoring": 0.0, "evaluating": 0.0}  # seconds

    def memory(self) -> dict[str, Any]:
        """What a subclass has to remember besides, in plain containers."""
        return {}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """The inverse of `memory`."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        names = ("scored", "evaluated", "spent", "self_correlations")
        checkpoint[_ENTRY] = {**{name: getattr(self, name) for name in names}, "own": self.memory()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        memory = checkpoint[_ENTRY]
        self.scored, self.evaluated = dict(memory["scored"]), dict(memory["evaluated"])
        self.spent = {**self.spent, **memory.get("spent", {})}  # files of 0.1 have none
        self.self_correlations = memory.get("self_correlations")
        self.remember(memory["own"])
