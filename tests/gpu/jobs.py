"""Small jobs through their yamls, without the command line around them."""

import math
from pathlib import Path

import pytorch_lightning as pl
import torch

from nas_lightning.cli.build import build_data, build_trainer, factory_of, recipe_of, searched_parts
from nas_lightning.jobs.parts import Parts
from nas_lightning.jobs.search import build_strategy, search
from nas_lightning.jobs.study import named_parts
from nas_lightning.jobs.train import train
from nas_lightning.runs.facts import Findings, RunFacts
from nas_lightning.spaces import NasBench201
from tests.strategies.conftest import at_most
from tests.yamls import composed, small_form

SHORT = ("logger=none", "callbacks=[]", "trainer.limit_train_batches=2")
QUIET = ("trainer.enable_model_summary=false", "+trainer.enable_progress_bar=false")
QUIET += ("+trainer.enable_checkpointing=false",)
IMAGES = ("dataset.train_size=32", "dataset.test_size=16", "dataset.batch_size=8")
CELL = "|nor_conv_3x3~0|+|skip_connect~0|nor_conv_1x1~1|+|avg_pool_3x3~0|none~1|nor_conv_3x3~2|"


def run_search(folder: Path, accelerator: str, *words: str, **chosen: str) -> RunFacts:
    """Search with the chosen options, each in its small form."""
    chosen = {"strategy": "darts", "space": "nasbench201", "dataset": "fake", **chosen}
    epochs = f"trainer.max_epochs={at_most(1, chosen['strategy'])}"
    given = (f"trainer.accelerator={accelerator}", f"run={folder}", epochs)
    cfg = composed("search", *small_form(**chosen), *SHORT, *QUIET, *given, *words)
    pl.seed_everything(0, verbose=False)
    parts = searched_parts(cfg)
    strategy = build_strategy(factory_of(cfg.strategy), parts)
    derivation = parts.build(factory_of(cfg.derivation)) if cfg.derivation else None
    parts.data.setup()
    return search(strategy, parts, build_trainer(cfg, parts), derivation=derivation)


def run_study(folder: Path, accelerator: str, study: str, *words: str) -> Findings:
    """Run a study in its small form."""
    given = (f"trainer.accelerator={accelerator}", f"run={folder}", "space=nasbench201", "dataset=fake")
    cfg = composed("analyze", *given, *small_form(study=study), *QUIET, *words)
    pl.seed_everything(0, verbose=False)
    parts = searched_parts(cfg)
    question = parts.build(factory_of(cfg.study), ("seed",))
    return question.run(**named_parts(question, parts))


def run_training(folder: Path, accelerator: str, *words: str) -> RunFacts:
    """Train a small network."""
    given = (f"trainer.accelerator={accelerator}", f"run={folder}", "retrain.drop_path=0", "dataset=fake")
    given += ("trainer.max_epochs=1",)
    cfg = composed("train", *SHORT, *QUIET, *IMAGES, *given, *words)
    pl.seed_everything(0, verbose=False)
    space, sizes = NasBench201(), {"channels": 4, "cells": 1}
    parts = Parts(space, build_data(cfg), folder, network_sizes=sizes, recipe=recipe_of(cfg))
    return train(space.parse(CELL), parts, build_trainer(cfg, parts, (), ("space", "data", "folder", "seed")))


def check_equal(one: RunFacts, two: RunFacts) -> None:
    """Raise unless two runs have the same architectures and metrics."""
    assert one.notation == two.notation
    for name, value in one.metrics.items():
        assert math.isclose(value, two.metrics[name], rel_tol=1e-4, abs_tol=1e-5), name


def small_network() -> torch.nn.Module:
    """Return the network of `CELL` with the same weights each time."""
    torch.manual_seed(0)
    space = NasBench201()
    return space.network(space.parse(CELL), in_channels=3, num_classes=4, channels=4, cells=1)
