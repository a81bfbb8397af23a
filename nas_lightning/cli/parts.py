"""What both kinds of job build from a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from hydra import compose
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig

from nas_lightning.cli.commandline import CHECKPOINT
from nas_lightning.cli.help import groups
from nas_lightning.errors import InputError, near_match


def make(cfg: DictConfig, **parts: Any) -> Any:
    """What a configuration describes, from its settings and from `parts` that are no settings.

    The parts do not go through OmegaConf, which would copy them.
    """
    return instantiate(cfg, _partial_=True)(**parts)


def make_trainer(cfg: DictConfig) -> pl.Trainer:
    """The trainer with the callbacks and loggers that the configuration names."""
    callbacks = [make(item) for item in (cfg.callbacks or {}).values() if item is not None]
    loggers = [make(item) for item in (cfg.logger or {}).values() if item is not None]
    return make(cfg.trainer, callbacks=callbacks, logger=loggers or False)


def checkpoint(cfg: DictConfig) -> str | None:
    """Where a resumed run goes on; None starts anew."""
    path = Path(cfg.run) / CHECKPOINT
    return str(path) if cfg.resume is not None and path.is_file() else None


def metrics(trainer: pl.Trainer) -> dict[str, float]:
    """The last metrics, without the weight of every edge."""
    found = trainer.callback_metrics.items()
    return {name: round(float(value), 6) for name, value in found if not name.startswith("weights/")}


def space_config(name: str) -> DictConfig:
    """The configuration of the space of that name, with the sizes of its networks."""
    if name not in groups()["space"]:
        raise InputError(f"expected a space ({near_match(name, groups()['space'])})", got=name)
    return compose(f"space/{name}")


def typed(*starts: str) -> list[str]:
    """What the user typed of the settings that start so, to be typed again."""
    return [override for override in HydraConfig.get().overrides.task if override.startswith(starts)]
