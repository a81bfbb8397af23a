"""What an annotation says of an argument, held against every value that is near its limits."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from nas_lightning.checks import (
    DISTINCT,
    Between0And1,
    Limit,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Seed,
    Share,
    above,
    argument_hints,
    at_least,
    at_most,
    check_argument,
    checked,
    describe,
    entries,
    fits,
    is_within,
)
from nas_lightning.errors import InputError

TINY = math.ulp(0.0)
BEFORE_ONE = math.nextafter(1.0, 0.0)
NEVER = [math.nan, math.inf, -math.inf, True, False, "1", None, [1], {}, b"1", 1j, object()]
"""No number that a setting can have."""

LIMITS = [
    (float, [0, -1, 1e300, -1e300, TINY, np.float32(0.5), Fraction(1, 3), 10**300], [10**400]),
    (int, [0, -1, 10**18, np.int64(3)], [0.5, 1.0, 10**5000]),
    (PositiveInt, [1, 2, 10**9], [0, -1, 1.0]),
    (NonNegativeInt, [0, 1, 10**9], [-1, 0.0]),
    (PositiveFloat, [TINY, 1, 1e300], [0, 0.0, -0.0, -TINY, -1]),
    (NonNegativeFloat, [0, -0.0, TINY, 5], [-TINY, -1]),
    (Share, [0, 0.5, BEFORE_ONE], [1, 1.0, -TINY, 2, -1]),
    (Between0And1, [TINY, 0.5, BEFORE_ONE], [0, 1, -1, 2]),
    (Annotated[float, above(0), at_most(1)], [TINY, 1, 0.5], [0, math.nextafter(1.0, 2.0), 2]),
    (Annotated[int, at_least(2)], [2, 3], [1, 0, -2]),
]


@pytest.mark.parametrize(("hint", "good", "bad"), LIMITS, ids=[describe(hint) for hint, *_ in LIMITS])
def test_limits(hint: Any, good: Sequence[Any], bad: Sequence[Any]) -> None:
    for value in good:
        check_argument("x", value, hint, "here")
        check_argument("x", value, hint | None if isinstance(hint, type) else hint, "here")
    for value in (*bad, *NEVER):
        with pytest.raises(InputError, match=r"^expected .*\(in here\)$") as refused:
            check_argument("x", value, hint, "here")
        assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("hint", "value", "message"),
    [
        (Share, 2, "expected momentum of at least 0 and below 1, got 2 (in f.momentum)"),
        (PositiveFloat | None, 0, "expected momentum above 0 or null, got 0 (in f.momentum)"),
        (float, math.nan, "expected momentum that is finite, got nan (in f.momentum)"),
        (PositiveInt, "2", "expected a whole number of at least 1, got '2' (in f.momentum)"),
        (bool, 1, "expected true or false, got 1 (in f.momentum)"),
        (str, 1, "expected text, got 1 (in f.momentum)"),
        (Path, 1, "expected a path, got 1 (in f.momentum)"),
        (Literal["a", "b"], "c", "expected one of a, b, got 'c' (in f.momentum)"),
        (Literal[1, 2], True, "expected one of 1, 2, got True (in f.momentum)"),
        (float | Literal["grid"], "c", "expected a number or one of grid, got 'c' (in f.momentum)"),
        (tuple[float, float], [1], "expected a list of 2, got [1] (in f.momentum)"),
        (Sequence[int], 1, "expected a list, got 1 (in f.momentum)"),
        (Limit, 1, "expected a Limit, got 1 (in f.momentum)"),
        (Limit, {"words": "x"}, "expected a Limit, got {'words': 'x'} (in f.momentum)"),
        (Mapping[str, float], 3, "expected names and values, got 3 (in f.momentum)"),
        (
            Callable[[int], int] | None,
            "abs",
            "expected a function or class or null, got",
        ),
        (Sequence[int], "12", "expected a list, got '12' (in f.momentum)"),
        (Sequence[int], [1, "2"], "expected a list, got [1, '2'] (in f.momentum)"),
        (
            Annotated[Sequence[Annotated[int, at_least(2)]], entries(1)],
            [2, 1],
            "expected momentum with at least 1 entry and whose entries are each a whole number of at least 2",
        ),
        (
            Annotated[Sequence[int], entries(1)],
            [],
            "expected momentum with at least 1 entry and whose entries",
        ),
        (
            tuple[Share, Share],
            [0.9, 1.0],
            "expected momentum whose entries are each a number of at least 0 and below 1, got [0.9, 1.0]",
        ),
        (Annotated[Sequence[str], DISTINCT], ["a", "a"], "expected momentum without repetitions"),
    ],
)
def test_messages(hint: Any, value: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        check_argument("momentum", value, hint, "f.momentum")
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (tuple[float, float], OmegaConf.create([0.5, 0.999])),
        (tuple[Share, Share], (0.5, 0.999)),
        (tuple[int, ...], [1, 2, 3]),
        (Sequence[Share] | str, "any"),
        (Sequence[Share] | str, [0.1]),
        (float | Literal["grid"], "grid"),
        (bool | Literal["auto"], "auto"),
        (str | Path, Path("a")),
        (Mapping[str, float], {"a": 3}),  # what is in it, its owner judges
        (Any, object()),
    ],
)
def test_values_that_fit(hint: Any, value: Any) -> None:
    check_argument("x", value, hint, "here")


@pytest.mark.parametrize("value", [(0.5, 1.0), (math.nan, 0.5), [0.5, "0.9"]])
def test_an_entry_has_limits_too(value: Any) -> None:
    with pytest.raises(InputError):
        check_argument("betas", value, tuple[Share, Share], "here")


class Trainer:
    @checked
    def __init__(self, epochs: PositiveInt, *names: str, lr: PositiveFloat = 0.1, **others: float) -> None:
        self.epochs, self.names, self.lr, self.others = epochs, names, lr, others


@checked
@dataclass(frozen=True)
class Attack:
    epsilon: PositiveFloat = 0.1


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda: Trainer(0), "Trainer.epochs"),
        (lambda: Trainer(epochs=0), "Trainer.epochs"),
        (lambda: Trainer(1, "a", lr=-1), "Trainer.lr"),
        (lambda: Trainer(lr=-1), "Trainer.lr"),  # said although another is missing
        (lambda: Attack(0), "Attack.epsilon"),
        (lambda: Attack(epsilon=math.nan), "Attack.epsilon"),
    ],
)
def test_a_call_is_checked(call: Any, where: str) -> None:
    with pytest.raises(InputError, match=rf"\(in {where}\)$"):
        call()


def test_a_checked_class_is_called_as_before() -> None:
    trainer = Trainer(3, "a", "b", lr=1, more=math.nan)
    assert (trainer.epochs, trainer.names, trainer.lr, list(trainer.others)) == (3, ("a", "b"), 1, ["more"])
    assert Attack().epsilon == 0.1
    assert list(argument_hints(Trainer.__init__)) == ["epochs", "lr"]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'epochs'"):
        Trainer()


def test_names_for_type_checkers_only_are_anything() -> None:
    def build(network: "Unknown", cells: "PositiveInt") -> None:  # noqa: F821
        """Its first annotation cannot be looked up."""

    assert argument_hints(build)["network"] is Any
    with pytest.raises(InputError, match="expected cells of at least 1, got 0"):
        checked(build)(object(), 0)


@pytest.mark.parametrize("hint", [Mapping[str, PositiveInt], dict[str, PositiveInt]])
def test_what_a_mapping_has_is_checked(hint: Any) -> None:
    for value in ({}, {"a": 1}):
        check_argument("sizes", value, hint, "f.sizes")
    for value in ({"a": 0}, {"a": 1, "b": -1}):
        with pytest.raises(InputError, match="expected sizes whose entries are each a whole number of at le"):
            check_argument("sizes", value, hint, "f.sizes")
    for value in ({"a": None}, {"a": "x"}, {"a": math.nan}, {"a": []}):
        with pytest.raises(InputError, match="expected a whole number of at least 1"):
            check_argument("sizes", value, hint, "f.sizes")
    for value in ([1], 3):
        with pytest.raises(InputError, match="expected names and values"):
            check_argument("sizes", value, hint, "f.sizes")


def test_mappings_in_mappings_and_numbers_in_them_are_checked() -> None:
    assert fits({"a": {"b": 1}}, Mapping[str, Mapping[str, int]])
    assert not fits({"a": 3}, Mapping[str, Mapping[str, Any]])
    assert not is_within({"a": [1.0, math.inf]}, Mapping[str, Sequence[float]])


def test_the_description_of_a_part_is_its_owners() -> None:
    described = {"_target_": "collections.Counter", "a": "x"}
    assert fits(described, Mapping[str, int])
    assert fits({"a": described}, Mapping[str, Attack])
    assert not fits({"a": {"b": 1}}, Mapping[str, Attack])


@pytest.mark.parametrize(("seed", "sound"), [(0, True), (2**32 - 1, True), (-1, False), (2**32, False)])
def test_a_seed_is_what_every_generator_takes(seed: int, sound: bool) -> None:
    assert is_within(seed, Seed) == sound
    if sound:
        np.random.RandomState(seed), np.random.default_rng(seed), torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("hint", [float, PositiveFloat, Annotated[float, at_most(1e40)] | None])
def test_a_whole_number_that_torch_cannot_take_is_the_float_that_it_stands_for(hint: Any) -> None:
    @checked
    def given(value: hint, *, named: hint) -> tuple[Any, Any]:  # type: ignore[valid-type]
        return value, named

    for number in (2**63, 10**32):
        taken = given(number, named=number)
        assert taken == (float(number), float(number))
        assert {type(value) for value in taken} == {float}
        torch.zeros(1) / taken[0]
    assert {type(value) for value in given(3, named=2**63 - 1)} == {int}


def test_a_whole_number_stays_one_where_it_has_to_be() -> None:
    @checked
    def given(value: int, other: int | float) -> list[type]:
        return [type(value), type(other)]

    assert given(2**70, 2**70) == [int, int]
