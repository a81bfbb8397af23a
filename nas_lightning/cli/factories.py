"""What jobs build from a configuration."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.utils import instantiate
from lightning_fabric.plugins.environments import LightningEnvironment
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.loggers import Logger
from pytorch_lightning.strategies import ParallelStrategy
from pytorch_lightning.strategies import Strategy as TrainerStrategy

from nas_lightning.cli.refusals import refuse_in_a_line
from nas_lightning.cli.targets import check_value
from nas_lightning.cli.trainer_settings import check_effect
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
from nas_lightning.utils.machine import check_processes
from nas_lightning.validation import arguments

_FOUND_OUT = ("genotype", "in_channels", "num_classes", "norm")
"""What a network depends on besides its sizes."""


def build(cfg: DictConfig, **parts: Any) -> Any:
    """What a configuration describes, from its settings and from `parts` that are no settings.

    The parts do not go through OmegaConf, which would copy them.
    """
    with refuse_in_a_line(str(cfg._get_full_key(None))):
        return factory_of(cfg)(**parts)


def factory_of(cfg: DictConfig) -> Callable[..., Any]:
    """The class or function that a configuration names, with its settings as Python has lists and dicts."""
    return instantiate(cfg, _convert_="all", _partial_=True)


def build_trainer(
    cfg: DictConfig,
    parts: Parts[Any],
    callbacks: Sequence[pl.Callback] = (),
    names: Collection[str] = NAMES,
) -> pl.Trainer:
    """The trainer with the callbacks and loggers that are configured; callbacks may name these parts."""
    _check_owners(cfg)
    chosen = [item for item in (cfg.callbacks or {}).values() if item is not None]
    named = [_build_callback(item, parts, names) for item in chosen]
    loggers = [_build_logger(item) for item in (cfg.logger or {}).values() if item is not None]
    trainer = build(cfg.trainer, callbacks=[*callbacks, *named], logger=loggers or False)
    if cfg.trainer.get("sync_batchnorm") and trainer.strategy.root_device.type == "cpu":
        raise InputError("expected GPUs, which synchronized batch norms need", where="trainer.sync_batchnorm")
    if trainer.num_nodes > 1 and not _can_meet(trainer.strategy):
        expected = "expected MASTER_ADDR in the environment, where the machines meet, or a scheduler's job"
        raise InputError(expected, got=trainer.num_nodes, where="trainer.num_nodes")
    return trainer


def _can_meet(strategy: TrainerStrategy) -> bool:
    """Whether the processes of several machines know where; else each waits for the others, in vain."""
    environment = strategy.cluster_environment if isinstance(strategy, ParallelStrategy) else None
    return not isinstance(environment, LightningEnvironment) or "MASTER_ADDR" in os.environ


def _build_callback(cfg: DictConfig, parts: Parts[Any], names: Collection[str]) -> pl.Callback:
    with refuse_in_a_line(str(cfg._get_full_key(None))):
        built: pl.Callback = parts.build(factory_of(cfg), names)
    _check_kind(built, pl.Callback, cfg)
    return built


def _build_logger(cfg: DictConfig) -> Logger:
    built: Logger = build(cfg)
    _check_kind(built, Logger, cfg)
    return built


def _check_kind(built: Any, kind: type, cfg: DictConfig) -> None:
    """Raise for a class that is none of Lightning's kind."""
    if not isinstance(built, kind):
        where = f"{cfg._get_full_key(None)}._target_"
        raise InputError(f"expected a {kind.__name__.lower()} of Lightning", got=cfg._target_, where=where)


def _check_owners(cfg: DictConfig) -> None:
    """Raise for settings of the trainer that somebody else has to say, and for a run that trains nothing."""
    for name, own in (
        ("logger", "logger=none, or one of its own"),
        ("callbacks", "callbacks.NAME._target_=…"),
    ):
        if name in cfg.trainer:
            raise InputError(f"expected {own} instead", got=cfg.trainer[name], where=f"trainer.{name}")
    check_effect(cfg)
    check_processes(cfg.trainer.get("devices"), "trainer.devices")
    if cfg.trainer.get("default_root_dir") != cfg.run:
        raise InputError("expected run=FOLDER instead", where="trainer.default_root_dir")
    if (cfg.trainer.get("min_epochs") or 0) > cfg.trainer.max_epochs >= 0:  # below it, time ends the run
        most = f"trainer.max_epochs, which is {cfg.trainer.max_epochs}"
        raise InputError(f"expected at most {most}", got=cfg.trainer.min_epochs, where="trainer.min_epochs")
    if cfg.trainer.get("limit_train_batches") == 0 or cfg.trainer.get("max_steps") == 0:
        raise InputError("expected batches to train on", got=0, where="trainer")
    owner = "strategy" if "strategy" in cfg else "retrain"
    for name, own, default in (
        ("gradient_clip_val", "clip", None),
        ("accumulate_grad_batches", "accumulate_grad_batches", 1),
    ):
        value = cfg.trainer.get(name, default)
        if value != default and cfg[owner].get(own) is not None:
            raise InputError(f"expected {owner}.{own}={value} instead", where=f"trainer.{name}")


def build_data(cfg: DictConfig) -> ImageData | ExternalData:
    """The data set; what is not ours, such as any `LightningDataModule`, with the run's seed."""
    data: Any = build(cfg.dataset)
    task: Any = build(cfg.task) if "task" in cfg else MULTI_CLASS
    if isinstance(data, ImageData):
        if not isinstance(task, MultiClass):
            expected = f"expected data of your own (dataset=mine), for {data.name} has classes"
            raise InputError(expected, got=task.name, where="task")
        return data
    with refuse_in_a_line("dataset"):
        data = data if isinstance(data, ExternalData) else ExternalData(data, seed=cfg.seed)
    data.task = None if is_usual(task) else task
    return data


def searched_parts(cfg: DictConfig) -> Parts[SearchData]:
    """The parts of a search or a study."""
    space: SearchSpace = build(cfg.space)
    supernet = sizes_of(space.supernet, cfg.supernet, "supernet")
    network = sizes_of(space.network, cfg.network, "network")
    parts = Parts(
        space,
        build(cfg.search_data, data=build_data(cfg)),
        Path(cfg.run),
        cfg.seed,
        supernet,
        network,
        build(cfg.benchmark) if cfg.benchmark else None,
        recipe_of(cfg),
        partial(build, cfg.trainer, logger=False),
        build(cfg.task) if "task" in cfg else None,
    )
    if "limits" not in cfg:
        return parts
    names = [*(cfg.objectives or ())]
    reference = None if cfg.reference is None else [*cfg.reference]
    return limit_parts(parts, build(cfg.limits), names, metrics_by_name(names), reference)


def metrics_by_name(objectives: Sequence[str]) -> dict[str, Metric]:
    """The metrics among objectives, each with the settings of its yaml."""
    others, found = [name for name in objectives if name not in OBJECTIVES], {}
    known = GlobalHydra.instance().config_loader().get_group_options("metric") if others else []
    for name in others:
        if name not in known:
            expected = f"expected an objective ({near_match(name, [*OBJECTIVES, *known])})"
            raise InputError(expected, got=name, where="objectives")
        found[name] = build(compose(f"metric/{name}").metric)
    return found


def checkpoint(cfg: DictConfig, module: pl.LightningModule) -> str | None:
    """Where a run of the module goes on that is resumed, or that SLURM starts again; None starts anew."""
    path = RunFolder(cfg.run).checkpoint
    if (cfg.resume is None and not is_requeued()) or not path.is_file():
        return None
    try:
        stored = torch.load(path, map_location="meta", weights_only=True, mmap=True)
    except Exception as error:  # torch raises whatever the bytes lead it to
        raise InputError(f"expected a checkpoint: {str(error).splitlines()[0]}", where=path) from None
    parts = {"pytorch-lightning_version", "state_dict", "loops", "optimizer_states"}
    if not isinstance(stored, dict) or not parts <= set(stored):
        raise InputError("expected a checkpoint of a run", got="another file", where=path)
    if isinstance(module, Strategy):
        module.resize_to_checkpoint(stored)
    if _shapes(stored["state_dict"]) != _shapes(module.state_dict()):
        raise InputError("expected a checkpoint of this network", got="one of another", where=path)
    return str(path)


def sizes_of(method: Callable[..., Any], sizes: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The sizes of a network or supernet, which the space's method names."""
    known = {key: hint for key, hint in (arguments(method) or {}).items() if key not in _FOUND_OUT}
    for key, value in sizes.items():
        check_value(key, value, known, where)
    return dict(sizes)


def _shapes(state: Mapping[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in state.items()}


def own_parts(cfg: DictConfig, folders: tuple[Path, ...]) -> dict[str, Any]:
    """What a user has of their own that files may name, as `make_space` takes it."""
    return {"folders": folders, "operations": [*cfg.operations], "modules": own_modules(cfg)}


def own_modules(cfg: DictConfig) -> list[str]:
    """A user's own networks that were typed, each of which files may name."""
    return [*cfg.modules, *filter(None, [cfg.network.get("path")])]


def network_sizes(space: SearchSpace, folders: tuple[Path, ...]) -> dict[str, Any]:
    """The sizes of a space's networks, as its yaml has them; what somebody has made has its own."""
    if isinstance(space, FixedNetwork):
        return {}
    option = compose(f"space/{find_option(space.name, folders)}")
    sizes: Any = OmegaConf.to_container(option.network, resolve=True)
    return dict(sizes)


def recipe_of(cfg: DictConfig) -> Callable[..., pl.LightningModule]:
    """What trains a network, of which only a search's configuration says nothing."""
    return factory_of(cfg.retrain) if "retrain" in cfg else Retrain
