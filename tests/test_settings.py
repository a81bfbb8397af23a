"""Numbers that no run can be made with, given to every setting of ours that a yaml names.

What is bad is written down here a second time, by what settings are called, apart from what their annotations
say: not finite, below zero, a count of nothing, a share of more than all.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_args, get_origin

import pytest
from hydra.utils import get_object
from omegaconf import OmegaConf

from nas_lightning.cli.build import check_value
from nas_lightning.errors import InputError
from nas_lightning.options import config_folder
from nas_lightning.validation import Finite, argument_hints, check_argument

NOT_FINITE = [math.nan, math.inf, -math.inf]
SHARES = {  # of which more than all is no share, whatever the class
    *("momentum", "drop_path", "dropout", "label_smoothing", "ema_decay", "rate", "top", "posterior_share"),
    *("val_fraction", "test_fraction", "train_fraction", "svgd_momentum", "threshold"),
}
COUNTS = {  # of which nothing would be left at zero
    *("batch_size", "eval_batch_size", "subset", "num_classes", "train_size", "test_size", "image_size"),
    *("every_n_epochs", "every_n_steps", "every_n_batches", "patience", "architectures", "lr_batch"),
    *("valid_batches", "candidates", "count", "pool_size", "population", "sample", "passes", "size"),
    *(
        "images",
        "starts",
        "order",
        "accumulate_grad_batches",
        "layers",
        "nodes",
        "channels",
    ),
    *("cells", "members", "resamples", "splits", "seeds", "search_steps", "width", "rounds", "svgd_steps"),
}
POSITIVE = {"lr", "clip", "arch_lr", "epsilon", "tau_start", "tau_end", "tau", "xi", "svgd_lr", "gumbel_tau"}
ANY_WHOLE_NUMBER = {"seed", "ignore"}  # a label that pixels are left out by is any, such as -1
OF_COSINES = {"GradientMatching"}  # whose threshold may be what a cosine can be, -1 as well


def accepts(hint: Any, value: Any) -> bool:
    try:
        check_argument("x", value, hint, "here")
    except InputError:
        return False
    return True


def accepts_some(hint: Any, *values: Any) -> bool:
    return get_origin(hint) is not Literal and any(accepts(hint, value) for value in values)


def bad_values(owner: str, name: str, hint: Any) -> list[Any]:
    """What a number of that name cannot be in what is called `owner`."""
    if name == "threshold" and owner.rpartition(".")[2] in OF_COSINES:
        return [-1.5, -(10**9), 1.5, 2, True, *NOT_FINITE]
    if accepts(hint, -0.5) and not accepts(hint, 0.5):  # what is below 0
        return [0, 0.5, 1, 10**9, True, *NOT_FINITE]
    signed = name in ANY_WHOLE_NUMBER or Finite in (hint, *get_args(hint))
    bad = [] if signed else [-1, -(10**9)]
    bad += [0] if name in COUNTS | POSITIVE else []
    bad += [2, 1.5] if name in SHARES else []
    bad += NOT_FINITE if accepts_some(hint, 0.5, -0.5, 1.5) else [0.5]
    return bad if accepts(hint, True) else [*bad, True]


def nodes(config: Any) -> Iterator[dict[str, Any]]:
    if isinstance(config, dict):
        yield from [config] if "_target_" in config else []
        for value in config.values():
            yield from nodes(value)


def yamls() -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(config_folder().rglob("*.yaml")):
        yield path, OmegaConf.to_container(OmegaConf.load(path), resolve=False)


def constructors(target: Any) -> dict[str, Callable[..., Any]]:
    """A function itself, or the constructors of a class and of those of its bases that are ours.

    A dataclass has one constructor for all its fields, which calls none of its bases'.
    """
    if not isinstance(target, type):
        return {f"{target.__module__}.{target.__name__}": target}
    bases = [base for base in target.__mro__ if base is target or not is_dataclass(base)]
    ours = [base for base in bases if base.__module__.startswith("nas_lightning.")]
    return {f"{c.__module__}.{c.__name__}": vars(c)["__init__"] for c in ours if "__init__" in vars(c)}


def functions() -> dict[str, Callable[..., Any]]:
    """Each function of ours whose arguments some yaml can name; of a space also those that take its sizes."""
    found: dict[str, Callable[..., Any]] = {}
    for path, config in yamls():
        for target in [get_object(node["_target_"]) for node in nodes(config)]:
            found |= constructors(target)
            if path.parent.name == "space":
                for name in ("supernet", "network"):
                    found[f"{target.__module__}.{target.__name__}.{name}"] = getattr(target, name)
    return {name: function for name, function in found.items() if name.startswith("nas_lightning.")}


FUNCTIONS = functions()
NUMBERS = [
    (owner, name, hint)
    for owner, function in FUNCTIONS.items()
    for name, hint in argument_hints(function).items()
    if accepts_some(hint, 1, 10, -0.5) and not accepts(hint, object())
]


def test_there_are_as_many_numbers_as_there_were() -> None:
    assert len(FUNCTIONS) > 60
    assert len(NUMBERS) > 130


def test_no_number_is_accepted_that_no_run_can_be_made_with() -> None:
    for owner, name, hint, value in [(*n, value) for n in NUMBERS for value in bad_values(*n)]:
        with pytest.raises(InputError, match=rf"^`{name}` must .*\(in group\.{name}\)$") as refused:
            check_value(name, value, {name: hint}, "group")
        with pytest.raises(InputError, match=rf"^`{name}` must .*\.{name}\)$"):
            FUNCTIONS[owner](SimpleNamespace(), **{name: value})
        assert len(str(refused.value).splitlines()) == 1
