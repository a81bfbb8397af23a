"""Settings of Lightning's trainer that do nothing here: whoever types one is told what does."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from nas_lightning.errors import InputError

_WITHOUT_EFFECT = {
    "overfit_batches": (0.0, "dataset.subset=COUNT"),
    "reload_dataloaders_every_n_epochs": (0, "0: loaders make each epoch anew"),
    "use_distributed_sampler": (False, "false: loaders divide batches between processes themselves"),
    "limit_predict_batches": (None, "none: nothing is predicted"),
    "model_registry": (None, "none: there is no registry"),
    "enable_autolog_hparams": (True, "true: callbacks and loggers decide"),
}
_OF_VALIDATION = "none: a search has no validation or test of its own"
_WITHOUT_EFFECT_IN_SEARCHES = {
    "limit_val_batches": (None, _OF_VALIDATION),
    "limit_test_batches": (None, _OF_VALIDATION),
    "val_check_interval": (None, _OF_VALIDATION),
    "check_val_every_n_epoch": (1, _OF_VALIDATION),
    "num_sanity_val_steps": (0, _OF_VALIDATION),
}
"""Arguments of Lightning's trainer that do nothing here: the value that says so, and what to type instead."""


def check_effect(cfg: DictConfig) -> None:
    """Raise for a setting of the trainer that would be accepted and ignored."""
    ignored: dict[str, tuple[Any, str]] = {
        **_WITHOUT_EFFECT,
        **(_WITHOUT_EFFECT_IN_SEARCHES if "strategy" in cfg else {}),
    }
    for name, (default, instead) in ignored.items():
        value = cfg.trainer.get(name, default)
        if value != default:
            raise InputError(f"expected {instead}", got=value, where=f"trainer.{name}")
    algorithm = cfg.trainer.get("gradient_clip_algorithm")
    if algorithm is not None and cfg.trainer.get("gradient_clip_val") is None:
        expected = "expected trainer.gradient_clip_val beside it"
        raise InputError(expected, got=algorithm, where="trainer.gradient_clip_algorithm")
