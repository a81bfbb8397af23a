"""How right predictions are, class by class.

With N_ab the number of images of class a that were taken for class b (the confusion matrix):

    precision_c = N_cc / Σ_a N_ac,   recall_c = N_cc / Σ_b N_cb,   F1_c = 2 N_cc / (Σ_a N_ac + Σ_b N_cb)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from nas_lightning.ensembles.evaluation import BINS, calibration_error
from nas_lightning.predictions.predictor import Predictions
from nas_lightning.tables import Entry, Table

MOST_PAIRS = 10
_MEASURES = ("precision", "recall", "F1")


class ClassScores(NamedTuple):
    """Precision, recall, F1 and the number of images of each class: (k,) each; 0 where there is no image.

    Args:
        precision: the share of images that are of the class, of those taken for it.
        recall: the share of images that were taken for the class, of those of it.
        f1: the harmonic mean of both.
        support: the images of the class.

    >>> ClassScores.of(torch.tensor([[3, 1], [0, 4]])).recall
    tensor([0.7500, 1.0000])
    """

    precision: Tensor
    recall: Tensor
    f1: Tensor
    support: Tensor

    @classmethod
    def of(cls, confusion: Tensor) -> ClassScores:
        """Of a confusion matrix, (true, predicted): (k, k)."""
        right, support, taken = confusion.diagonal(), confusion.sum(dim=1), confusion.sum(dim=0)
        return cls(
            right / taken.clamp(min=1), right / support.clamp(min=1),
            2 * right / (taken + support).clamp(min=1), support,
        )  # fmt: skip


def confusion_matrix(predictions: Predictions) -> Tensor:
    """How many images of each class were taken for each: (true, predicted), (k, k)."""
    judged, size = predictions.judged, len(predictions.classes)
    places = predictions.truth[judged] * size + predictions.predicted[judged]
    return torch.bincount(places, minlength=size**2).view(size, size)


def calibration_of(predictions: Predictions) -> float:
    """The expected calibration error over the images whose class is known."""
    judged = predictions.judged
    return float(calibration_error(predictions.outputs[judged][None], predictions.truth[judged]))


def reliability(predictions: Predictions) -> list[tuple[float, float, int]]:
    """(mean confidence, accuracy, images) of each bin of confidence that has images."""
    judged = predictions.judged
    confidence = predictions.confidence[judged]
    right = (predictions.predicted == predictions.truth)[judged].double()
    bins = (confidence * BINS).ceil().clamp(1, BINS)
    inside = [bins == number for number in range(1, BINS + 1)]
    return [(float(confidence[b].mean()), float(right[b].mean()), int(b.sum())) for b in inside if b.any()]


def mistakes(predictions: Predictions, most: int) -> list[int]:
    """The rows of wrong predictions, the most confident first."""
    wrong = predictions.judged & (predictions.predicted != predictions.truth)
    confidence = predictions.confidence.where(wrong, -torch.inf)
    return confidence.sort(descending=True, stable=True).indices[: min(most, int(wrong.sum()))].tolist()


def confused_pairs(confusion: Tensor, most: int = MOST_PAIRS) -> list[tuple[int, int]]:
    """(true, predicted) of the most frequent confusions, the most frequent first."""
    wrong = confusion - confusion.diagonal().diag()
    order = wrong.flatten().sort(descending=True, stable=True).indices[:most].tolist()
    pairs = [divmod(place, len(confusion)) for place in order]
    return [(true, predicted) for true, predicted in pairs if wrong[true, predicted]]


def class_tables(predictions: Predictions) -> list[Table]:
    """Per class, the confusion matrix, and the pairs that are confused most."""
    confusion, classes = confusion_matrix(predictions), predictions.classes
    scores, images = ClassScores.of(confusion), int(confusion.sum())
    rows: list[list[Entry]] = [
        [name, *values[:-1], int(values[-1])]
        for name, *values in zip(classes, *(column.tolist() for column in scores), strict=True)
    ]
    present = scores.support > 0
    rows.append(["mean of the classes", *(float(column[present].mean()) for column in scores[:3]), images])
    pairs: list[list[Entry]] = [
        [classes[a], classes[b], int(confusion[a, b]), float(confusion[a, b] / confusion[a].sum())]
        for a, b in confused_pairs(confusion)
    ]
    return [
        Table("classes", f"{images:,} images by their class", ["class", *_MEASURES, "images"], rows),
        Table("confused", "What is confused most", ["class", "taken for", "images", "of the class"], pairs),
        Table(
            "confusion", "Images of a class (row) that were taken for another (column)", ["class", *classes],
            [[name, *row] for name, row in zip(classes, confusion.tolist(), strict=True)], long=True,
        ),
    ]  # fmt: skip
