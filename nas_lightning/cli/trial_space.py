"""What the words of a sweep are drawn from by Optuna, and whether a trial is drawn from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial

from nas_lightning.errors import InputError


def distribution(override: Override) -> BaseDistribution:
    """What a word of a sweep is drawn from.

    >>> from nas_lightning.cli.composition import parse
    >>> words = ["lr=tag(log,interval(0.01,1))", "n=int(interval(1,4))", "k=range(2,9,3)", "seed=0,1"]
    >>> for override in parse(words):
    ...     print(distribution(override))
    FloatDistribution(high=1.0, log=True, low=0.01, step=None)
    IntDistribution(high=4, log=False, low=1, step=1)
    IntDistribution(high=8, log=False, low=2, step=3)
    CategoricalDistribution(choices=('0', '1'))
    """
    value = override.value()
    try:
        if isinstance(value, IntervalSweep) and value.start is not None and value.end is not None:
            log = "log" in value.tags
            if isinstance(value.start, int) and isinstance(value.end, int):
                return IntDistribution(value.start, value.end, log=log)
            return FloatDistribution(value.start, value.end, log=log)
        if isinstance(value, RangeSweep) and all(
            isinstance(n, int) for n in (value.start, value.stop, value.step)
        ):
            numbers = range(int(value.start or 0), int(value.stop or 0), int(value.step))
            return IntDistribution(min(numbers), max(numbers), step=abs(numbers.step))
    except ValueError as error:
        raise InputError(
            f"expected what can be drawn from: {error}", got=override.input_line, where="-m"
        ) from None
    return CategoricalDistribution([str(text) for text in override.sweep_string_iterator()])


def check_drawn(trial: FrozenTrial, space: Mapping[str, BaseDistribution], where: object) -> None:
    """Raise unless the trial has one value of each: they become words of a command."""
    if trial.distributions != space:
        expected = f"expected a trial of what this sweep varies ({', '.join(space)})"
        raise InputError(expected, got=", ".join(trial.distributions) or "nothing", where=where)
    for name, value in trial.params.items():
        if not _can_draw(space[name], value):
            raise InputError(f"expected {name} as this sweep draws it", got=value, where=where)


def _can_draw(drawn_from: BaseDistribution, value: Any) -> bool:
    try:
        number = drawn_from.to_internal_repr(value)
        return drawn_from._contains(number) and bool(drawn_from.to_external_repr(number) == value)
    except (ValueError, TypeError):
        return False
