"""What a task is: targets, loss, metrics and the kind of head, for searches and trainings alike.

A new one is one file with one subclass, and one yaml.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from nas_lightning.errors import InputError
from nas_lightning.spaces.decoder import make_dense
from nas_lightning.spaces.network import Backbone
from nas_lightning.tasks.links import IDENTITY, Link

Module = TypeVar("Module", bound=nn.Module)
_WHERE = "a batch"


class Task(ABC):
    """What a network's outputs (b, outputs), or (b, outputs, h, w) of dense tasks, are for.

    `fit` makes a supernet or network one of the task; strategies and trainings read `task` there.

    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.tasks import Segmentation
    >>> supernet = NasBench201().supernet(in_channels=1, num_classes=3, channels=4, cells=1)
    >>> weights = {"cell": torch.full((6, 5), 0.2)}
    >>> Segmentation().fit(supernet)(torch.zeros(2, 1, 16, 16), weights).shape
    torch.Size([2, 3, 16, 16])
    """

    name: ClassVar[str]
    dense: ClassVar[bool] = False
    """Whether there is an output for each pixel."""
    least: ClassVar[int] = 1
    """The fewest outputs that it makes sense with."""
    of_classes: ClassVar[bool] = False
    """Whether what data say of their classes says how many outputs there are."""
    link: ClassVar[Link] = IDENTITY
    """From outputs to predictions."""
    score: str
    """The metric that searches and trainings maximise."""

    @abstractmethod
    def targets(self, y: Tensor) -> Tensor:
        """What loaders give as the loss takes it; raises for what is none."""

    @abstractmethod
    def count(self, y: Tensor) -> int:
        """The outputs that these targets ask for."""

    @abstractmethod
    def loss(self, z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        """What training minimises, the mean over the batch."""

    @abstractmethod
    def metrics(self, outputs: int) -> Mapping[str, Metric]:
        """What is logged besides the loss, of `predictions` and targets."""

    def evaluation_loss(self, z: Tensor, y: Tensor) -> Tensor:
        """The loss as it is reported, the mean over the batch."""
        return self.loss(z, y)

    def predictions(self, z: Tensor) -> Tensor:
        """What is said of an image: probabilities, numbers."""
        return self.link.predict(z)

    def check(self, y: Tensor, outputs: int, source: str) -> None:  # noqa: B027
        """Raise for targets that so many outputs cannot have; `source` says who counted them."""

    def fit(self, module: Module) -> Module:
        """Give a supernet or network the head of the task, and its name; the same module."""
        made: Any = module
        if self.dense:
            if not isinstance(getattr(made, "backbone", None), Backbone):
                expected = f"expected a space of cells, whose maps {self.name} decodes"
                raise InputError(expected, got=type(module).__name__, where="task")
            make_dense(made)
        made.task = self
        return module

    def judge(self, z: Tensor, y: Tensor) -> float:
        """The score of outputs on a whole part."""
        metric = self.metrics(z.shape[1])[self.score].to(z.device)
        metric.update(self.predictions(z), y)
        return float(metric.compute())

    def same_shape(self, y: Tensor, outputs: int, source: str) -> None:
        """Raise unless targets (b, outputs) have a number for each output."""
        if y.dim() != 2 or y.shape[1] != outputs:
            expected = f"expected targets (b, {outputs}) for {outputs} outputs{source}"
            raise InputError(expected, got=tuple(y.shape), where=_WHERE)


def link_of(name: str) -> Link:
    """Of the task of that name; of one that nobody has imported, whose outputs are its predictions.

    >>> link_of("regression") is link_of("somebody's")
    True
    """
    return next((kind.link for kind in _narrower(Task) if getattr(kind, "name", None) == name), IDENTITY)


def _narrower(kind: Any) -> Iterator[type[Task]]:
    for narrower in kind.__subclasses__():
        yield narrower
        yield from _narrower(narrower)


def as_rows(y: Tensor) -> Tensor:
    """Numbers (b,) or (b, k) as floats (b, k)."""
    if y.is_complex() or y.dim() not in (1, 2):
        raise InputError("expected numbers (b,) or (b, outputs)", got=tuple(y.shape), where=_WHERE)
    if not bool(torch.isfinite(y).all()):
        raise InputError("expected finite targets", got="one that is not", where=_WHERE)
    return (y[:, None] if y.dim() == 1 else y).float()
