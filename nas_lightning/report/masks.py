"""The page of predicted masks: each beside its image, and how far they agree with true ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from PIL import Image, ImageOps

from nas_lightning.predictions.masks import Masks, coloured
from nas_lightning.report.predictions import not_read, thumbnail
from nas_lightning.report.rendering import render
from nas_lightning.report.sections import Section, read_findings
from nas_lightning.runs.findings import Findings
from nas_lightning.text import format_number

MOST_PICTURES = 24


def masks_page(
    title: str,
    found: Masks,
    findings: Findings,
    latency: Mapping[int, float],
    picture: Callable[[int], Image.Image],
) -> str:
    """All of it, as a file that needs no other.

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
    return render("page.html", title=title, tiles=_tiles(found, findings, latency), sections=sections)


def _tiles(found: Masks, findings: Findings, latency: Mapping[int, float]) -> dict[str, Any]:
    tiles: dict[str, Any] = {"images": format_number(len(found.names)), "classes": len(found.classes)}
    if findings.numbers:
        tiles[f"mean IoU on {len(found.counts):,}"] = format_number(findings.numbers["iou"])
    if found.errors:
        tiles["not read"] = format_number(len(found.errors))
    return tiles | {f"time for {size}": f"{format_number(value)} ms" for size, value in latency.items()}


def _entry(found: Masks, row: int, picture: Image.Image) -> dict[str, str]:
    mask = coloured(found.masks[row])
    iou = found.iou_of(row)
    return {
        "name": found.names[row],
        "image": thumbnail(ImageOps.fit(picture, mask.size)),
        "mask": thumbnail(mask.convert("RGB")),
        "iou": "" if iou is None else f"IoU {format_number(iou)}",
    }
