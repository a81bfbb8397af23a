"""Pages of predictions and masks."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from PIL import Image, ImageOps

from nas_lightning.models.prediction import CSV, Masks, Predictions, colored, mistakes, table_of
from nas_lightning.report.page import render
from nas_lightning.report.sections import Section, Values, read_findings
from nas_lightning.runs.facts import Findings
from nas_lightning.tasks import IDENTITY, link_of
from nas_lightning.utils.tables import Table
from nas_lightning.utils.text import format_number, format_share

# The page of predictions: mistakes, results for each class, and every image

MOST_MISTAKES = 24
MOST_ROWS, MOST_OUTPUTS = 500, 20  # the CSV file has all
_SIDE = 112  # of a small picture, in pixels


def predictions_page(
    title: str,
    predictions: Predictions,
    findings: Findings,
    latency: Mapping[int, float],
    picture: Callable[[int], Image.Image] | None,
) -> str:
    """Return the page, one file without external resources.

    Args:
        title: its heading.
        predictions: a row an image.
        findings: how right they are; empty where no class is known.
        latency: milliseconds of a batch, by its size.
        picture: gives the image of a row; None: there is nothing to look at.
    """
    sections = []
    wrong = mistakes(predictions, MOST_MISTAKES)
    if wrong and picture is not None:
        values: Values = {"mistakes": [_mistake(predictions, row, picture(row)) for row in wrong]}
        sections.append(Section("The most confident mistakes", "mistakes.html", values))
    tables = [table for table in findings.tables if not table.long]
    if tables:
        values = read_findings(Findings(tables, findings.figures))
        sections.append(Section("Class by class", "findings.html", values))
    if predictions.errors:
        sections.append(not_read(predictions.names, predictions.errors))
    sections.append(Section("Every image", "findings.html", read_findings(Findings([_first(predictions)]))))
    tiles = _tiles(predictions, findings, latency)
    return render("page.html", title=title, tiles=tiles, sections=sections)


def not_read(names: Sequence[str], errors: Mapping[int, str]) -> Section:
    """Return the files that could not be read, with the reasons."""
    rows = [[names[row], reason] for row, reason in errors.items()]
    table = Table("errors", "", ["file", "what is wrong"], rows)
    return Section("Not read", "findings.html", read_findings(Findings([table])))


def _tiles(predictions: Predictions, findings: Findings, latency: Mapping[int, float]) -> dict[str, Any]:
    outputs = "numbers each" if link_of(predictions.task) is IDENTITY else "classes"
    tiles = {"images": format_number(len(predictions.names)), outputs: len(predictions.classes)}
    if findings.numbers:
        judged = int(predictions.judged.sum())
        tiles[f"accuracy on {judged:,}"] = format_share(findings.numbers["accuracy"])
        tiles["calibration error"] = format_number(findings.numbers["calibration_error"])
    if predictions.errors:
        tiles["not read"] = format_number(len(predictions.errors))
    return tiles | {f"time for {size}": f"{format_number(value)} ms" for size, value in latency.items()}


def _first(predictions: Predictions) -> Table:
    table = table_of(predictions)
    notes = [f"The first {MOST_ROWS} of {len(table.rows):,} rows."] if len(table.rows) > MOST_ROWS else []
    shown = [*range(len(table.columns))]
    if (outputs := len(predictions.classes)) > MOST_OUTPUTS:
        shown = [*shown[: -outputs - 1], shown[-1]]
        notes.append(f"{CSV} has all {outputs:,} outputs.")
    rows = [[row[column] for column in shown] for row in table.rows[:MOST_ROWS]]
    return Table(table.name, "", [table.columns[column] for column in shown], rows, " ".join(notes))


def _mistake(predictions: Predictions, row: int, picture: Image.Image) -> dict[str, str]:
    return {
        "name": predictions.names[row],
        "true": predictions.classes[int(predictions.truth[row])],
        "predicted": predictions.labels[row],
        "confidence": format_share(float(predictions.confidence[row])),
        "png": thumbnail(picture),
    }


def thumbnail(picture: Image.Image) -> str:
    """Return a small picture as a PNG in base64."""
    content = io.BytesIO()
    ImageOps.contain(picture, (_SIDE, _SIDE)).save(content, format="PNG")
    return base64.b64encode(content.getvalue()).decode()


# The page of predicted masks, next to their images and compared with true masks

MOST_PICTURES = 24


def masks_page(
    title: str,
    found: Masks,
    findings: Findings,
    latency: Mapping[int, float],
    picture: Callable[[int], Image.Image],
) -> str:
    """Return the page, one file without external resources.

    Args:
        title: its heading.
        found: a row an image.
        findings: how far masks agree; empty where no true mask is known.
        latency: milliseconds of a batch, by its size.
        picture: gives the image of a row.
    """
    order = sorted(found.masks, key=lambda row: (found.iou_of(row) is None, found.iou_of(row) or 0.0))
    shown = [_entry(found, row, picture(row)) for row in order[:MOST_PICTURES]]
    what = "The least like their true masks" if found.counts else "The first masks"
    sections = [Section(what, "masks.html", {"masks": shown})] if shown else []
    if findings.tables:
        sections.append(Section("Class by class", "findings.html", read_findings(findings)))
    if found.errors:
        sections.append(not_read(found.names, found.errors))
    return render("page.html", title=title, tiles=_tiles_masks(found, findings, latency), sections=sections)


def _tiles_masks(found: Masks, findings: Findings, latency: Mapping[int, float]) -> dict[str, Any]:
    tiles: dict[str, Any] = {"images": format_number(len(found.names)), "classes": len(found.classes)}
    if findings.numbers:
        tiles[f"mean IoU on {len(found.counts):,}"] = format_number(findings.numbers["iou"])
    if found.errors:
        tiles["not read"] = format_number(len(found.errors))
    return tiles | {f"time for {size}": f"{format_number(value)} ms" for size, value in latency.items()}


def _entry(found: Masks, row: int, picture: Image.Image) -> dict[str, str]:
    mask = colored(found.masks[row])
    iou = found.iou_of(row)
    return {
        "name": found.names[row],
        "image": thumbnail(ImageOps.fit(picture, mask.size)),
        "mask": thumbnail(mask.convert("RGB")),
        "iou": "" if iou is None else f"IoU {format_number(iou)}",
    }
