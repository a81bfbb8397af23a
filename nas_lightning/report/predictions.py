"""The page of predictions: what was mistaken for what, class by class, and a row an image."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import ImageOps

from nas_lightning.data.formats.decode import decode
from nas_lightning.data.formats.listing import ImageFile
from nas_lightning.predictions.classes import mistakes
from nas_lightning.predictions.findings import table_of
from nas_lightning.predictions.predictor import Predictions
from nas_lightning.report.rendering import render
from nas_lightning.report.sections import Section, read_findings
from nas_lightning.runs.findings import Findings
from nas_lightning.tables import Table
from nas_lightning.text import format_number, format_share

PAGE = "predictions.html"
MOST_MISTAKES = 24
MOST_ROWS = 500  # the CSV file has all
_SIDE = 112  # of a small picture, in pixels


def predictions_page(
    title: str,
    predictions: Predictions,
    findings: Findings,
    latency: Mapping[int, float],
    files: Sequence[ImageFile],
) -> str:
    """All of it, as a file that needs no other.

    Args:
        title: its heading.
        predictions: a row an image.
        findings: how right they are; empty where no class is known.
        latency: milliseconds of a batch, by its size.
        files: the images, one a row.
    """
    sections = []
    wrong = [_mistake(predictions, row, files[row]) for row in mistakes(predictions, MOST_MISTAKES)]
    if wrong:
        sections.append(Section("The most confident mistakes", "mistakes.html", {"mistakes": wrong}))
    tables = [table for table in findings.tables if not table.long]
    if tables:
        values = read_findings(Findings(tables, findings.figures))
        sections.append(Section("Class by class", "findings.html", values))
    if predictions.errors:
        rows = [[predictions.names[row], reason] for row, reason in predictions.errors.items()]
        table = Table("errors", "", ["file", "what is wrong"], rows)
        sections.append(Section("Not read", "findings.html", read_findings(Findings([table]))))
    sections.append(Section("Every image", "findings.html", read_findings(Findings([_first(predictions)]))))
    tiles = _tiles(predictions, findings, latency)
    return render("page.html", title=title, tiles=tiles, sections=sections)


def _tiles(predictions: Predictions, findings: Findings, latency: Mapping[int, float]) -> dict[str, Any]:
    tiles = {"images": format_number(len(predictions.names)), "classes": len(predictions.classes)}
    if findings.numbers:
        judged = int(predictions.judged.sum())
        tiles[f"accuracy on {judged:,}"] = format_share(findings.numbers["accuracy"])
        tiles["calibration error"] = format_number(findings.numbers["calibration_error"])
    if predictions.errors:
        tiles["not read"] = format_number(len(predictions.errors))
    return tiles | {f"time for {size}": f"{format_number(value)} ms" for size, value in latency.items()}


def _first(predictions: Predictions) -> Table:
    table = table_of(predictions)
    note = f"The first {MOST_ROWS} of {len(table.rows):,} rows." if len(table.rows) > MOST_ROWS else ""
    return Table(table.name, "", table.columns, table.rows[:MOST_ROWS], note)


def _mistake(predictions: Predictions, row: int, file: ImageFile) -> dict[str, str]:
    return {
        "name": predictions.names[row],
        "true": predictions.classes[int(predictions.truth[row])],
        "predicted": predictions.labels[row],
        "confidence": format_share(float(predictions.confidence[row])),
        "png": thumbnail(file),
    }


def thumbnail(file: ImageFile) -> str:
    """A small picture, as the base64 of a PNG."""
    content = io.BytesIO()
    ImageOps.contain(decode(file), (_SIDE, _SIDE)).save(content, format="PNG")
    return base64.b64encode(content.getvalue()).decode()
