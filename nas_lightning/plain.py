"""Plain values, as yaml has them, beside the classes that arguments are annotated with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, get_origin

_PLAIN = (str, Real, type(None), Mapping, list)
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
