"""What a sweep goes over, in all the ways that Hydra has to say it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.core.override_parser.types import IntervalSweep, Override

from nas_lightning.errors import InputError

WHERE = "the command line"
_ENUMERATES = "BasicSweeper"


def group_of(override: Override) -> str:
    """The group that it chooses an option of, or the setting, whatever is done with it."""
    return str(override.key_or_group).lstrip("+~/")


def swept_values(override: Override) -> list[str]:
    """Its values as one types them; of an interval, which a sweeper draws from, where it begins.

    >>> from hydra.core.override_parser.overrides_parser import OverridesParser
    >>> words = ["seed=range(0,3)", "seed=choice(7,8)", "strategy.lr=interval(0.01,1)"]
    >>> [swept_values(override) for override in OverridesParser.create().parse_overrides(words)]
    [['0', '1', '2'], ['7', '8'], ['0.01']]
    """
    interval = _interval(override)
    if interval is not None:
        return [f"{interval.start:g}"]
    values = [str(value) for value in override.sweep_string_iterator()]
    if not values:  # of a pattern, or an empty range
        raise InputError("expected a sweep over something", got=override.input_line, where=WHERE)
    return values


def check_drawn(overrides: Sequence[Override], sweeper: Any) -> None:
    """Raise for an interval where the sweeper draws nothing."""
    for override in overrides:
        if _interval(override) is not None and str(sweeper.get("_target_")).endswith(_ENUMERATES):
            expected = "expected values that can be counted, or a sweeper that draws (hydra/sweeper=…)"
            raise InputError(expected, got=override.input_line, where=WHERE)


def _interval(override: Override) -> IntervalSweep | None:
    value = override.value()
    return value if isinstance(value, IntervalSweep) else None
