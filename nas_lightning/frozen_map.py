"""An immutable, hashable mapping for settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nas_lightning.errors import InputError


class FrozenMap(Mapping[str, Any]):
    """An immutable, hashable mapping of JSON values; lists become tuples.

    Args:
        values: JSON values by name.

    >>> FrozenMap({"ops": ["skip_connect"], "nodes": 2})
    FrozenMap({'nodes': 2, 'ops': ('skip_connect',)})
    """

    def __init__(self, values: Mapping[str, Any] = {}) -> None:
        self._values = {name: _freeze(values[name]) for name in sorted(values)}

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    def __repr__(self) -> str:
        return f"FrozenMap({self._values})"

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain containers for JSON or YAML."""
        return {name: _thaw(value) for name, value in self._values.items()}


def _freeze(value: Any) -> Any:
    if isinstance(value, Mapping):
        return FrozenMap({str(name): item for name, item in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(map(_freeze, value))
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise InputError("The value must be a number, a string, or a list or mapping of them", got=value)


def _thaw(value: Any) -> Any:
    if isinstance(value, FrozenMap):
        return value.to_dict()
    return [_thaw(item) for item in value] if isinstance(value, tuple) else value
