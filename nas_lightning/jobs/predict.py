"""Images predicted by a trained network: a CSV file of all rows, and a page that shows where it is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch

from nas_lightning.files import write_whole
from nas_lightning.predictions.findings import findings_of, table_of
from nas_lightning.predictions.latency import milliseconds
from nas_lightning.predictions.pictures import list_pictures
from nas_lightning.predictions.predictor import Predictions, Predictor
from nas_lightning.runs.findings import Findings

CSV = "predictions.csv"
_BATCHES = (1, 64)  # whose latency is measured


class Outcome(NamedTuple):
    """What predicting images ends in.

    Args:
        predictions: a row an image.
        findings: how right they are, where classes are known.
        latency: milliseconds of a batch, by its size.
        csv: the file of all rows.
        page: shows them.
    """

    predictions: Predictions
    findings: Findings
    latency: dict[int, float]
    csv: Path
    page: Path


def predict(
    run: str | Path,
    images: str | Path,
    out: str | Path,
    *,
    batch: int = 64,
    device: str = "cpu",
    **loading: Any,
) -> Outcome:
    """Predict all images below a folder, and write `predictions.csv` and `predictions.html`.

    Args:
        run: the folder of a training or of an ensemble, or a model's file.
        images: a folder, a tar file or one image; folders that are named like classes say what is right.
        out: where the files go.
        batch: images at a time.
        device: where the network computes.
        **loading: see `nas_lightning.load`, such as `runtime="onnx"`.
    """
    from nas_lightning.report.predictions import PAGE, predictions_page  # and with it matplotlib

    pictures, out = list_pictures(images), Path(out)
    predictor = Predictor(run, device, **loading)
    predictions = predictor.predict(pictures, batch)
    findings = findings_of(predictions)
    latency = {size: milliseconds(predictor, torch.rand(size, *predictor.about.image)) for size in _BATCHES}
    csv = write_whole(out / CSV, table_of(predictions).csv())
    findings.write(out)
    title = f"{Path(run).resolve().name} on {Path(images).resolve().name}"
    page = predictions_page(title, predictions, findings, latency, [picture.file for picture in pictures])
    return Outcome(predictions, findings, latency, csv, write_whole(out / PAGE, page))
