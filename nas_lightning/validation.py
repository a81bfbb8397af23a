"""Validate arguments by their annotations, with pydantic.

The annotation is the only place that says what an argument can be: `lr: PositiveFloat`. `checked` validates
the arguments of a call, `check_argument` a setting of a configuration before anything is built. Values are
only checked: a function gets the object that its caller passed (`pydantic.validate_call` copies lists).
Numbers are finite; an integer is accepted for a float, a list for a tuple, and a string for a path.

>>> @checked
... def train(lr: PositiveFloat, momentum: Share = 0.9, clip: PositiveFloat | None = None) -> None:
...     pass
>>> train(0.1, momentum=2)
Traceback (most recent call last):
...
nas_lightning.errors.InputError: `momentum` must be less than 1, got 2 (in train.momentum)
>>> train(0.1, momentun=0.5)
Traceback (most recent call last):
...
nas_lightning.errors.InputError: Unknown argument `momentun` of train. Did you mean 'momentum'?
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from types import GenericAlias, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import AfterValidator, AllowInfNan, BeforeValidator, ConfigDict, TypeAdapter, ValidationError
from typing_extensions import is_protocol

from nas_lightning.errors import InputError, near_match

at_least, above, at_most, below, entries = Ge, Gt, Le, Lt, MinLen


def _distinct(values: Sequence[Any]) -> Sequence[Any]:
    if len(set(values)) < len(values):
        raise ValueError("Input should have distinct entries")
    return values


DISTINCT = AfterValidator(_distinct)

PositiveInt = Annotated[int, at_least(1)]
NonNegativeInt = Annotated[int, at_least(0)]
PositiveFloat = Annotated[float, above(0)]
NonNegativeFloat = Annotated[float, at_least(0)]
Share = Annotated[float, at_least(0), below(1)]  # momentum, a rate of dropped paths
Finite = Annotated[float, AllowInfNan(False)]  # where any number will do
Between0And1 = Annotated[float, above(0), below(1)]
Cells = Annotated[int, at_least(1), at_most(1000)]  # this and the next two: far above what anybody trains,
Channels = Annotated[int, at_least(1), at_most(10_000)]  # so that a typing error is found at once
ImageSide = Annotated[int, at_least(1), at_most(4096)]
Seed = Annotated[int, at_least(0), below(2**32)]  # what every generator takes

_BETTER_WORDS = {
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "tuple": "list",
    "dictionary": "mapping",
}
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
T = TypeVar("T", bound=Callable[..., Any])


def checked(target: T) -> T:
    """Make a function, or the constructor of a class, raise `InputError` for arguments that do not fit."""
    if isinstance(target, type):
        target.__init__ = checked(target.__init__)  # type: ignore[misc]
        return target
    hints = functools.cache(lambda: argument_hints(target))  # at the first call, when all names are defined
    parameters = inspect.signature(target).parameters.values()
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_options = any(p.kind is p.VAR_KEYWORD for p in parameters)

    @functools.wraps(target)
    def check_and_call(*args: Any, **kwargs: Any) -> Any:
        owner = type(args[0]) if target.__name__ == "__init__" and args else target
        if not takes_options and not kwargs.keys() <= hints().keys():
            check_names(kwargs, {**(arguments(owner) or {}), **hints()}, owner.__name__)
        for name, value in {**dict(zip(positional, args, strict=False)), **kwargs}.items():
            if name in hints():
                check_argument(name, value, hints()[name], f"{owner.__name__}.{name}")
        return target(*args, **kwargs)

    return check_and_call  # type: ignore[return-value]


def check_argument(name: str, value: Any, hint: Any, where: str) -> None:
    """Raise `InputError` unless the value is what the annotation says.

    >>> check_argument("cells", 0, PositiveInt, "network.cells")
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: `cells` must be at least 1, got 0 (in network.cells)
    """
    try:
        _adapter(hint).validate_python(value)
    except ValidationError as error:
        raise _explain(name, value, error, where) from None


def check_names(given: Iterable[str], known: Iterable[str], owner: str, where: str | None = None) -> None:
    """Raise `InputError` for the first name that is not among the known ones.

    >>> check_names(["lrr"], ["lr", "seed"], "Darts")
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: Unknown argument `lrr` of Darts. Did you mean 'lr'?
    """
    known = [*known]
    for name in given:
        if name not in known:
            advice = near_match(name, known) if known else "it takes none."
            advice = advice[0].upper() + advice[1:]
            raise InputError(f"Unknown argument `{name}` of {owner}. {advice}", where=where)


def arguments(target: Callable[..., Any]) -> dict[str, Any] | None:
    """Return the names and annotations that a class or function can be called with; None: anything.

    A constructor with `**options` passes them on to its base class, so that the arguments of that count too.

    >>> class Base:
    ...     def __init__(self, seed: int = 0) -> None: ...
    >>> class Open(Base):
    ...     def __init__(self, space: str, **options: int) -> None: ...
    >>> arguments(Open)
    {'seed': <class 'int'>, 'space': <class 'str'>}
    """
    chain = [target]
    if isinstance(target, type):
        chain = [vars(base)["__init__"] for base in target.__mro__[:-1] if "__init__" in vars(base)]
    hints: dict[str, Any] = {}
    for function in chain:
        try:
            parameters = inspect.signature(function).parameters.values()
        except ValueError:  # a builtin without a signature
            continue
        hints = {**argument_hints(function), **hints}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            return hints
    return hints if isinstance(target, type) else None


def argument_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return a function's named arguments, without `self`, with their annotations; Any where there is none.

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
    """Return an annotation that may be a string; Any if its names are imported for type checkers only."""
    try:
        found = eval(annotation, scope) if isinstance(annotation, str) else annotation
    except NameError:
        return Any
    return Any if found is inspect.Parameter.empty else found


@functools.cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(_schema(hint), config=_STRICT)


def _schema(hint: Any) -> Any:
    """Return the annotation as pydantic checks it strictly: parts of a job only by `isinstance`."""
    origin, options = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Annotated[(_schema(options[0]), *options[1:])]
    if origin in (Union, UnionType):
        return Union[tuple(_schema(option) for option in options)]  # noqa: UP007
    if origin in (tuple, list, Sequence):
        kinds = tuple(_schema(option) for option in options if option is not ...)
        length = len(kinds) if origin is tuple and ... not in options else None
        listed = GenericAlias(tuple, kinds if length else (*kinds, ...))
        return Annotated[listed, BeforeValidator(functools.partial(_as_tuple, length))]
    if origin in (dict, Mapping):
        return GenericAlias(Mapping, (options[0], _schema(options[1])))
    if origin is Callable or hint is Callable:
        return Callable
    if hint in (int, float):
        number = Integral if hint is int else Real
        return Annotated[hint, BeforeValidator(functools.partial(_as_builtin, hint, number))]
    if hint is Path:
        return str | Annotated[Any, AfterValidator(functools.partial(_is_instance, Path))]
    if origin is Literal or hint in (bool, str, None, type(None)):
        return hint
    if not isinstance(hint, type) or hint is Any or is_protocol(hint):
        return Any
    return Annotated[Any, AfterValidator(functools.partial(_is_instance, hint))]


def _as_tuple(length: int | None, value: Any) -> Any:
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        return value
    if length not in (None, len(value)):
        raise ValueError(f"Input should have {length} entries")
    return tuple(value)


def _as_builtin(kind: type, number: type, value: Any) -> Any:
    """Accept the numbers of NumPy."""
    return kind(value) if isinstance(value, number) and not isinstance(value, (bool, int, float)) else value


def _is_instance(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"Input should be an instance of {kind.__name__}")
    return value


def _explain(name: str, value: Any, error: ValidationError, where: str) -> InputError:
    """Return the deepest error as one line; alternatives of a union are joined."""
    found = [(*_locate(value, item["loc"]), item["msg"]) for item in error.errors(include_url=False)]
    place, given, _ = max(found, key=lambda item: len(item[0]))
    rules = [
        message.partition(" should ")[2].partition(" after ")[0]
        for path, _, message in found
        if path == place
    ]
    rule = " or ".join(dict.fromkeys(rules)).replace(" or be ", " or ")
    for word, better in _BETTER_WORDS.items():
        rule = rule.replace(word, better)
    path = "".join(f"[{step!r}]" for step in place)
    return InputError(f"`{name}{path}` must {rule}", got="none" if given is None else given, where=where)


def _locate(value: Any, location: Iterable[Any]) -> tuple[tuple[Any, ...], Any]:
    """Return the indices in an error's location, without the names of union members, and the value there."""
    path: tuple[Any, ...] = ()
    for step in location:
        is_index = isinstance(value, Sequence) and isinstance(step, int)
        if is_index or (isinstance(value, Mapping) and step in value):
            path, value = (*path, step), value[step]
    return path, value
