"""What a class takes whose constructor hands `**options` on to its base: all of it, by name.

>>> class Base:
...     '''A base.
...
...     Args:
...         lr: the rate.
...         order: of the step.
...     '''
...     def __init__(self, *, lr: float = 0.1, order: int = 1) -> None: ...
>>> class Second(Base):
...     '''Of second order.
...
...     Args:
...         name: what it is called.
...         **base: see `Base`.
...     '''
...     def __init__(self, name: str, **base) -> None:
...         super().__init__(order=2, **base)
>>> print(full_signature(Second))
(name: 'str', *, lr: 'float' = 0.1) -> None
>>> print(full_docstring(Second, Second.__doc__).splitlines()[4].strip())
lr: the rate.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from nas_lightning.errors import InputError, near_match

_PASSED_ON = re.compile(r"^    \*\*\w+: .*\n?(?:     .*\n?)*", re.MULTILINE)
_ENTRY = re.compile(r"^    (\w+(?:, \w+)*): .*\n?(?:     .*\n?)*", re.MULTILINE)


class FullSignature:
    """The signature of a class, as `inspect.signature` asks for it.

    >>> class Base:
    ...     __signature__ = FullSignature()
    ...     def __init__(self, lr: float = 0.1) -> None: ...
    >>> class Open(Base):
    ...     def __init__(self, **base) -> None:
    ...         super().__init__(**base)
    >>> print(inspect.signature(Open))
    (*, lr: 'float' = 0.1) -> None
    """

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        return full_signature(owner)


class FullDocstring:
    """The docstring of a class with the arguments of its bases, as `help` asks for it.

    Args:
        own: the docstring that stands in the class.

    >>> FullDocstring("A class.").__get__(None, int)
    'A class.'
    """

    def __init__(self, own: str) -> None:
        self.own = own

    def __get__(self, instance: object, owner: type) -> str:
        return full_docstring(owner, self.own)


def full_signature(made: type) -> inspect.Signature:
    """The signature of a class with what it hands on to its bases, but for what it sets itself."""
    found: dict[str, inspect.Parameter] = {}
    hidden: set[str] = set()
    positional = 0  # arguments that the class before hands on by their place
    for place, constructor in enumerate(_constructors(made)):
        ours = [*inspect.signature(constructor).parameters.values()][1:]
        hidden |= {p.name for p in ours[:positional]}
        for p in ours:
            if p.name not in {*found, *hidden} and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
                found[p.name] = p.replace(kind=p.KEYWORD_ONLY) if place else p
        rest = [p for p in ours if p.kind is p.VAR_KEYWORD]
        call = _call_of_base(constructor)
        if not rest or not call.hands_on:
            found |= {p.name: p for p in rest}
            break
        hidden, positional = hidden | call.sets, call.positional
    return inspect.Signature(sorted(found.values(), key=lambda p: p.kind), return_annotation=None)


def check_options(made: type, names: Iterable[str], also: Iterable[str] = ()) -> None:
    """Raise for a name that the class does not take; `also` are names that others would take."""
    parameters = inspect.signature(made).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for name in names:
        if name not in parameters:
            expected = f"expected an option of {made.__name__} ({near_match(name, {*parameters, *also})})"
            raise InputError(expected, got=name)


def full_docstring(made: type, own: str) -> str:
    """A docstring with the arguments that its class hands on, in place of the line that names the base."""
    text = inspect.cleandoc(own)
    line = _PASSED_ON.search(text)
    if line is None:
        return text
    taken = full_signature(made).parameters.keys() - {*_entries(text)}
    entries: dict[str, str] = {}
    for base in made.__mro__[1:]:
        stored = vars(base).get("__doc__")
        written = stored.own if isinstance(stored, FullDocstring) else stored
        entries = {**_entries(inspect.cleandoc(written or "")), **entries}
    listed = "".join(entry for name, entry in entries.items() if name in taken)
    return text[: line.start()] + listed + text[line.end() :]


class _BaseCall(NamedTuple):
    """What a constructor calls that of its base with."""

    hands_on: bool = True  # whether **options are among it
    sets: frozenset[str] = frozenset()  # by name
    positional: int = 0


def _constructors(made: type) -> Iterator[Callable[..., Any]]:
    return (vars(base)["__init__"] for base in made.__mro__[:-1] if "__init__" in vars(base))


def _call_of_base(constructor: Callable[..., Any]) -> _BaseCall:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(constructor))))
    except (OSError, TypeError, SyntaxError):  # code that stands in no file
        return _BaseCall()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "super().__init__":
            names = frozenset(keyword.arg for keyword in node.keywords if keyword.arg is not None)
            return _BaseCall(any(k.arg is None for k in node.keywords), names, len(node.args))
    return _BaseCall(hands_on=False)


def _entries(docstring: str) -> dict[str, str]:
    """The entries under `Args:` by name."""
    listed = docstring.partition("Args:\n")[2]
    found = [(entry.group(1), entry.group(0).rstrip("\n") + "\n") for entry in _ENTRY.finditer(listed)]
    return {name: entry for names, entry in found for name in names.split(", ")}
