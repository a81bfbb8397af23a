"""Arguments against their annotations: what is accepted, what is refused, and in which words."""

import copy
import math
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from nas_lightning.errors import InputError
from nas_lightning.validation import (
    DISTINCT,
    Between0And1,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Seed,
    Share,
    argument_hints,
    arguments,
    at_least,
    check_argument,
    checked,
    entries,
)

TINY = math.ulp(0.0)
BEFORE_ONE = math.nextafter(1.0, 0.0)
NO_NUMBERS = [math.nan, math.inf, -math.inf, True, False, "1", None, [1], {}, b"1", 1j, object()]
LIMITS = [
    (float, [0, -1, 1e300, -1e300, TINY, np.float32(0.5)], []),
    (int, [0, -1, 10**18, np.int64(3)], [0.5, 1.0]),
    (PositiveInt, [1, 2, 10**9], [0, -1, 1.0]),
    (NonNegativeInt, [0, 1, 10**9], [-1, 0.0]),
    (PositiveFloat, [TINY, 1, 1e300], [0, 0.0, -0.0, -TINY, -1]),
    (NonNegativeFloat, [0, -0.0, TINY, 5], [-TINY, -1]),
    (Share, [0, 0.5, BEFORE_ONE], [1, 1.0, -TINY, 2, -1]),
    (Between0And1, [TINY, 0.5, BEFORE_ONE], [0, 1, -1, 2]),
    (Seed, [0, 2**32 - 1], [-1, 2**32]),
]


class Part:
    """Something that a job is made of."""


class Sized(Protocol):
    size: int


@dataclass(frozen=True)
class Attack:
    epsilon: "NotImportedAtRuntime"  # noqa: F821


def test_numbers_have_limits() -> None:
    for hint, good, bad in LIMITS:
        for value in good:
            check_argument("x", value, hint, "here")
        for value in (*bad, *NO_NUMBERS):
            with pytest.raises(InputError, match=r"^`x` must be .*\(in here\)$") as refused:
                check_argument("x", value, hint, "here")
            assert len(str(refused.value).splitlines()) == 1


def test_every_generator_takes_a_seed() -> None:
    for seed in (0, 2**32 - 1):
        np.random.RandomState(seed), np.random.default_rng(seed), torch.Generator().manual_seed(seed)


def test_messages() -> None:
    for hint, value, message in [
        (Share, 2, "`x` must be less than 1, got 2 (in f.x)"),
        (PositiveFloat | None, 0, "`x` must be greater than 0, got 0 (in f.x)"),
        (float, math.nan, "`x` must be a finite number, got nan (in f.x)"),
        (PositiveInt, "2", "`x` must be a valid integer, got '2' (in f.x)"),
        (PositiveInt, None, "`x` must be a valid integer, got 'none' (in f.x)"),
        (bool, 1, "`x` must be a valid boolean, got 1 (in f.x)"),
        (str, 1, "`x` must be a valid string, got 1 (in f.x)"),
        (Path, 1, "`x` must be a valid string or an instance of Path, got 1 (in f.x)"),
        (Literal["a", "b"], "c", "`x` must be 'a' or 'b', got 'c' (in f.x)"),
        (float | Literal["grid"], "c", "`x` must be a valid number or 'grid', got 'c' (in f.x)"),
        (tuple[float, float], [1], "`x` must have 2 entries, got [1] (in f.x)"),
        (Sequence[int], 1, "`x` must be a valid list, got 1 (in f.x)"),
        (Sequence[int], "12", "`x` must be a valid list, got '12' (in f.x)"),
        (Sequence[int], [1, "2"], "`x[1]` must be a valid integer, got '2' (in f.x)"),
        (Sequence[Share] | str, [0.9, 1.0], "`x[1]` must be less than 1, got 1.0 (in f.x)"),
        (Annotated[Sequence[int], entries(1)], [], "`x` must have at least 1 item, got [] (in f.x)"),
        (Annotated[Sequence[str], DISTINCT], ["a", "a"], "`x` must have distinct entries, got ['a', 'a']"),
        (Mapping[str, int], 3, "`x` must be a valid mapping, got 3 (in f.x)"),
        (Mapping[str, PositiveInt], {"a": 1, "b": 0}, "`x['b']` must be at least 1, got 0"),
        (
            Mapping[str, Mapping[str, int]],
            {"a": {"b": "c"}},
            "`x['a']['b']` must be a valid integer, got 'c'",
        ),
        (Callable[[int], int] | None, "abs", "`x` must be callable, got 'abs' (in f.x)"),
        (Part, 1, "`x` must be an instance of Part, got 1 (in f.x)"),
        (Attack, {"epsilon": 1}, "`x` must be an instance of Attack, got {'epsilon': 1} (in f.x)"),
        (Mapping[str, Part | None], {"a": 3}, "`x['a']` must be an instance of Part, got 3 (in f.x)"),
    ]:
        with pytest.raises(InputError) as refused:
            check_argument("x", value, hint, "f.x")
        assert str(refused.value).startswith(message)


def test_values_that_fit() -> None:
    for hint, value in [
        (tuple[float, float], OmegaConf.create([0.5, 0.999])),
        (tuple[int, ...], [1, 2, 3]),
        (list[int], (1, 2)),
        (Sequence[Share] | str, "any"),
        (bool | Literal["auto"], "auto"),
        (Path, "a"),
        (str | Path, Path("a")),
        (Mapping[str, float], OmegaConf.create({"a": 3})),
        (Sequence[Part], [Part()]),
        (Sized, object()),
        (Attack, Attack(1)),
        (Any, object()),
    ]:
        check_argument("x", value, hint, "here")


class Trainer:
    @checked
    def __init__(self, epochs: PositiveInt, *names: str, lr: PositiveFloat = 0.1, **others: float) -> None:
        self.epochs, self.names, self.lr, self.others = epochs, names, lr, others


class Closed(Part):
    @checked
    def __init__(
        self, size: PositiveInt = 1, parts: Sequence[Any] = (), given: Mapping[str, Any] = {}
    ) -> None:
        self.size, self.parts, self.given = size, parts, given


class Open(Closed):
    @checked
    def __init__(self, lr: PositiveFloat = 0.1, **base: Any) -> None:
        super().__init__(**base)
        self.lr = lr


@checked
@dataclass(frozen=True)
class Frozen:
    epsilon: PositiveFloat = 0.1


def test_calls_are_checked() -> None:
    for call, message in [
        (lambda: Trainer(0), r"\(in Trainer.epochs\)$"),
        (lambda: Trainer(1, "a", lr=-1), r"\(in Trainer.lr\)$"),
        (lambda: Trainer(lr=-1), r"\(in Trainer.lr\)$"),  # although another is missing
        (lambda: Frozen(0), r"\(in Frozen.epsilon\)$"),
        (lambda: Frozen(epsilon=math.nan), r"\(in Frozen.epsilon\)$"),
        (lambda: Frozen(epsilom=1), r"^Unknown argument `epsilom` of Frozen\. Did you mean 'epsilon'\?$"),
        (lambda: Open(0.1, size=0), r"\(in Open.size\)$"),
        (lambda: Open(lrr=0.1), r"^Unknown argument `lrr` of Open\. Did you mean 'lr'\?$"),
        (lambda: checked(lambda: None)(a=1), r"^Unknown argument `a` of <lambda>\. It takes none\.$"),
    ]:
        with pytest.raises(InputError, match=message):
            call()
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'epochs'"):
        Trainer()


def test_a_call_receives_the_objects_that_were_passed() -> None:
    def forever() -> Iterator[int]:
        yield from iter(int, 1)

    parts, given = [torch.ones(1), forever()], {"a": [Part()]}
    closed = Closed(parts=parts, given=given)
    assert closed.parts is parts
    assert closed.given is given
    trainer = Trainer(3, "a", "b", lr=1, more=math.nan)
    assert (trainer.epochs, trainer.names, type(trainer.lr), list(trainer.others)) == (
        3,
        ("a", "b"),
        int,
        ["more"],
    )


def test_checked_classes_are_pickled_and_copied() -> None:
    for value in (Frozen(0.5), Open(0.5, size=3)):
        for again in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value)):
            assert vars(again) == vars(value)


def test_arguments_of_a_class_include_those_of_its_bases() -> None:
    assert list(arguments(Open)) == ["size", "parts", "given", "lr"]
    assert list(argument_hints(Open.__init__)) == ["lr"]
    assert arguments(lambda **anything: None) is None
    assert arguments(max) is None


def test_names_for_type_checkers_only_are_anything() -> None:
    def build(network: "Unknown", cells: "PositiveInt") -> None:  # noqa: F821
        """Its first annotation cannot be evaluated."""

    assert argument_hints(build)["network"] is Any
    with pytest.raises(InputError, match="`cells` must be at least 1, got 0"):
        checked(build)(object(), 0)


def test_inherited_fields_are_checked() -> None:
    @checked
    @dataclass(frozen=True)
    class Child(Frozen):
        steps: Annotated[int, at_least(2)] = 2

    with pytest.raises(InputError, match=r"\(in Child.epsilon\)$"):
        Child(epsilon=0)
