"""What an argument can be, declared beside it and read by one function, whoever gives it.

The annotation is the truth: `lr: PositiveFloat` is a number above 0 for its reader, for the class itself
(`checked`, which looks at the arguments of a call) and for a configuration before anything is built
(`cli.targets`). A number is finite wherever one is asked for.

>>> @checked
... def train(lr: PositiveFloat, momentum: Share = 0.9, clip: PositiveFloat | None = None) -> None:
...     pass
>>> train(0.1, momentum=2)
Traceback (most recent call last):
...
nas_lightning.errors.InputError: expected momentum of at least 0 and below 1, got 2 (in train.momentum)
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from nas_lightning.errors import InputError
from nas_lightning.plain import SEQUENCES, entries_of, entry_hints, is_plain, may_be_plain, name_class, widen


@dataclass(frozen=True)
class Limit:
    """What a value has to be besides of its kind.

    Args:
        words: how a sentence says it, such as "of at least 1".
        holds: whether a value of the right kind is within it.
    """

    words: str
    holds: Callable[[Any], bool]


def at_least(bound: float) -> Limit:
    """A number that is not smaller."""
    return Limit(f"of at least {bound}", lambda value: value >= bound)


def above(bound: float) -> Limit:
    """A number that is larger."""
    return Limit(f"above {bound}", lambda value: value > bound)


def at_most(bound: float) -> Limit:
    """A number that is not larger."""
    return Limit(f"of at most {bound}", lambda value: value <= bound)


def below(bound: float) -> Limit:
    """A number that is smaller."""
    return Limit(f"below {bound}", lambda value: value < bound)


def entries(least: int) -> Limit:
    """A list, a mapping or a text of some length."""
    return Limit(f"with at least {least} {'entry' if least == 1 else 'entries'}", lambda v: len(v) >= least)


DISTINCT = Limit("without repetitions", lambda values: len({*values}) == len(values))

PositiveInt = Annotated[int, at_least(1)]
NonNegativeInt = Annotated[int, at_least(0)]
PositiveFloat = Annotated[float, above(0)]
NonNegativeFloat = Annotated[float, at_least(0)]
Share = Annotated[float, at_least(0), below(1)]  # that leaves some: momentum, a rate of dropped paths
Finite = Annotated[float, Limit("that is finite", math.isfinite)]  # said where any number will do
Between0And1 = Annotated[float, above(0), below(1)]
Cells = Annotated[int, at_least(1), at_most(1000)]  # as the next two: far above what anybody trains,
Channels = Annotated[int, at_least(1), at_most(10_000)]  # and a slip of the finger is said at once
ImageSide = Annotated[int, at_least(1), at_most(4096)]
Seed = Annotated[int, at_least(0), below(2**32)]  # what every generator takes

_KINDS: dict[Any, tuple[str, tuple[type, ...]]] = {
    bool: ("true or false", (bool,)),
    int: ("a whole number", (Integral,)),
    float: ("a number", (Real,)),
    str: ("text", (str,)),
    Path: ("a path", (str, os.PathLike)),
    type(None): ("null", (type(None),)),
}
T = TypeVar("T", bound=Callable[..., Any])


def checked(target: T) -> T:
    """A function or class that raises `InputError` for an argument that is not what its annotation says."""
    if isinstance(target, type):
        target.__init__ = checked(target.__init__)  # type: ignore[misc]
        return target
    hints = functools.cache(lambda: argument_hints(target))  # at the first call, when all names are there
    parameters = inspect.signature(target).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]

    @functools.wraps(target)
    def check_and_call(*args: Any, **kwargs: Any) -> Any:
        owner = type(args[0]).__name__ if target.__name__ == "__init__" else target.__name__

        def check(name: str, value: Any) -> Any:
            if name in hints():
                check_argument(name, value, hints()[name], f"{owner}.{name}")
                value = widen(value, {kind for kind, _ in _alternatives(hints()[name])})
            return value

        placed = [check(*pair) for pair in zip(names, args, strict=False)]
        rest = args[len(placed) :]
        return target(*placed, *rest, **{name: check(name, value) for name, value in kwargs.items()})

    return check_and_call  # type: ignore[return-value]


def argument_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The named arguments of a function, without `self`, with their annotations; Any where there is none.

    >>> def build(size: PositiveInt, *parts: str, name="") -> None: ...
    >>> argument_hints(build)["name"], list(argument_hints(build))
    (typing.Any, ['size', 'name'])
    """
    scope = {**globals(), **getattr(inspect.unwrap(function), "__globals__", {})}  # fields may be inherited
    return {
        p.name: _evaluate(p.annotation, scope)
        for p in inspect.signature(function).parameters.values()
        if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and p.name != "self"
    }


def _evaluate(annotation: Any, scope: dict[str, Any]) -> Any:
    """An annotation that may be text; Any where its names are imported for type checkers only."""
    try:
        found = eval(annotation, scope) if isinstance(annotation, str) else annotation
    except NameError:
        return Any
    return Any if found is inspect.Parameter.empty else found


def check_argument(name: str, value: Any, hint: Any, where: str) -> None:
    """Raise unless the value is of the kind, and within the limits, that the annotation says.

    >>> check_argument("cells", 0, PositiveInt, "network.cells")
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: expected cells of at least 1, got 0 (in network.cells)
    """
    if not fits(value, hint):
        for kind, _ in _alternatives(hint) if isinstance(value, Mapping) else ():
            for entry, its_hint in entries_of(value, kind):
                check_argument(name, entry, its_hint, where)
        raise InputError(f"expected {describe(hint)}", got=value, where=where)
    if not is_within(value, hint):
        raise InputError(f"expected {name} {_limits(hint)}", got=value, where=where)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the kind that an annotation says; what else there is, its owner judges.

    >>> fits(3, float), fits("3", float), fits(None, int | None), fits("cosine", Literal["cosine", "linear"])
    (True, False, True, True)
    """
    return any(_is_kind(value, kind) for kind, _ in _alternatives(hint))


def is_within(value: Any, hint: Any) -> bool:
    """Whether a value is of that kind, finite, and within the limits that an annotation sets.

    >>> is_within(1, PositiveInt | None), is_within(0, PositiveInt | None), is_within(float("nan"), float)
    (True, False, False)
    """
    return any(
        _is_kind(value, kind) and _is_finite(value, kind) and all(limit.holds(value) for limit in limits)
        for kind, limits in _alternatives(hint)
    )


def describe(hint: Any) -> str:
    """An annotation in words.

    >>> describe(PositiveInt | None), describe(Annotated[Sequence[Share], entries(2)])
    ('a whole number of at least 1 or null', 'a list with at least 2 entries')
    """
    return " or ".join(dict.fromkeys(f"{_name(k)} {_join(ls)}".strip() for k, ls in _alternatives(hint)))


def _limits(hint: Any) -> str:
    """What an annotation says besides the kind, as the end of "expected lr …"."""
    said = []
    for kind, limits in _alternatives(hint):
        entry = [Limit(f"whose entries are each {describe(part)}", bool) for part in entry_hints(kind)]
        finite = [Limit("that is finite", bool)] if kind in (int, float) and not limits else []
        said.append(_join([*limits, *finite, *entry]) or _name(kind))
    return " or ".join(dict.fromkeys(said))


def _join(limits: Sequence[Limit]) -> str:
    return " and ".join(dict.fromkeys(limit.words for limit in limits))


def _alternatives(hint: Any) -> list[tuple[Any, list[Limit]]]:
    """The kinds that an annotation admits, each with its limits."""
    origin, options = get_origin(hint), get_args(hint)
    if origin is Annotated:
        own = [limit for limit in options[1:] if isinstance(limit, Limit)]
        return [(kind, [*limits, *own]) for kind, limits in _alternatives(options[0])]
    if origin in (Union, types.UnionType):
        return [alternative for option in options for alternative in _alternatives(option)]
    return [(hint, [])]


def _is_kind(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return any(value == option and type(value) is type(option) for option in get_args(kind))
    if kind in _KINDS:
        classes = _KINDS[kind][1]
        return isinstance(value, classes) and (bool in classes or not isinstance(value, bool))
    if get_origin(kind) in SEQUENCES:
        listed = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
        counted = listed and len(entry_hints(kind)) in (1, len(value))
        return counted and all(fits(*pair) for pair in entries_of(value, kind))
    if not is_plain(value):
        return True
    return may_be_plain(value, kind) and all(fits(*pair) for pair in entries_of(value, kind))


def _is_finite(value: Any, kind: Any) -> bool:
    """Whether a number, or what a list or mapping has, is finite and within its own limits."""
    if parts := entries_of(value, kind):
        return all(is_within(*pair) for pair in parts)
    try:
        return kind not in (int, float) or math.isfinite(value)
    except OverflowError:  # a whole number that no float can be
        return False


def _name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(str(option) for option in get_args(kind))
    if kind in _KINDS:
        return _KINDS[kind][0]
    if get_origin(kind) is tuple and Ellipsis not in get_args(kind):
        return f"a list of {len(get_args(kind))}"
    return "a list" if get_origin(kind) in SEQUENCES else name_class(kind)
