"""The parts of a job, which strategies, derivations, callbacks, and studies get by argument name.

space       the `SearchSpace`
supernet    a supernet of the space for the images' channels and classes; studies get the function
            () → supernet, whose keywords change the sizes
network     genotype → its network; keywords change the sizes
data        the images: `SearchData` in searches and studies, `ImageData` or `ExternalData` in trainings
benchmark   the tabular benchmark or None
objectives  the objectives of a multi-objective search or None
retrain     network → the LightningModule that trains it
trainer     () → a trainer without loggers; keywords change it
folder      the run's folder
accelerator where the trainer computes, as `torch.device`
seed        the run's seed
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytorch_lightning as pl
import torch
from torch import nn

from nas_lightning.data import ExternalData, ImageData, SearchData
from nas_lightning.objectives.fronts import Objectives
from nas_lightning.objectives.latency import Device
from nas_lightning.objectives.tables import TabularBenchmark
from nas_lightning.spaces import Network, SearchSpace, Supernet
from nas_lightning.tasks import Task, is_usual, task_of
from nas_lightning.training.retrain import Retrain
from nas_lightning.validation import arguments

NAMES = (
    *("space", "supernet", "network", "data", "benchmark", "objectives"),
    *("retrain", "trainer", "folder", "accelerator", "seed"),
)


Data = TypeVar("Data", SearchData, ImageData | ExternalData)


@dataclass(frozen=True)
class Parts(Generic[Data]):
    """The parts of a job; `build` passes them to a class or function by the names of its arguments.

    Args:
        space: the search space.
        data: the images, which determine the channels and classes of networks.
        folder: the run's folder.
        seed: the run's seed.
        supernet_sizes: further arguments of `space.supernet`, such as `channels` and `cells`.
        network_sizes: further arguments of `space.network`.
        benchmark: tabular benchmark for searches, and for the summary of their results.
        recipe: (network=…, num_classes=…) → the LightningModule that trains a network.
        trainer: keywords → a trainer.
        task: the task of the networks. Default: the data set's.
        objectives: the objectives of a multi-objective search.
        limits: limits of the costs of networks, by name.
        device: predicts latencies for a limit or an objective.

    >>> from nas_lightning.data import Digits
    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.strategies import RandomSearch
    >>> parts = Parts(NasBench201(), SearchData(Digits()), seed=3, network_sizes={"channels": 4, "cells": 1})
    >>> parts.build(partial(RandomSearch, count=2)).generator.initial_seed()
    3
    """

    space: SearchSpace
    data: Data
    folder: Path = Path()
    seed: int = 0
    supernet_sizes: Mapping[str, Any] = field(default_factory=dict)
    network_sizes: Mapping[str, Any] = field(default_factory=dict)
    benchmark: TabularBenchmark | None = None
    recipe: Callable[..., pl.LightningModule] = Retrain
    trainer: Callable[..., pl.Trainer] = pl.Trainer
    task: Task | None = None
    objectives: Objectives | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    device: Device | None = None

    def __post_init__(self) -> None:
        if self.benchmark is not None:
            self.benchmark.check_space(self.space)

    @property
    def supernet(self) -> Callable[..., Supernet]:
        """() → a supernet; keywords override the run's sizes."""
        return self._of_task(partial(self.space.supernet, **{**self._shape, **self.supernet_sizes}))

    @property
    def network(self) -> Callable[..., Network]:
        """genotype → its network; keywords override the run's sizes."""
        return self._of_task(partial(self.space.network, **{**self._shape, **self.network_sizes}))

    def _of_task(self, build: Callable[..., Any]) -> Callable[..., Any]:
        """Return a builder whose networks have the head of the task."""
        task = task_of(self.data) if self.task is None else self.task
        return build if is_usual(task) else partial(_build_for, task, build)

    @property
    def accelerator(self) -> torch.device:
        """Where the trainer computes."""
        return self.trainer(logger=False).strategy.root_device

    def retrain(self, network: nn.Module) -> pl.LightningModule:
        """Return the LightningModule that trains a network on the images."""
        return self.recipe(network=network, num_classes=self.data.num_classes)

    def check_network(self) -> None:
        """Raise for invalid sizes before the search starts, by building a random network."""
        build, any_genotype = self.network, self.space.sample(torch.Generator().manual_seed(0))
        with torch.device("meta"):
            build(any_genotype)

    def build(self, factory: Callable[..., Any], names: Collection[str] = NAMES) -> Any:
        """Call a class or function with the parts that its signature names.

        Arguments that a `functools.partial` has already, such as another `seed`, take precedence.
        """
        given = factory.keywords if isinstance(factory, partial) else {}
        named = parameters(factory)
        return factory(**{name: self._one(name) for name in names if name in named and name not in given})

    def _one(self, name: str) -> Any:
        return self.supernet() if name == "supernet" else getattr(self, name)

    @property
    def _shape(self) -> dict[str, int]:
        return {"in_channels": self.data.image[0], "num_classes": self.data.num_classes}


def _build_for(task: Task, build: Callable[..., Any], *args: Any, **sizes: Any) -> Any:
    return task.fit(build(*args, **sizes))


def parameters(factory: Callable[..., Any]) -> Collection[str]:
    """Return the names of the arguments of a class or function, or of a partial of one."""
    function = factory.func if isinstance(factory, partial) else factory
    return arguments(function) or {}
