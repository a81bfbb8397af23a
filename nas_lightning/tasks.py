"""Tasks: loss, targets, head, and metrics of a network's outputs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import (
    BinaryAccuracy,
    BinaryAUROC,
    MulticlassAccuracy,
    MulticlassJaccardIndex,
    MultilabelAccuracy,
    MultilabelF1Score,
)

from nas_lightning.data.labels import check_range, class_labels
from nas_lightning.errors import InputError, near_match
from nas_lightning.spaces.decoder import make_dense
from nas_lightning.spaces.network import Backbone
from nas_lightning.validation import Between0And1, PositiveFloat, Share, checked

# Metrics of labels 0 and 1, which losses want as floats.


class OfLabels(Metric):
    """A metric that wants whole numbers, given floats.

    Args:
        metric: which.

    >>> import torch
    >>> from torchmetrics.classification import BinaryAccuracy
    >>> metric = OfLabels(BinaryAccuracy())
    >>> metric.update(torch.tensor([[0.9], [0.8]]), torch.tensor([[1.0], [0.0]]))
    >>> metric.compute()
    tensor(0.5000)
    """

    full_state_update = False

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self.metric = metric

    def update(self, predictions: Tensor, y: Tensor) -> None:
        self.metric.update(predictions.detach().float(), y.long())

    def compute(self) -> Tensor:
        value: Tensor = self.metric.compute()
        return value

    def reset(self) -> None:
        super().reset()
        self.metric.reset()

    def persistent(self, mode: bool = False) -> None:
        super().persistent(mode)
        self.metric.persistent(mode)


# From outputs to predictions: probabilities or numbers, and what several networks predict together.
#
# >>> import torch
# >>> z = torch.tensor([[[0.0, 2.0]], [[1.0, -1.0]]])  # (members, b, outputs)
# >>> link = SOFTMAX
# >>> torch.allclose(link.predict(link.combine(z)), (link.predict(z[0]) + link.predict(z[1])) / 2)
# True


@dataclass(frozen=True)
class Link:
    """What outputs say.

    Args:
        predict: outputs (b, outputs, …) → predictions.
        combine: outputs (members, b, outputs, …) → those whose prediction is the mean of the members'.
    """

    predict: Callable[[Tensor], Tensor]
    combine: Callable[[Tensor], Tensor]


def _combine_softmax(z: Tensor) -> Tensor:
    # ln 1/n Σ_A softmax z_A
    return z.log_softmax(dim=2).logsumexp(dim=0) - math.log(len(z))


def _combine_sigmoid(z: Tensor) -> Tensor:
    # ln p/(1 − p), p = 1/n Σ_A σ(z_A) and 1 − σ(z) = σ(−z)
    return F.logsigmoid(z).logsumexp(dim=0) - F.logsigmoid(-z).logsumexp(dim=0)


SOFTMAX = Link(lambda z: z.softmax(dim=1), _combine_softmax)
SIGMOID = Link(lambda z: z.sigmoid(), _combine_sigmoid)
IDENTITY = Link(lambda z: z, lambda z: z.mean(dim=0))


# What a task is: targets, loss, metrics and the kind of head, for searches and trainings alike.
#
# A new one is one file with one subclass, and one yaml.

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
    """The metric that searches and trainings maximize."""

    @abstractmethod
    def targets(self, y: Tensor) -> Tensor:
        """What loaders give as the loss takes it; raises for what is none."""

    @abstractmethod
    def count(self, y: Tensor) -> int:
        """The outputs that these targets ask for."""

    @abstractmethod
    def loss(self, z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        """What training minimizes, the mean over the batch."""

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


# One class of several: what the data sets of architecture search ask for.


class MultiClass(Task):
    """Cross entropy and accuracy.

    Args:
        class_weights: what each class counts in the loss of training; None: as much as any other.
        label_smoothing: share of the target that is spread evenly over the classes, in training.
        score: what searches and trainings maximize.

    >>> task = MultiClass(class_weights=(1.0, 9.0))
    >>> float(task.loss(torch.zeros(2, 2), torch.tensor([0, 1])) / torch.tensor(2.0).log())
    1.0
    """

    name: ClassVar[str] = "multi_class"
    link = SOFTMAX
    least = 2
    of_classes = True

    @checked
    def __init__(
        self,
        *,
        class_weights: Sequence[PositiveFloat] | None = None,
        label_smoothing: Share = 0.0,
        score: str = "accuracy",
    ) -> None:
        self.class_weights = None if class_weights is None else tuple(class_weights)
        self.label_smoothing, self.score = label_smoothing, score

    def targets(self, y: Tensor) -> Tensor:
        return class_labels(y)

    def count(self, y: Tensor) -> int:
        return int(y.max()) + 1

    def check(self, y: Tensor, outputs: int, source: str) -> None:
        check_range(y, outputs, source)

    def loss(self, z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        smoothing = smoothing or self.label_smoothing
        return F.cross_entropy(z, y, weight=weights_of(self.class_weights, z), label_smoothing=smoothing)

    def evaluation_loss(self, z: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(z, y)

    def metrics(self, outputs: int) -> Mapping[str, Metric]:
        return {"accuracy": MulticlassAccuracy(outputs, average="micro", validate_args=False)}


MULTI_CLASS = MultiClass()


def task_of(module: Any) -> Task:
    """The task of a network, a supernet or data; classes where nobody has said another."""
    task = getattr(module, "task", None)
    return task if isinstance(task, Task) else MULTI_CLASS


def is_usual(task: Task) -> bool:
    """Whether nothing is said but that there are classes."""
    return type(task) is MultiClass and vars(task) == vars(MULTI_CLASS)


def check_classes(owner: Any, what: str) -> None:
    """Raise where something that needs classes meets another task."""
    task = task_of(owner)
    if not isinstance(task, MultiClass):
        raise InputError(f"expected task=multi_class, which {what}", got=task.name, where="task")


def weights_of(weights: Sequence[float] | None, z: Tensor) -> Tensor | None:
    """The weights of classes beside logits (b, classes, …)."""
    if weights is None:
        return None
    if len(weights) != z.shape[1]:
        raise InputError(f"expected {z.shape[1]} class_weights", got=len(weights), where="task.class_weights")
    return torch.tensor(weights, dtype=z.dtype, device=z.device)


# Yes or no, by one logit.


class Binary(Task):
    """Binary cross entropy, accuracy and the area under the ROC curve.

    Args:
        positive_weight: what an image of the class 1 counts in the loss of training, one of class 0 being 1.
        score: what searches and trainings maximize: `accuracy` or `auroc`.

    >>> task = Binary()
    >>> task.predictions(torch.zeros(2, 1)), task.targets(torch.tensor([[True], [False]]))
    (tensor([[0.5000],
            [0.5000]]), tensor([[1.],
            [0.]]))
    """

    name: ClassVar[str] = "binary"
    link = SIGMOID

    @checked
    def __init__(self, *, positive_weight: PositiveFloat = 1.0, score: str = "accuracy") -> None:
        self.positive_weight, self.score = positive_weight, score

    def targets(self, y: Tensor) -> Tensor:
        labels = class_labels(y) if y.dim() < 2 or y.shape[1] == 1 else y
        if labels.dim() != 1:
            raise InputError("expected labels 0 and 1, (b,) or (b, 1)", got=tuple(y.shape), where="a batch")
        check_range(labels, 2, "")
        return labels[:, None].float()

    def count(self, y: Tensor) -> int:
        return 1

    def loss(self, z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        y = y * (1 - smoothing) + smoothing / 2
        weight = torch.tensor(self.positive_weight, dtype=z.dtype, device=z.device)
        return F.binary_cross_entropy_with_logits(z, y.to(z), pos_weight=weight)

    def evaluation_loss(self, z: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(z, y.to(z))

    def metrics(self, outputs: int) -> Mapping[str, Metric]:
        if outputs != 1:
            raise InputError("expected one output", got=outputs, where="task=binary")
        return {"accuracy": OfLabels(BinaryAccuracy()), "auroc": OfLabels(BinaryAUROC(thresholds=200))}


# Any number of several labels, each with a logit of its own.


class MultiLabel(Task):
    """Binary cross entropy of each label, the mean; F₁ over all labels together, and accuracy.

    Args:
        threshold: the probability from which a label counts as said.
        score: what searches and trainings maximize: `f1` or `accuracy`.

    >>> import torch
    >>> MultiLabel().count(torch.tensor([[1.0, 0.0, 1.0]]))
    3
    """

    name: ClassVar[str] = "multi_label"
    link = SIGMOID

    @checked
    def __init__(self, *, threshold: Between0And1 = 0.5, score: str = "f1") -> None:
        self.threshold, self.score = threshold, score

    def targets(self, y: Tensor) -> Tensor:
        rows = as_rows(y)
        if not bool(((rows == 0) | (rows == 1)).all()):
            got = f"values from {float(rows.min()):g} to {float(rows.max()):g}"
            raise InputError("expected 0 or 1 for each label", got=got, where="a batch")
        return rows

    def count(self, y: Tensor) -> int:
        return y.shape[1]

    def check(self, y: Tensor, outputs: int, source: str) -> None:
        self.same_shape(y, outputs, source)

    def loss(self, z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        return F.binary_cross_entropy_with_logits(z, (y * (1 - smoothing) + smoothing / 2).to(z))

    def metrics(self, outputs: int) -> Mapping[str, Metric]:
        options: dict[str, Any] = {"threshold": self.threshold, "average": "micro", "validate_args": False}
        return {
            "f1": OfLabels(MultilabelF1Score(outputs, **options)),
            "accuracy": OfLabels(MultilabelAccuracy(outputs, **options)),
        }


# Numbers instead of classes.


class Regression(Task):
    """The mean squared error; the share of variance that is explained, and the mean absolute error.

    Args:
        score: what searches and trainings maximize.

    >>> task = Regression()
    >>> z, y = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[1.0], [2.0], [6.0]])
    >>> float(task.loss(z, y)), round(task.judge(z, y), 4)
    (3.0, 0.3571)
    """

    name: ClassVar[str] = "regression"

    @checked
    def __init__(self, *, score: str = "r2") -> None:
        self.score = score

    def targets(self, y: Tensor) -> Tensor:
        return as_rows(y)

    def count(self, y: Tensor) -> int:
        return y.shape[1]

    def check(self, y: Tensor, outputs: int, source: str) -> None:
        self.same_shape(y, outputs, source)

    def loss(self, z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        return F.mse_loss(z, y.to(z))

    def metrics(self, outputs: int) -> Mapping[str, Metric]:
        return {"r2": ExplainedShare(outputs), "mae": MeanDistance()}


class ExplainedShare(Metric):
    """R² = 1 − Σ (y − z)² / Σ (y − ȳ)², the mean over outputs: 0 for the best constant, 1 for the truth.

    Args:
        outputs: how many numbers there are.
    """

    full_state_update = False
    higher_is_better = True
    count: Tensor
    total: Tensor
    squares: Tensor
    errors: Tensor

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.add_state("count", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        for name in ("total", "squares", "errors"):
            self.add_state(name, torch.zeros(outputs, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, z: Tensor, y: Tensor) -> None:
        z, y = z.detach().double(), y.double()
        self.count += len(y)
        self.total += y.sum(dim=0)
        self.squares += y.square().sum(dim=0)
        self.errors += (y - z).square().sum(dim=0)

    def compute(self) -> Tensor:
        spread = self.squares - self.total.square() / self.count
        return (1 - self.errors / spread.clamp_min(1e-12)).mean().float()


class MeanDistance(Metric):
    """The mean of |y − z|."""

    full_state_update = False
    higher_is_better = False
    count: Tensor
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("count", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("total", torch.zeros(()), dist_reduce_fx="sum")

    def update(self, z: Tensor, y: Tensor) -> None:
        self.total += (z.detach().float() - y).abs().sum()
        self.count += y.numel()

    def compute(self) -> Tensor:
        return self.total / self.count


# A class for each pixel: the cells are the encoder, a plain decoder is the head.


class Segmentation(Task):
    """Cross entropy of the pixels; the mean over classes of intersection by union, and the pixels' accuracy.

    Args:
        class_weights: what a pixel of each class counts in the loss of training; None: as much as any other.
        ignore: the label of pixels that count nowhere; None: all count.
        score: what searches and trainings maximize: `iou` or `accuracy`.

    >>> import torch
    >>> Segmentation().targets(torch.ones(2, 1, 8, 8)).shape
    torch.Size([2, 8, 8])
    """

    name: ClassVar[str] = "segmentation"
    link = SOFTMAX
    dense = True
    least = 2
    of_classes = True

    @checked
    def __init__(
        self,
        *,
        class_weights: Sequence[PositiveFloat] | None = None,
        ignore: int | None = None,
        score: str = "iou",
    ) -> None:
        self.class_weights = None if class_weights is None else tuple(class_weights)
        self.ignore, self.score = ignore, score

    def targets(self, y: Tensor) -> Tensor:
        masks = y[:, 0] if y.dim() == 4 and y.shape[1] == 1 else y
        if masks.dim() != 3 or (masks.is_floating_point() and not bool((masks == masks.round()).all())):
            expected = "expected masks (b, h, w) of class labels"
            raise InputError(expected, got=f"{y.dtype} of shape {tuple(y.shape)}", where="a batch")
        return masks.long()

    def count(self, y: Tensor) -> int:
        """One more than the largest label; what can only be brightnesses is refused."""
        labels = self._counting(y).unique()
        if int(labels[-1]) == 255 and 2 * len(labels) < 255:
            expected = (
                "expected labels 0, 1, …: divide masks by 255, or task.ignore=255 where nothing is labeled"
            )
            raise InputError(expected, got=[*labels[:3].tolist()], where="a batch")
        return int(labels[-1]) + 1

    def check(self, y: Tensor, outputs: int, source: str) -> None:
        counting = self._counting(y)
        if counting.numel():
            check_range(counting, outputs, source)

    def loss(self, z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        weights = weights_of(self.class_weights, z)
        return F.cross_entropy(z, y, weights, ignore_index=self._ignore_index, label_smoothing=smoothing)

    def evaluation_loss(self, z: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(z, y, ignore_index=self._ignore_index)

    def metrics(self, outputs: int) -> Mapping[str, Metric]:
        options: dict[str, Any] = {"ignore_index": self.ignore, "validate_args": False}
        accuracy = MulticlassAccuracy(outputs, average="micro", **options)
        return {"iou": MulticlassJaccardIndex(outputs, **options), "accuracy": accuracy}

    @property
    def _ignore_index(self) -> int:
        return -100 if self.ignore is None else self.ignore

    def _counting(self, y: Tensor) -> Tensor:
        return y if self.ignore is None else y[y != self.ignore]


# A task of one's own: any loss, any metrics of torchmetrics.


class CustomTask(Task):
    """A loss of outputs (b, outputs) and targets, and metrics of the same.

    Args:
        loss: (outputs, targets) → the mean over the batch.
        metrics: by name, or a collection; each is copied wherever one is needed.
        score: which of them searches and trainings maximize.
        targets: what loaders give → what loss and metrics take; None: numbers (b, outputs) as floats.

    >>> import torch
    >>> from torchmetrics import PearsonCorrCoef
    >>> task = CustomTask(loss=torch.nn.HuberLoss(), metrics={"pearson": PearsonCorrCoef()}, score="pearson")
    >>> task.targets(torch.tensor([1, 2])).shape
    torch.Size([2, 1])
    """

    name: ClassVar[str] = "own"

    @checked
    def __init__(
        self,
        *,
        loss: Callable[[Tensor, Tensor], Tensor],
        metrics: Any,
        score: str,
        targets: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.measured = loss
        self.collection: dict[str, Metric] = dict(
            metrics.items() if isinstance(metrics, (Mapping, MetricCollection)) else {}
        )
        self.score, self.convert = score, targets or as_rows
        if score not in self.collection:
            expected = f"expected one of the metrics ({near_match(score, self.collection)})"
            raise InputError(expected, got=score, where="task.score")
        if self.collection[score].higher_is_better is False:
            got = type(self.collection[score]).__name__
            raise InputError("expected a metric of which more is better", got=got, where="task.score")

    def targets(self, y: Tensor) -> Tensor:
        return self.convert(y)

    def count(self, y: Tensor) -> int:
        return y.shape[1] if y.dim() > 1 else 1

    def loss(self, z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        if smoothing:
            raise InputError(
                "expected no label_smoothing with a loss of one's own", got=smoothing, where="task"
            )
        return self.measured(z, y)

    def metrics(self, outputs: int) -> Mapping[str, Metric]:
        return {name: metric.clone() for name, metric in self.collection.items()}
