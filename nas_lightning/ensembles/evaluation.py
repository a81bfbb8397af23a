"""What an ensemble is worth: its error, its calibration, and how its members differ.

Every function takes the members' class probabilities, (members, images, classes), and the labels, (images,);
the ensemble predicts their mean (Shu 2022, thesis, sections 5.2 and 5.4.4).

>>> probabilities = torch.tensor([[[0.9, 0.1], [0.6, 0.4]], [[0.4, 0.6], [0.1, 0.9]]])
>>> labels = torch.tensor([0, 1])
>>> member_errors(probabilities, labels), ensemble_error(probabilities, labels)
(tensor([0.5000, 0.5000]), tensor(0.))
>>> disagreement(probabilities), oracle_error(probabilities, labels)
(tensor(1.), tensor(0.))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics.functional.classification import multiclass_calibration_error

from nas_lightning.data.augment import normalise
from nas_lightning.data.base import ImageData
from nas_lightning.data.evaluation import EvalLoader
from nas_lightning.data.order import evaluation_rows
from nas_lightning.data.own import OwnData
from nas_lightning.data.samples import Samples
from nas_lightning.ensembles.ensemble import Ensemble
from nas_lightning.ensembles.forward_selection import averaged_loss
from nas_lightning.errors import InputError
from nas_lightning.progress import follow

Batch = tuple[Tensor, Tensor]
BINS = 15  # of the calibration error, as in Guo et al. 2017


def member_errors(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The share of images that each member gets wrong: (members,). Their mean is the ATE."""
    return (probabilities.argmax(dim=-1) != labels).to(torch.get_default_dtype()).mean(dim=1)


def ensemble_error(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The share of images that the averaged prediction gets wrong: ()."""
    return member_errors(probabilities.mean(dim=0, keepdim=True), labels)[0]


def oracle_error(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The share of images that every member gets wrong, a bound for choosing a member per image: ()."""
    wrong = probabilities.argmax(dim=-1) != labels
    return wrong.all(dim=0).to(torch.get_default_dtype()).mean()


def disagreement(probabilities: Tensor) -> Tensor:
    """The PPD: the share of images on which two members predict different classes, mean over pairs: ().

    Fort et al. 2019 (arXiv:1912.02757), not divided by the error. A single member agrees with itself.
    """
    predicted = probabilities.argmax(dim=-1)  # (members, images)
    pairs = [(a != b).to(torch.get_default_dtype()).mean() for a, b in combinations(predicted, 2)]
    return torch.stack(pairs).mean() if pairs else torch.zeros(())


def brier_score(probabilities: Tensor, labels: Tensor) -> Tensor:
    """1/m Σ_x Σ_c (p_c(x) − [c = y])² of the averaged prediction (Brier 1950), from 0 to 2: ()."""
    mean = probabilities.mean(dim=0)
    return (mean - F.one_hot(labels, mean.shape[1])).square().sum(dim=1).mean()


def calibration_error(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The expected calibration error of the averaged prediction (Guo et al. 2017, arXiv:1706.04599): ().

    Σ_b |B_b|/m |accuracy(B_b) − confidence(B_b)| over 15 bins of equal width.
    """
    mean = probabilities.mean(dim=0)
    return multiclass_calibration_error(mean, labels, mean.shape[1], n_bins=BINS, norm="l1")


@dataclass(frozen=True)
class Quality:
    """How good a prediction is.

    Args:
        error: the share of wrong predictions.
        nll: −ln p of the true class, the mean.
        brier: Σ_k (p_k − y_k)², the mean.
        calibration_error: the mean distance of confidence and accuracy.

    >>> Quality.of(torch.tensor([[[0.75, 0.25], [0.5, 0.5]]]), torch.tensor([0, 0])).brier
    0.3125
    """

    error: float
    nll: float
    brier: float
    calibration_error: float

    @classmethod
    def of(cls, probabilities: Tensor, labels: Tensor) -> Quality:
        """Of the averaged prediction of some members."""
        measures = (ensemble_error, averaged_loss, brier_score, calibration_error)
        return cls(*(float(measure(probabilities, labels)) for measure in measures))


@dataclass(frozen=True)
class Evaluation:
    """What an ensemble is worth on some images.

    Args:
        probabilities: of the members, (members, images, classes).
        labels: (images,).
    """

    probabilities: Tensor
    labels: Tensor

    @property
    def members(self) -> list[Quality]:
        """Each member alone."""
        return [Quality.of(alone[None], self.labels) for alone in self.probabilities]

    @property
    def ensemble(self) -> Quality:
        """All together."""
        return Quality.of(self.probabilities, self.labels)

    def numbers(self) -> Mapping[str, float]:
        """The ensemble's numbers, and those that compare its members, by name."""
        errors = member_errors(self.probabilities, self.labels)
        return {
            **vars(self.ensemble),
            "ate": float(errors.mean()),
            "best_member_error": float(errors.min()),
            "ppd": float(disagreement(self.probabilities)),
            "oracle_error": float(oracle_error(self.probabilities, self.labels)),
        }


def every_test_batch(data: ImageData | OwnData) -> list[Batch]:
    """All test images of a data set, normalised, on whichever process this is."""
    if isinstance(data, OwnData):
        return data.every_batch("test")
    return _batches(data, data.test, data.mean, data.std)


def every_held_out_batch(data: ImageData | OwnData) -> list[Batch]:
    """All training images that are held out, normalised, on whichever process this is."""
    check_held_out(data)
    if isinstance(data, OwnData):
        return data.every_batch("valid")
    loader = data.val_dataloader()
    assert isinstance(loader, EvalLoader)
    return _batches(data, loader.samples, data.mean, data.std)


def check_held_out(data: ImageData | OwnData) -> None:
    """Raise where no training images are held out."""
    if isinstance(data, OwnData):
        data.every_batch("valid")
    elif not data.val_fraction:
        raise InputError(
            "expected held-out images to select members on, such as dataset.val_fraction=0.1",
            got=data.val_fraction,
            where="dataset.val_fraction",
        )


def pixel_batches(data: ImageData, images: int | None = None) -> list[Batch]:
    """The first test images with values from 0 to 1, None: all."""
    first = data.test if images is None else data.test.select(torch.arange(min(images, len(data.test))))
    channels = data.image[0]
    return _batches(data, first, (0.0,) * channels, (1.0,) * channels)


def _batches(
    data: ImageData, samples: Samples, mean: tuple[float, ...], std: tuple[float, ...]
) -> list[Batch]:
    draws = evaluation_rows(len(samples), data.eval_batch_size, 0, 1)
    return [(normalise(x, mean, std), y) for x, y in samples.read(draws, random=False)]


def check_images(ensemble: Ensemble, data: ImageData | OwnData) -> None:
    """Raise unless the images are those that the members take."""
    description = ensemble.descriptions[0]
    for what in ("image", "classes", "mean", "std"):
        if getattr(description, what) != tuple(getattr(data, what)):
            raise InputError(
                f"expected images as the members were trained on, with {what} {getattr(description, what)}",
                got=getattr(data, what),
                where="dataset",
            )


@torch.no_grad()
def evaluate(ensemble: Ensemble, batches: Iterable[Batch]) -> Evaluation:
    """Let the ensemble predict all images of (x, y) batches, as they come to its members, in eval mode."""
    parameter = next(ensemble.parameters())
    was_training = ensemble.training
    ensemble.eval()
    found = [
        (ensemble.member_probabilities(x.to(parameter)).double().cpu(), y.cpu())
        for x, y in follow(batches, "batches")
    ]
    ensemble.train(was_training)
    if not found:
        raise InputError("expected at least one batch", got="none")
    probabilities, labels = zip(*found, strict=True)
    return Evaluation(torch.cat(probabilities, dim=1), torch.cat(labels))
