"""Plain values, as yaml has them, beside the classes that arguments are annotated with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence, Set
from numbers import Real
from typing import Any, get_args, get_origin

_PLAIN = (str, Real, type(None), Mapping, list)
SEQUENCES, _MAPPINGS = (list, tuple, Sequence), (dict, Mapping)
_GENERIC = {Callable: "a function or class", Mapping: "names and values", dict: "names and values"}


def is_plain(value: Any) -> bool:
    """Whether a value is what yaml has, and no part's description.

    >>> is_plain("a"), is_plain({"a": 1}), is_plain({"_target_": "torch.nn.ReLU"}), is_plain(object())
    (True, True, False, False)
    """
    return isinstance(value, _PLAIN) and not (isinstance(value, Mapping) and "_target_" in value)


def may_be_plain(value: Any, kind: Any) -> bool:
    """Whether a plain value can be of a class that is none of these; in doubt its owner judges.

    >>> may_be_plain(3, Callable[[int], int]), may_be_plain({}, Mapping[str, int]), may_be_plain(3, Any)
    (False, True, True)
    """
    if get_origin(kind) in _GENERIC:
        return get_origin(kind) is not Callable and isinstance(value, Mapping)
    judged = inspect.isclass(kind) and kind is not Any and not getattr(kind, "_is_protocol", False)
    return not judged or isinstance(value, kind)


def name_class(kind: Any) -> str:
    """A class in words.

    >>> name_class(Mapping[str, int]), name_class(Real)
    ('names and values', 'a Real')
    """
    return _GENERIC.get(get_origin(kind)) or f"a {getattr(kind, '__name__', kind)}"


def entry_hints(kind: Any) -> list[Any]:
    """The annotations of a list's entries, one for all or one for each, or that of a mapping's values.

    >>> entry_hints(tuple[int, ...]), entry_hints(Mapping[str, float]), entry_hints(int)
    ([<class 'int'>], [<class 'float'>], [])
    """
    hints = [hint for hint in get_args(kind) if hint is not Ellipsis]
    return hints if get_origin(kind) in SEQUENCES else hints[1:] if get_origin(kind) in _MAPPINGS else []


def entries_of(values: Any, kind: Any) -> list[tuple[Any, Any]]:
    """Each entry of a list, or value of a mapping, beside its annotation; a part's description has none.

    >>> entries_of([1, 2], list[int]), entries_of({"a": 3}, Mapping[str, float])
    ([(1, <class 'int'>), (2, <class 'int'>)], [(3, <class 'float'>)])
    """
    is_mapping = isinstance(values, Mapping)
    is_of_kind = is_mapping == (get_origin(kind) in _MAPPINGS) and (is_plain(values) or not is_mapping)
    hints = entry_hints(kind) if is_of_kind else []
    given = list(values.values() if is_mapping else values) if hints else []
    return list(zip(given, hints * len(given) if len(hints) == 1 else hints, strict=True))


def widen(value: Any, kinds: Set[Any]) -> Any:
    """The value; a whole number that no processor has is a float where one is asked for.

    >>> widen(10**20, {float}), widen(10**20, {int}), widen(3, {float})
    (1e+20, 100000000000000000000, 3)
    """
    large = isinstance(value, int) and not -(2**63) <= value < 2**63
    return float(value) if large and float in kinds and int not in kinds else value
