"""What is written of predictions: a row an image, and tables and figures of how right they are."""

from __future__ import annotations

from nas_lightning.predictions.classes import calibration_of, class_tables, confusion_matrix, reliability
from nas_lightning.predictions.predictor import Predictions
from nas_lightning.runs.findings import Findings
from nas_lightning.tables import Entry, Table
from nas_lightning.tasks.base import link_of
from nas_lightning.tasks.links import IDENTITY

FOLDER, CSV, PAGE = "predictions", "predictions.csv", "predictions.html"
TEST = f"{FOLDER}/test"  # what a training says of its test images, below its folder


def findings_of(predictions: Predictions) -> Findings:
    """How right the predictions are; nothing where no class is known."""
    judged = predictions.judged
    if not judged.any():
        return Findings([])
    from nas_lightning.predictions import figures  # and with them matplotlib

    error, confusion = calibration_of(predictions), confusion_matrix(predictions)
    right = (predictions.predicted == predictions.truth)[judged].double()
    drawn = {
        "confusion_matrix": figures.draw_confusion(confusion, predictions.classes),
        "reliability": figures.draw_reliability(reliability(predictions), error),
    }
    numbers = {"accuracy": float(right.mean()), "calibration_error": error}
    return Findings(class_tables(predictions), drawn, numbers)


def table_of(predictions: Predictions) -> Table:
    """A row an image: what it was taken for, how surely, every output, or why it could not be read.

    Numbers, as those of a regression, are taken for nothing.
    """
    of_classes, several = predictions.of_one_class, predictions.disagreement is not None
    named = link_of(predictions.task) is not IDENTITY
    columns = ["file", *["class", "predicted"] * named]
    columns += ["confidence"] * of_classes + ["disagreement"] * several
    labels = predictions.labels
    rows: list[list[Entry]] = []
    for row, name in enumerate(predictions.names):
        place, outputs = int(predictions.truth[row]), predictions.outputs[row].tolist()
        numbers = [max(outputs)] if of_classes else []
        numbers += [] if predictions.disagreement is None else [float(predictions.disagreement[row])]
        error = predictions.errors.get(row, "")
        known: list[float | None] = [None if error else number for number in (*numbers, *outputs)]
        names = [predictions.classes[place] if place >= 0 else "", labels[row]] if named else []
        rows.append([name, *names, *known, error])
    kind = "p" if named else "y"
    outputs_of = [f"{kind}({name})" for name in predictions.classes]  # a class may be called error
    return Table("predictions", "", [*columns, *outputs_of, "error"], rows)
