"""Notebooks as Markdown, which every builder of the site takes."""

import base64
import json
from pathlib import Path
from typing import Any

PNG = "image/png"


def to_markdown(notebook: Path, folder: Path) -> str:
    """A notebook's text, code and what it said; its pictures become files in a folder beside the page.

    Args:
        notebook: the file.
        folder: where pictures go; the page lies above it.
    """
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    parts: list[str] = []
    for number, cell in enumerate(cells):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts.append(fenced(source, "python"))
            parts += [_said(output, folder, f"{notebook.stem}_{number}") for output in cell["outputs"]]
    return "\n\n".join(part for part in parts if part) + "\n"


def fenced(text: str, language: str = "") -> str:
    """A block of code; what is inside cannot end it.

    >>> fenced("```", "text").splitlines()
    ['````text', '```', '````']
    """
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _said(output: Any, folder: Path, name: str) -> str:
    data = output.get("data", {})
    if PNG in data:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.png").write_bytes(base64.b64decode(data[PNG]))
        return f"![What the cell shows]({folder.name}/{name}.png)"
    text = "".join(output.get("text", data.get("text/plain", "")))
    return fenced(text, "text") if text.strip() else ""
