"""Predict images with a trained network; write a CSV file and a page that shows the errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nas_lightning.data import ExternalData, ImageData
from nas_lightning.data.files import decode
from nas_lightning.data.loaders import Samples
from nas_lightning.data.order import BatchRows
from nas_lightning.errors import InputError
from nas_lightning.models.prediction import (
    CSV,
    PAGE,
    TEST,
    Masks,
    Predictions,
    Predictor,
    findings_of,
    findings_of_masks,
    list_pictures,
    mask_name,
    predict_masks,
    table_of,
    table_of_masks,
    write_mask,
)
from nas_lightning.objectives.latency import medians, time_in_turn
from nas_lightning.runs.facts import Findings
from nas_lightning.utils.files import hold, write_whole
from nas_lightning.utils.progress import follow

_BATCHES, _ROUNDS = (1, 64), 10  # batch sizes and repetitions of the latency measurement


class Outcome(NamedTuple):
    """The results of predicting images.

    Args:
        predictions: the predictions, one row per image.
        findings: scores, if labels are known.
        latency: milliseconds per batch, by its size; empty if not measured.
        csv: the file with all rows.
        page: the HTML page.
    """

    predictions: Predictions | Masks
    findings: Findings
    latency: Mapping[int, float]
    csv: Path
    page: Path


def predict(
    run: str | Path,
    images: str | Path,
    out: str | Path,
    *,
    masks: str | Path | None = None,
    batch: int = 64,
    device: str = "cpu",
    **loading: Any,
) -> Outcome:
    """Predict all images below a folder, and write `predictions.csv` and `predictions.html`.

    Args:
        run: the folder of a training or of an ensemble, or a model's file.
        images: a folder, a tar file, or one image; subfolders with the names of classes are labels.
        out: the output folder.
        masks: for a segmentation network, a folder of ground-truth masks with the names of the images.
        batch: batch size.
        device: device of the network.
        **loading: arguments of `nas_lightning.load`, such as `runtime="onnx"`.
    """
    pictures = list_pictures(images)
    predictor = Predictor(run, device, **loading)
    if masks is not None and not predictor.about.dense:
        expected = "`masks` needs a segmentation network"
        raise InputError(expected, got=f"task={predictor.about.task}", where=run)
    title = f"{Path(run).resolve().name} on {Path(images).resolve().name}"
    Path(out).mkdir(parents=True, exist_ok=True)
    with hold(Path(out)):  # two processes must not mix their files
        latency = _latency(predictor)
        if predictor.about.dense:
            found = predict_masks(predictor, pictures, None if masks is None else Path(masks), batch)
            return write_masks(out, title, found, lambda row: decode(pictures[row].file), latency)
        predictions = predictor.predict(pictures, batch)
        return write_outcome(out, title, predictions, lambda row: decode(pictures[row].file), latency)


def _latency(predictor: Predictor) -> dict[int, float]:
    """Measure the milliseconds per batch, by its size."""
    pixels = [torch.rand(size, *predictor.about.image) for size in _BATCHES]
    times = time_in_turn([partial(predictor, x) for x in pixels], _ROUNDS)
    return dict(zip(_BATCHES, medians(times)[0].tolist(), strict=True))


def write_masks(
    out: str | Path,
    title: str,
    found: Masks,
    picture: Callable[[int], Image.Image],
    latency: Mapping[int, float],
) -> Outcome:
    """Write a PNG of each mask, the table of all images, and the page."""
    from nas_lightning.report.predictions import masks_page  # imports matplotlib

    out = Path(out)
    for row, mask in follow([*found.masks.items()], "masks"):
        write_mask(out / mask_name(row, found.names[row]), mask)
    findings = findings_of_masks(found)
    csv = write_whole(out / CSV, table_of_masks(found).csv())
    findings.write(out)
    page = write_whole(out / PAGE, masks_page(title, found, findings, latency, picture))
    return Outcome(found, findings, latency, csv, page)


def describe_test(run: Path, data: ImageData | ExternalData, probabilities: Tensor, truth: Tensor) -> Outcome:
    """Write the predictions of the test images to `predictions/test` of a training.

    Names and pictures are included if the predictions are of the first test images in order.

    Args:
        run: the folder of the training.
        data: the data set.
        probabilities: predicted probabilities, of shape (n, classes).
        truth: labels, of shape (n,).
    """
    samples = data.test if isinstance(data, ImageData) else None
    if samples is not None and not torch.equal(samples.labels[: len(truth)], truth):
        samples = None
    names = tuple(f"image {row}" if samples is None else samples.name(row) for row in range(len(truth)))
    predictions = Predictions(names, data.classes, probabilities, truth)
    picture = None if samples is None else partial(picture_of, samples)
    return write_outcome(run / TEST, f"Test images of {data.name}", predictions, picture)


def picture_of(samples: Samples, row: int) -> Image.Image:
    """Return an image as evaluated: three channels in color, otherwise the first channel in gray."""
    ((pixels, _),) = samples.read([BatchRows(torch.tensor([row]))], random=False)
    array = np.ascontiguousarray(pixels[0].permute(1, 2, 0).numpy())
    return Image.fromarray(array if array.shape[-1] == 3 else array[..., 0])


def write_outcome(
    out: str | Path,
    title: str,
    predictions: Predictions,
    picture: Callable[[int], Image.Image] | None,
    latency: Mapping[int, float] | None = None,
) -> Outcome:
    """Write the table of all rows, tables and figures, and the page.

    Args:
        out: the output folder.
        title: title of the page.
        predictions: the predictions.
        picture: row → its image; None: without pictures.
        latency: milliseconds per batch, by its size.
    """
    from nas_lightning.report.predictions import predictions_page  # imports matplotlib

    out, latency = Path(out), latency or {}
    findings = findings_of(predictions)
    csv = write_whole(out / CSV, table_of(predictions).csv())
    findings.write(out)
    page = predictions_page(title, predictions, findings, latency, picture)
    return Outcome(predictions, findings, latency, csv, write_whole(out / PAGE, page))
