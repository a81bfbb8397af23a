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
from torchmetrics import MeanAbsoluteError, Metric, MetricCollection
from torchmetrics.classification import (
    BinaryAccuracy,
    BinaryAUROC,
    MulticlassAccuracy,
    MulticlassJaccardIndex,
    MultilabelAccuracy,
    MultilabelF1Score,
)

from nas_lightning.data.labels import WHERE, check_range, class_labels
from nas_lightning.errors import InputError, near_match
from nas_lightning.spaces.decoder import make_dense
from nas_lightning.spaces.network import Backbone
from nas_lightning.utils.devices import widest_float
from nas_lightning.validation import Between0And1, PositiveFloat, Share, checked

# Links


@dataclass(frozen=True)
class Link:
    """The map from outputs to predictions.

    Args:
        predict: outputs (b, outputs, …) → predictions.
        combine: outputs (members, b, outputs, …) → outputs whose prediction is the mean of the members'.

    >>> z = torch.tensor([[[0.0, 2.0]], [[1.0, -1.0]]])  # (members, b, outputs)
    >>> mean = (SOFTMAX.predict(z[0]) + SOFTMAX.predict(z[1])) / 2
    >>> torch.allclose(SOFTMAX.predict(SOFTMAX.combine(z)), mean)
    True
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


# Metrics


class WithIntegerTargets(Metric):
    """Converts float targets 0 and 1, as losses need them, to the integers that a metric needs.

    Args:
        metric: the wrapped metric.

    >>> metric = WithIntegerTargets(BinaryAccuracy())
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


# The contract of tasks

Module = TypeVar("Module", bound=nn.Module)


class Task(ABC):
    """Targets, loss, metrics, and head for outputs (b, outputs), or (b, outputs, h, w) of dense tasks.

    `fit` prepares a supernet or network for the task; strategies and trainings read its attribute `task`. A
    new task is a subclass and a yaml.

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
    """The smallest number of outputs."""
    of_classes: ClassVar[bool] = False
    """Whether the data's number of classes is the number of outputs."""
    link: ClassVar[Link] = IDENTITY
    """From outputs to predictions."""
    score: str
    """The metric that searches and trainings maximize."""

    @abstractmethod
    def targets(self, y: Tensor) -> Tensor:
        """Convert a loader's targets for the loss; raise for invalid ones."""

    @abstractmethod
    def count(self, y: Tensor) -> int:
        """Return the number of outputs that these targets need."""

    @abstractmethod
    def loss(self, z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return the training loss, the mean over the batch."""

    @abstractmethod
    def metrics(self, outputs: int) -> Mapping[str, Metric]:
        """Return the metrics of `predictions` and targets to log."""

    def evaluation_loss(self, z: Tensor, y: Tensor) -> Tensor:
        """Return the reported loss, the mean over the batch."""
        return self.loss(z, y)

    def predictions(self, z: Tensor) -> Tensor:
        """Return predictions: probabilities or numbers."""
        return self.link.predict(z)

    def check(self, y: Tensor, outputs: int, source: str) -> None:  # noqa: B027
        """Raise for targets that do not fit the outputs; `source` tells the origin of their number."""

    def fit(self, module: Module) -> Module:
        """Give a supernet or network the head of the task, and the attribute `task`; return it."""
        fitted: Any = module
        if self.dense:
            if not isinstance(getattr(fitted, "backbone", None), Backbone):
                expected = f"task={self.name} needs a space of cells, whose feature maps it decodes"
                raise InputError(expected, got=type(module).__name__, where="task")
            make_dense(fitted)
        fitted.task = self
        return module

    def judge(self, z: Tensor, y: Tensor) -> float:
        """Return the score of outputs on a whole data set."""
        metric = self.metrics(z.shape[1])[self.score].to(z.device)
        metric.update(self.predictions(z), y)
        return float(metric.compute())

    def same_shape(self, y: Tensor, outputs: int, source: str) -> None:
        """Raise unless targets are (b, outputs)."""
        if y.dim() != 2 or y.shape[1] != outputs:
            expected = f"Targets must have shape (b, {outputs}) for {outputs} outputs{source}"
            raise InputError(expected, got=tuple(y.shape), where=WHERE)


def link_of(name: str) -> Link:
    """Return the link of the task of that name; the identity for unknown tasks.

    >>> link_of("regression") is link_of("unknown")
    True
    """
    return next((kind.link for kind in _subclasses(Task) if getattr(kind, "name", None) == name), IDENTITY)


def _subclasses(kind: Any) -> Iterator[type[Task]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def as_rows(y: Tensor) -> Tensor:
    """Convert numbers (b,) or (b, k) to floats (b, k)."""
    if y.is_complex() or y.dim() not in (1, 2):
        raise InputError(
            "Targets must be numbers of shape (b,) or (b, outputs)", got=tuple(y.shape), where=WHERE
        )
    if not bool(torch.isfinite(y).all()):
        raise InputError("Targets must be finite", got="NaN or infinity", where=WHERE)
    return (y[:, None] if y.dim() == 1 else y).float()


# Classification


class MultiClass(Task):
    """One of several classes: cross entropy and accuracy.

    Args:
        class_weights: weight of each class in the training loss; None: 1.
        label_smoothing: fraction of the target that is spread evenly over the classes, in training.
        score: the metric that searches and trainings maximize.

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
    """Return the task of a network, a supernet, or data; classification by default."""
    task = getattr(module, "task", None)
    return task if isinstance(task, Task) else MULTI_CLASS


def is_usual(task: Task) -> bool:
    """Return whether it is classification with the default options."""
    return type(task) is MultiClass and vars(task) == vars(MULTI_CLASS)


def check_classes(owner: Any, what: str) -> None:
    """Raise if the task is not classification; `what` is the reason."""
    task = task_of(owner)
    if not isinstance(task, MultiClass):
        raise InputError(f"This needs task=multi_class, which {what}", got=task.name, where="task")


def weights_of(weights: Sequence[float] | None, z: Tensor) -> Tensor | None:
    """Return the weights of classes like logits z (b, classes, …)."""
    if weights is None:
        return None
    if len(weights) != z.shape[1]:
        raise InputError(
            f"There must be {z.shape[1]} class weights", got=len(weights), where="task.class_weights"
        )
    return torch.tensor(weights, dtype=z.dtype, device=z.device)


class Binary(Task):
    """Two classes with one logit: binary cross entropy, accuracy, and the area under the ROC curve.

    Args:
        positive_weight: weight of class 1 in the training loss, relative to class 0.
        score: the metric that searches and trainings maximize: `accuracy` or `auroc`.

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
            raise InputError(
                "Labels must be 0 or 1, of shape (b,) or (b, 1)", got=tuple(y.shape), where=WHERE
            )
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
            raise InputError("The network must have one output", got=outputs, where="task=binary")
        return {
            "accuracy": WithIntegerTargets(BinaryAccuracy()),
            "auroc": WithIntegerTargets(BinaryAUROC(thresholds=200)),
        }


class MultiLabel(Task):
    """Several labels with a logit each: mean binary cross entropy, F₁ over all labels, and accuracy.

    Args:
        threshold: the probability from which a label is predicted.
        score: the metric that searches and trainings maximize: `f1` or `accuracy`.

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
            raise InputError("Each label must be 0 or 1", got=got, where=WHERE)
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
            "f1": WithIntegerTargets(MultilabelF1Score(outputs, **options)),
            "accuracy": WithIntegerTargets(MultilabelAccuracy(outputs, **options)),
        }


# Regression


class Regression(Task):
    """Numbers: mean squared error, explained variance, and mean absolute error.

    Args:
        score: the metric that searches and trainings maximize: `r2` or `mae`.

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
        return {"r2": R2(outputs), "mae": MeanAbsoluteError()}


class R2(Metric):
    """R² = 1 − Σ (y − z)² / Σ (y − ȳ)², the mean over outputs, summed in float64 (float32 on MPS).

    Args:
        outputs: number of outputs.
    """

    full_state_update = False
    higher_is_better = True
    count: Tensor
    total: Tensor
    squares: Tensor
    errors: Tensor

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.add_state("count", torch.zeros(()), dist_reduce_fx="sum")
        for name in ("total", "squares", "errors"):
            self.add_state(name, torch.zeros(outputs), dist_reduce_fx="sum")

    def update(self, z: Tensor, y: Tensor) -> None:
        wide = widest_float(z.device)
        z, y = z.detach().to(wide), y.to(wide)
        self.count = self.count.to(wide) + len(y)
        self.total = self.total.to(wide) + y.sum(dim=0)
        self.squares = self.squares.to(wide) + y.square().sum(dim=0)
        self.errors = self.errors.to(wide) + (y - z).square().sum(dim=0)

    def compute(self) -> Tensor:
        spread = self.squares - self.total.square() / self.count
        return (1 - self.errors / spread.clamp_min(1e-12)).mean().float()


# Segmentation


class Segmentation(Task):
    """A class per pixel: cross entropy, mean intersection over union, and pixel accuracy.

    The cells are the encoder, and the head is a `Decoder`.

    Args:
        class_weights: weight of the pixels of each class in the training loss; None: 1.
        ignore: the label of pixels to ignore; None: there is none.
        score: the metric that searches and trainings maximize: `iou` or `accuracy`.

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
            expected = "Masks must be class labels of shape (b, h, w)"
            raise InputError(expected, got=f"{y.dtype} of shape {tuple(y.shape)}", where=WHERE)
        return masks.long()

    def count(self, y: Tensor) -> int:
        """Return one more than the largest label; refuse masks that are probably brightnesses."""
        labels = self._counting(y).unique()
        if int(labels[-1]) == 255 and 2 * len(labels) < 255:
            expected = (
                "Labels must be 0, 1, …: divide masks by 255, or set task.ignore=255 for unlabeled pixels"
            )
            raise InputError(expected, got=[*labels[:3].tolist()], where=WHERE)
        return int(labels[-1]) + 1

    def check(self, y: Tensor, outputs: int, source: str) -> None:
        counting = self._counting(y)
        if counting.numel():
            check_range(counting, outputs, source)

    def loss(self, z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        z, y = _pixels(z, y)
        weights = weights_of(self.class_weights, z)
        return F.cross_entropy(z, y, weights, ignore_index=self._ignore_index, label_smoothing=smoothing)

    def evaluation_loss(self, z: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(*_pixels(z, y), ignore_index=self._ignore_index)

    def metrics(self, outputs: int) -> Mapping[str, Metric]:
        options: dict[str, Any] = {"ignore_index": self.ignore, "validate_args": False}
        accuracy = MulticlassAccuracy(outputs, average="micro", **options)
        return {"iou": MulticlassJaccardIndex(outputs, **options), "accuracy": accuracy}

    @property
    def _ignore_index(self) -> int:
        return -100 if self.ignore is None else self.ignore

    def _counting(self, y: Tensor) -> Tensor:
        return y if self.ignore is None else y[y != self.ignore]


def _pixels(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return outputs and labels as rows if kernels must be deterministic, since CUDA has none for maps."""
    if not torch.are_deterministic_algorithms_enabled():
        return z, y
    return z.movedim(1, -1).flatten(0, -2), y.flatten()


# Custom tasks


class CustomTask(Task):
    """The user's loss and metrics of outputs (b, outputs) and targets.

    Args:
        loss: (outputs, targets) → the mean over the batch.
        metrics: torchmetrics by name, or a `MetricCollection`; copied when used.
        score: the metric that searches and trainings maximize.
        targets: converts a loader's targets for loss and metrics; None: numbers (b, outputs) as floats.

    >>> from torchmetrics import PearsonCorrCoef
    >>> task = CustomTask(loss=torch.nn.HuberLoss(), metrics={"pearson": PearsonCorrCoef()}, score="pearson")
    >>> task.targets(torch.tensor([1, 2])).shape
    torch.Size([2, 1])
    """

    name: ClassVar[str] = "custom"

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
            expected = f"`score` must be one of the metrics ({near_match(score, self.collection)})"
            raise InputError(expected, got=score, where="task.score")
        if self.collection[score].higher_is_better is False:
            got = type(self.collection[score]).__name__
            raise InputError(
                "`score` must be a metric for which higher is better", got=got, where="task.score"
            )

    def targets(self, y: Tensor) -> Tensor:
        return self.convert(y)

    def count(self, y: Tensor) -> int:
        return y.shape[1] if y.dim() > 1 else 1

    def loss(self, z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        if smoothing:
            raise InputError("`label_smoothing` must be 0 with a custom loss", got=smoothing, where="task")
        return self.measured(z, y)

    def metrics(self, outputs: int) -> Mapping[str, Metric]:
        return {name: metric.clone() for name, metric in self.collection.items()}
