"""Check a configuration and build the parts of a job from it."""

from __future__ import annotations

import os
import pkgutil
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from lightning_fabric.plugins.environments import LightningEnvironment
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.loggers import Logger
from pytorch_lightning.strategies import ParallelStrategy
from pytorch_lightning.strategies import Strategy as TrainerStrategy
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from nas_lightning.callbacks import resume_callbacks
from nas_lightning.data import ExternalData, ImageData, SearchData
from nas_lightning.errors import InputError, near_match
from nas_lightning.jobs.limits import limit_parts
from nas_lightning.jobs.parts import NAMES, Parts
from nas_lightning.metrics.base import Metric
from nas_lightning.objectives.fronts import NAMES as OBJECTIVES
from nas_lightning.runs.folder import RunFolder, is_requeued
from nas_lightning.spaces import SearchSpace
from nas_lightning.spaces.fixed import FixedNetwork
from nas_lightning.spaces.registry import find_option
from nas_lightning.strategies.base import Strategy
from nas_lightning.tasks import MULTI_CLASS, MultiClass, is_usual
from nas_lightning.training.retrain import Retrain
from nas_lightning.utils.devices import has_float64
from nas_lightning.utils.machine import check_processes
from nas_lightning.validation import NonNegativeInt, Seed, arguments, check_argument, check_names

_FOUND_OUT = ("genotype", "in_channels", "num_classes", "norm")
"""Arguments of a network that follow from the data or the genotype."""

_SPECIAL = ("_target_", "_partial_", "_recursive_", "_convert_", "_args_")
_CHOSEN = ("trainer", "dataset", "task", "space", "search_data", "strategy", "retrain", "limits")
"""Sections that must have a `_target_`."""
_VALUES: dict[str, Any] = {
    "seed": Seed,
    "objective": str | None,
    "pretrained": str | None,
    "operations": Sequence[str],
    "modules": Sequence[str],
    "objectives": Sequence[str] | None,
    "reference": Sequence[float] | None,
}
"""Top-level settings and their types."""
_OF_LOOPS = {
    "limit_val_batches": None,
    "limit_test_batches": None,
    "val_check_interval": None,
    "check_val_every_n_epoch": 1,
}
"""Trainer arguments without effect in a search, which has no validation or test loop, and their defaults."""


def check_config(cfg: DictConfig) -> None:
    """Validate a composed configuration.

    Raises:
        InputError: A setting is missing, unknown to its class, or has an invalid value.
    """
    missing = sorted(OmegaConf.missing_keys(cfg))
    if missing:
        raise InputError(f"`{missing[0]}` needs a value.")
    plain: Any = OmegaConf.to_container(cfg, resolve=True)
    for name in _CHOSEN:
        if name in plain and not (isinstance(plain[name], dict) and "_target_" in plain[name]):
            raise InputError(f"Choose an option of `{name}`, got {plain[name]}. `--help` lists them.")
    for name, hint in _VALUES.items():
        if name in plain:
            check_argument(name, plain[name], hint, name)
    if (plain.get("limits") or {}).get("minutes") is None:
        check_argument("max_epochs", plain["trainer"].get("max_epochs"), NonNegativeInt, "trainer.max_epochs")
    for group in ("callbacks", "logger"):
        for name, item in (plain.get(group) or {}).items():
            if item is not None and "_target_" not in item:
                raise InputError(f"`{group}.{name}` needs a `_target_`: the class to build.")
    check_targets(cfg)


def check_targets(cfg: DictConfig) -> None:
    """Validate all settings by the signatures of their `_target_`.

    Our constructors validate their own arguments. This also covers classes of other libraries, and objects
    that are built only hours later, such as the optimizer of a retraining.

    Raises:
        InputError: The first setting that does not fit.
    """
    for where, node in _nodes(OmegaConf.to_container(cfg, resolve=True), ""):
        hints = arguments(locate(node["_target_"], where))
        for name, value in node.items():
            if name not in _SPECIAL:
                check_value(name, value, hints, where)


def check_value(name: str, value: Any, hints: Mapping[str, Any] | None, where: str) -> None:
    """Raise unless `name` is a known argument and `value` fits its annotation."""
    if hints is None:  # the signature accepts any argument
        return
    check_names([name], hints, where)
    if not any(_nodes(value, "")):  # nested objects are validated on their own
        check_argument(name, value, hints[name], f"{where}.{name}")


def import_error(name: str) -> str | None:
    """Return why the module of a dotted name cannot be imported, and the line; None if it is not found.

    >>> import_error("no_such_module.Class")
    """
    parts = name.split(".")
    for count in range(1, len(parts)):
        module = ".".join(parts[:count])
        try:
            import_module(module)
        except ImportError as error:
            if error.name == module:  # not a module
                return None
            *_, line = traceback.extract_tb(error.__traceback__)
            return f"{type(error).__name__}: {error} ({line.filename}, line {line.lineno})"
    return None


def locate(name: Any, where: str) -> Callable[..., Any]:
    """Return the class or function with a dotted name."""
    try:
        target = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        cause = import_error(str(name)) or error
        raise InputError(f"Cannot import the class: {cause}", got=name, where=where) from None
    if not callable(target):
        raise InputError("`_target_` must be a class or function", got=name, where=where)
    return target


def _nodes(value: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all mappings with a target, and the path to each."""
    if isinstance(value, dict) and "_target_" in value:
        yield where, value
    entries = dict(enumerate(value)) if isinstance(value, list) else value
    if isinstance(entries, dict):
        for key, entry in entries.items():
            yield from _nodes(entry, f"{where}.{key}".lstrip("."))


@contextmanager
def building(where: str | None = None) -> Iterator[None]:
    """Convert errors of constructors to an `InputError` that names the setting."""
    try:
        yield
    except (InstantiationException, ValueError, MisconfigurationException) as error:
        cause: BaseException = error
        while isinstance(cause, InstantiationException) and cause.__cause__ is not None:
            cause = cause.__cause__
        if isinstance(cause, InputError):
            raise cause from None
        if not isinstance(cause, (InstantiationException, ValueError, MisconfigurationException)):
            raise
        raise InputError(str(cause)[:300], where=where) from error


def build(cfg: DictConfig, where: str | None = None, **parts: Any) -> Any:
    """Instantiate a configuration.

    Args:
        cfg: a configuration with a `_target_`.
        where: the setting that error messages name.
        **parts: further arguments, which do not pass through OmegaConf, since it would copy them.
    """
    with building(where):
        return factory_of(cfg)(**parts)


def factory_of(cfg: DictConfig) -> Callable[..., Any]:
    """Return a partial of the configured class, with settings as plain lists and dicts."""
    return instantiate(cfg, _convert_="all", _partial_=True)


def build_trainer(
    cfg: DictConfig,
    parts: Parts[Any],
    callbacks: Sequence[pl.Callback] = (),
    names: Collection[str] = NAMES,
) -> pl.Trainer:
    """Build the trainer with its callbacks and loggers.

    Args:
        cfg: the whole configuration.
        parts: parts of the job that callbacks can take as arguments.
        callbacks: callbacks in addition to the configured ones.
        names: the names of the available parts.
    """
    _check_trainer(cfg)
    named = []
    for name, item in (cfg.callbacks or {}).items():
        if item is not None:
            with building(f"callbacks.{name}"):
                named.append(_check_type(pl.Callback, parts.build(factory_of(item), names), item))
    loggers = [
        _check_type(Logger, build(item, f"logger.{name}"), item)
        for name, item in (cfg.logger or {}).items()
        if item is not None
    ]
    trainer = build(
        cfg.trainer, "trainer", callbacks=[*resume_callbacks(), *callbacks, *named], logger=loggers or False
    )
    if cfg.trainer.get("sync_batchnorm") and trainer.strategy.root_device.type == "cpu":
        raise InputError("Synchronized batch norms need GPUs", where="trainer.sync_batchnorm")
    if trainer.precision == "64-true" and not has_float64(trainer.strategy.root_device):
        expected = "The device has no float64: use another precision or trainer.accelerator=cpu"
        raise InputError(expected, got="64-true", where="trainer.precision")
    if trainer.num_nodes > 1 and not _has_main_address(trainer.strategy):
        expected = "Several nodes need MASTER_ADDR in the environment, or the job of a scheduler"
        raise InputError(expected, got=trainer.num_nodes, where="trainer.num_nodes")
    return trainer


def _has_main_address(strategy: TrainerStrategy) -> bool:
    """Return whether the processes know the main node's address; without it they would wait forever."""
    environment = strategy.cluster_environment if isinstance(strategy, ParallelStrategy) else None
    return not isinstance(environment, LightningEnvironment) or "MASTER_ADDR" in os.environ


def _check_type(kind: type, built: Any, cfg: DictConfig) -> Any:
    """Return the object; raise if it is not an instance of Lightning's base class `kind`."""
    if not isinstance(built, kind):
        raise InputError(
            f"`{cfg._target_}` must be a {kind.__module__.split('.')[0]} {kind.__name__}, not one of"
            " lightning.pytorch."
        )
    return built


def _check_trainer(cfg: DictConfig) -> None:
    """Raise for trainer arguments that have no effect, and for a run without training steps."""
    trainer = cfg.trainer
    for name, instead in (
        ("logger", "logger=NAME, such as logger=none"),
        ("callbacks", "callbacks.NAME._target_=…"),
    ):
        if trainer.get(name) is not None:
            raise InputError(f"`trainer.{name}` is set by {instead}.")
    for name, default in _OF_LOOPS.items() if "strategy" in cfg else ():
        if trainer.get(name, default) != default:
            raise InputError(f"`trainer.{name}` has no effect: a search has no validation or test loop.")
    if trainer.get("gradient_clip_algorithm") is not None and trainer.get("gradient_clip_val") is None:
        raise InputError("`trainer.gradient_clip_algorithm` needs trainer.gradient_clip_val.")
    check_processes(trainer.get("devices"), "trainer.devices")
    if trainer.get("default_root_dir") != cfg.run:
        raise InputError("`trainer.default_root_dir` is the run's folder: pass run=DIR.")
    if (trainer.get("min_epochs") or 0) > trainer.max_epochs >= 0:  # -1: the time limit ends the run
        raise InputError(
            f"`trainer.min_epochs` must be at most trainer.max_epochs={trainer.max_epochs},"
            f" got {trainer.min_epochs}."
        )
    if trainer.get("limit_train_batches") == 0 or trainer.get("max_steps") == 0:
        raise InputError("`trainer` must leave batches to train on, got 0.")
    owner = "strategy" if "strategy" in cfg else "retrain"
    for name, own, default in (
        ("gradient_clip_val", "clip", None),
        ("accumulate_grad_batches", "accumulate_grad_batches", 1),
    ):
        value = trainer.get(name, default)
        if value != default and cfg[owner].get(own) is not None:
            raise InputError(f"Pass {owner}.{own}={value} instead of trainer.{name}.")


def build_data(cfg: DictConfig) -> ImageData | ExternalData:
    """Build the data set; any other `LightningDataModule` is wrapped, with the run's seed."""
    data: Any = build(cfg.dataset, "dataset")
    task: Any = build(cfg.task, "task") if "task" in cfg else MULTI_CLASS
    if isinstance(data, ImageData):
        if not isinstance(task, MultiClass):
            expected = f"This task needs your own data (dataset=mine), since {data.name} has classes"
            raise InputError(expected, got=task.name, where="task")
        return data
    with building("dataset"):
        data = data if isinstance(data, ExternalData) else ExternalData(data, seed=cfg.seed)
    data.task = None if is_usual(task) else task
    return data


def searched_parts(cfg: DictConfig) -> Parts[SearchData]:
    """Build the parts of a search or a study."""
    space: SearchSpace = build(cfg.space, "space")
    supernet = sizes_of(space.supernet, cfg.supernet, "supernet")
    network = sizes_of(space.network, cfg.network, "network")
    parts = Parts(
        space,
        build(cfg.search_data, "search_data", data=build_data(cfg)),
        Path(cfg.run),
        cfg.seed,
        supernet,
        network,
        build(cfg.benchmark, "benchmark") if cfg.benchmark else None,
        recipe_of(cfg),
        partial(build, cfg.trainer, logger=False),
        build(cfg.task) if "task" in cfg else None,
    )
    if "limits" not in cfg:
        return parts
    names = [*(cfg.objectives or ())]
    reference = None if cfg.reference is None else [*cfg.reference]
    return limit_parts(parts, build(cfg.limits, "limits"), names, metrics_by_name(names), reference)


def metrics_by_name(objectives: Sequence[str]) -> dict[str, Metric]:
    """Build the objectives that are metrics, each with the settings of its yaml."""
    others, found = [name for name in objectives if name not in OBJECTIVES], {}
    known = GlobalHydra.instance().config_loader().get_group_options("metric") if others else []
    for name in others:
        if name not in known:
            expected = f"Unknown objective ({near_match(name, [*OBJECTIVES, *known])})"
            raise InputError(expected, got=name, where="objectives")
        found[name] = build(compose(f"metric/{name}").metric)
    return found


def checkpoint(cfg: DictConfig, module: pl.LightningModule) -> str | None:
    """Return the checkpoint of a resumed or requeued run; None to start from the beginning.

    Raises:
        InputError: The checkpoint is damaged or does not fit the module.
    """
    path = RunFolder(cfg.run).checkpoint
    if (cfg.resume is None and not is_requeued()) or not path.is_file():
        return None
    try:
        stored = torch.load(path, map_location="meta", weights_only=True, mmap=True)
    except Exception as error:  # for a damaged file, torch raises errors of many types
        raise InputError(f"Cannot read the checkpoint: {str(error).splitlines()[0]}", where=path) from None
    parts = {"pytorch-lightning_version", "state_dict", "loops", "optimizer_states"}
    if not isinstance(stored, dict) or not parts <= set(stored):
        raise InputError("The checkpoint must be that of a run", got="another file", where=path)
    if isinstance(module, Strategy):
        module.resize_to_checkpoint(stored)
    if _shapes(stored["state_dict"]) != _shapes(module.state_dict()):
        raise InputError("The checkpoint must be that of this network", got="one of another", where=path)
    return str(path)


def sizes_of(method: Callable[..., Any], sizes: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the configured sizes of a network or supernet, validated by the signature of `method`."""
    known = {key: hint for key, hint in (arguments(method) or {}).items() if key not in _FOUND_OUT}
    named = {key: value for key, value in sizes.items() if value is not None}
    for key, value in named.items():
        check_value(key, value, known, where)
    return named


def _shapes(state: Mapping[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in state.items()}


def own_parts(cfg: DictConfig, folders: tuple[Path, ...]) -> dict[str, Any]:
    """Return the user's custom parts that files may name, as keywords of `make_space`."""
    return {"folders": folders, "operations": [*cfg.operations], "modules": own_modules(cfg)}


def own_modules(cfg: DictConfig) -> list[str]:
    """Return the user's network classes and modules that files may name."""
    return [*cfg.modules, *filter(None, [cfg.network.get("path")])]


def network_sizes(space: SearchSpace, folders: tuple[Path, ...]) -> dict[str, Any]:
    """Return the network sizes in the space's yaml; a fixed network has none."""
    if isinstance(space, FixedNetwork):
        return {}
    option = compose(f"space/{find_option(space.name, folders)}")
    sizes: Any = OmegaConf.to_container(option.network, resolve=True)
    return dict(sizes)


def recipe_of(cfg: DictConfig) -> Callable[..., pl.LightningModule]:
    """Return the factory of the retraining module; a search without `retrain` uses the default."""
    return factory_of(cfg.retrain) if "retrain" in cfg else Retrain
