"""The user's error: one line, whatever came."""

import pytest

from nas_lightning.errors import InputError, choose_from, near_match


@pytest.mark.parametrize(
    "got",
    [
        "two\nlines\r\nand\u2028more\x85",
        ["a\nb", {"c\n": None}],
        10**5000,  # more digits than Python prints
        "x" * 10_000,
        object(),
        b"\xff\n",
        "\ud800",
    ],
    ids=["lines", "containers", "digits", "long", "object", "bytes", "surrogate"],
)
def test_message_is_one_short_printable_line(got):
    message = str(InputError("expected\n  a thing", got=got, where="a\nfile"))
    assert len(message.splitlines()) == 1
    assert len(message) < 200
    message.encode()  # no lone surrogate, which a terminal refuses
    assert message.startswith("expected a thing, got ")
    assert message.endswith("(in a file)")


def test_deep_nesting_does_not_overflow():
    nested: list = []
    for _ in range(100_000):
        nested = [nested]
    assert str(InputError("expected a list", got=nested)) == "expected a list, got an enormous list"


def test_message_without_got_and_where():
    assert str(InputError("expected a file")) == "expected a file"
    assert str(InputError("expected a number", got=0)) == "expected a number, got 0"
    assert str(InputError("expected a file", where="here")) == "expected a file (in here)"


def test_near_match():
    assert near_match("sep_conv_3x4", ["sep_conv_3x3", "none"]) == "did you mean 'sep_conv_3x3'?"
    assert near_match("zzz", ["b", "a"]) == "choose from a, b"


@pytest.mark.parametrize("length", [1, 15, 40, 5000])
def test_choices_leave_a_line_its_length(length):
    choices = [f"{number:02}".ljust(length, "x") for number in range(80)]
    for name in ("zzz", choices[40]):
        assert len(near_match(name, choices)) < 520
    shown, _, others = choose_from(choices).partition(" and ")
    named = shown.removeprefix("choose from ").split(", ")
    assert len(named) + int(others.removesuffix(" others")) == len(choices)
    assert all(choice.startswith(name.rstrip("…")) for choice, name in zip(choices, named, strict=False))
