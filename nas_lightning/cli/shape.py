"""The shape of a configuration, looked at before anything is imported or written.

Parts are parts, values are values, and every reference comes to something.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from nas_lightning.errors import InputError
from nas_lightning.options import top_names
from nas_lightning.validation import NonNegativeInt, PositiveInt, Seed, check_argument

_PARTS = ("trainer", "dataset", "space", "search_data", "strategy", "retrain", "task", "limits")
_PARTS_OR_NONE = ("derivation", "benchmark", "ensemble", "study")
_MAPPINGS = ("supernet", "network", "genotype", "callbacks", "logger")
_SEVERAL = ("callbacks", "logger")
_NEEDED = (*_PARTS, "supernet", "network")
_VALUES: dict[str, Any] = {
    "seed": Seed,
    "objective": str | None,
    "run": str,
    "resume": str | None,
    "init": str | None,
    "operations": Sequence[str],
    "modules": Sequence[str],
    "objectives": Sequence[str] | None,
    "reference": Sequence[float] | None,
}
"""What is no part's, with its kind and limits."""
_TRAINER: dict[str, Any] = {"max_epochs": NonNegativeInt, "check_val_every_n_epoch": PositiveInt | None}
"""What Lightning takes as it comes, and stumbles over later."""
_PLACES = ("hydra.run.dir", "hydra.sweep.dir", "hydra.mode")


def check_shape(config: DictConfig, script: str) -> None:
    """Raise for the first thing in a composed configuration that is not what belongs there."""
    known = top_names(script)
    plain = _resolve(config)
    for name in sorted(known & {*_NEEDED, *_VALUES} - {*plain}):
        raise InputError("expected a value", got="none", where=name)
    for name, value in plain.items():
        _check_section(name, value)
    for name, hint in _VALUES.items():
        if name in known:
            check_argument(name, plain[name], hint, name)
    if "sweep" in plain:
        _check_sweep(plain["sweep"])
    for name, hint in _TRAINER.items():
        check_argument(name, plain["trainer"].get(name), hint, f"trainer.{name}")
    for where, target in _targets(plain, ""):
        if not isinstance(target, str) or not target.strip():
            raise InputError("expected the dotted name of a class", got=target, where=f"{where}._target_")


def _check_sweep(value: Any) -> None:
    if not isinstance(value, dict) or value.keys() - {"retries"}:
        raise InputError("expected the settings of sweep: retries", got=value, where="sweep")
    check_argument("retries", value.get("retries", 0), NonNegativeInt, "sweep.retries")


def _check_section(name: str, value: Any) -> None:
    if value is None and name not in (*_NEEDED, *_SEVERAL):
        return
    if name in (*_PARTS, *_PARTS_OR_NONE, *_MAPPINGS) and value is not None and not isinstance(value, dict):
        raise InputError(f"expected the settings of {name}", got=value, where=name)
    if name in _NEEDED and value is None:
        raise InputError(f"expected a choice of {name}", got="null", where=name)
    if name in _PARTS or (name in _PARTS_OR_NONE and value):
        _check_part(name, value)
    for key, part in ((value or {}) if name in _SEVERAL else {}).items():
        if part is not None:
            _check_part(f"{name}.{key}", part)


def _check_part(where: str, value: Any) -> None:
    if not isinstance(value, dict) or "_target_" not in value:
        raise InputError("expected a _target_, the class that it stands for", got=value, where=where)


def _resolve(config: DictConfig) -> dict[str, Any]:
    """Plain values, Hydra's own part left out; raises for references to nothing or to themselves."""
    trial = copy.deepcopy(config)
    for place in _PLACES:
        _check_reference(lambda place=place: OmegaConf.select(trial, place), place)
    with open_dict(trial):
        trial.hydra.runtime.output_dir, trial.hydra.job.id, trial.hydra.job.num = "run", "0", 0
    HydraConfig.instance().set_config(trial)
    try:
        rest = OmegaConf.masked_copy(trial, [str(name) for name in trial if name != "hydra"])
        plain: Any = _check_reference(lambda: OmegaConf.to_container(rest, resolve=True), None)
    finally:
        HydraConfig.instance().cfg = None
    return plain


def _check_reference(resolve: Any, where: str | None) -> Any:
    try:
        return resolve()
    except (OmegaConfBaseException, ValueError, RecursionError, AttributeError, TypeError) as error:
        said = next(iter(str(error).strip().splitlines()), "it refers to itself")
        place = getattr(error, "full_key", None) or where
        raise InputError(f"expected a reference to a value: {said}", where=place) from None


def _targets(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        if "_target_" in value:
            yield where, value["_target_"]
        for key, entry in value.items():
            yield from _targets(entry, f"{where}.{key}".lstrip("."))
    elif isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _targets(entry, f"{where}.{number}")
