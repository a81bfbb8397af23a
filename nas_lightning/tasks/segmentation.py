"""A class for each pixel: the cells are the encoder, a plain decoder is the head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MulticlassJaccardIndex

from nas_lightning.checks import PositiveFloat, checked
from nas_lightning.data.labels import check_range
from nas_lightning.errors import InputError
from nas_lightning.tasks.base import Task
from nas_lightning.tasks.links import SOFTMAX
from nas_lightning.tasks.multi_class import weights_of


class Segmentation(Task):
    """Cross entropy of the pixels; the mean over classes of intersection by union, and the pixels' accuracy.

    Args:
        class_weights: what a pixel of each class counts in the loss of training; None: as much as any other.
        ignore: the label of pixels that count nowhere; None: all count.
        score: what searches and trainings maximise: `iou` or `accuracy`.

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
                "expected labels 0, 1, …: divide masks by 255, or task.ignore=255 where nothing is labelled"
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
