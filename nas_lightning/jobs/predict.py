"""Images predicted by a trained network: a CSV file of all rows, and a page that shows where it is wrong."""

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

_BATCHES, _ROUNDS = (1, 64), 10  # whose latency is measured


class Outcome(NamedTuple):
    """What predicting images ends in.

    Args:
        predictions: a row an image.
        findings: how right they are, where classes are known.
        latency: milliseconds of a batch, by its size; empty where it was not measured.
        csv: the file of all rows.
        page: shows them.
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
        images: a folder, a tar file or one image; folders that are named like classes say what is right.
        out: where the files go.
        masks: for a network of segmentation, a folder of true masks under the images' names.
        batch: images at a time.
        device: where the network computes.
        **loading: see `nas_lightning.load`, such as `runtime="onnx"`.
    """
    pictures = list_pictures(images)
    predictor = Predictor(run, device, **loading)
    if masks is not None and not predictor.about.dense:
        expected = "expected a network of segmentation beside true masks"
        raise InputError(expected, got=f"task={predictor.about.task}", where=run)
    title = f"{Path(run).resolve().name} on {Path(images).resolve().name}"
    Path(out).mkdir(parents=True, exist_ok=True)
    with hold(Path(out)):  # all of its files are of one run and the same images
        latency = _latency(predictor)
        if predictor.about.dense:
            found = predict_masks(predictor, pictures, None if masks is None else Path(masks), batch)
            return write_masks(out, title, found, lambda row: decode(pictures[row].file), latency)
        predictions = predictor.predict(pictures, batch)
        return write_outcome(out, title, predictions, lambda row: decode(pictures[row].file), latency)


def _latency(predictor: Predictor) -> dict[int, float]:
    """Milliseconds of a batch, by its size."""
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
    from nas_lightning.report.predictions import masks_page  # and with it matplotlib

    out = Path(out)
    for row, mask in follow([*found.masks.items()], "masks"):
        write_mask(out / mask_name(row, found.names[row]), mask)
    findings = findings_of_masks(found)
    csv = write_whole(out / CSV, table_of_masks(found).csv())
    findings.write(out)
    page = write_whole(out / PAGE, masks_page(title, found, findings, latency, picture))
    return Outcome(found, findings, latency, csv, page)


def describe_test(run: Path, data: ImageData | ExternalData, probabilities: Tensor, truth: Tensor) -> Outcome:
    """What a training's test came to, image by image, in `predictions/test` of its run.

    Args:
        run: the folder of the training.
        data: whose test images they are; names and pictures are shown where these are the first, in order.
        probabilities: (n, classes).
        truth: (n,).
    """
    samples = data.test if isinstance(data, ImageData) else None
    if samples is not None and not torch.equal(samples.labels[: len(truth)], truth):
        samples = None
    names = tuple(f"image {row}" if samples is None else samples.name(row) for row in range(len(truth)))
    predictions = Predictions(names, data.classes, probabilities, truth)
    picture = None if samples is None else partial(picture_of, samples)
    return write_outcome(run / TEST, f"Test images of {data.name}", predictions, picture)


def picture_of(samples: Samples, row: int) -> Image.Image:
    """An image as it was evaluated: in color where there are three channels, else the first one in gray."""
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
    """Write the table of all rows, tables and figures, and the page; `picture` gives the image of a row."""
    from nas_lightning.report.predictions import predictions_page  # and with it matplotlib

    out, latency = Path(out), latency or {}
    findings = findings_of(predictions)
    csv = write_whole(out / CSV, table_of(predictions).csv())
    findings.write(out)
    page = predictions_page(title, predictions, findings, latency, picture)
    return Outcome(predictions, findings, latency, csv, write_whole(out / PAGE, page))
