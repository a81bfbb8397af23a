"""Executes the tutorials, docs/tutorials/*.ipynb, in empty folders, and keeps what they said.

python -m docs.run_tutorials [NAME…]
"""

import base64
import io
import json
import os
import re
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

TUTORIALS = Path(__file__).parent / "tutorials"
MOST_BYTES = 300_000  # of a notebook with what it said
MOST_SECONDS = 900  # of a cell
PNG, WIDTH = "image/png", 900  # pixels
COLORS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
REWRITTEN = re.compile(r"^[^\n]*\r(?!\n)", re.MULTILINE)  # what a line had before
BAR = re.compile(r"^[^\n]*\d%\|[^\n]*?(WARNING|\n|\Z)", re.MULTILINE)  # of progress
Notebook = dict[str, Any]


def execute(text: str, folder: str) -> Notebook:
    """The notebook of this text with what its cells say; an error of one ends it."""
    import nbformat
    from nbclient import NotebookClient

    os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    os.environ |= {"OMP_NUM_THREADS": "1", "WANDB_MODE": "offline", "COLUMNS": "100"}
    node = nbformat.reads(text, as_version=4)
    client = NotebookClient(node, timeout=MOST_SECONDS, resources={"metadata": {"path": folder}})
    return json.loads(nbformat.writes(client.execute()))


def clean(notebook: Notebook, folder: str) -> Notebook:
    """Without times, colors and places of this machine."""
    for number, cell in enumerate(notebook["cells"], 1):
        cell["metadata"], cell["id"] = {}, f"cell-{number}"
        for output in cell.get("outputs", []):
            output.pop("metadata", None)
            data = output.get("data", {})
            if PNG in data:
                data[PNG] = shrink(data[PNG])
        if "outputs" in cell:
            cell["outputs"] = [_as_written(output, folder) for output in _joined(cell["outputs"])]
    notebook["metadata"] = {
        "kernelspec": notebook["metadata"]["kernelspec"],
        "language_info": {"name": "python"},
    }
    return notebook


def shrink(png: str) -> str:
    """A picture of a size for a page, in few colors: base64."""
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    picture.thumbnail((WIDTH, 4 * WIDTH))
    content = io.BytesIO()
    picture.quantize(64).save(content, format="PNG", optimize=True)
    return base64.b64encode(content.getvalue()).decode()


def _without_places(text: str, folder: str) -> str:
    text = REWRITTEN.sub("", COLORS.sub("", text).replace("\r\n", "\n"))
    text = BAR.sub(lambda bar: bar[1].strip(), text)
    for place in (os.path.realpath(folder), folder):
        text = text.replace(f"{place}/", "").replace(place, ".")
    return text.replace(sys.executable, "python")


def _joined(outputs: list[Any]) -> list[Any]:
    """Pieces of one stream that follow each other as one."""
    joined: list[Any] = []
    for output in outputs:
        if joined and output["output_type"] == "stream" and joined[-1].get("name") == output["name"]:
            joined[-1]["text"] = "".join(joined[-1]["text"]) + "".join(output["text"])
        else:
            joined.append(output)
    return joined


def _as_written(output: Any, folder: str) -> Any:
    """What the format asks of an output of its type, with lines that are the same anywhere."""
    for holder, key in ((output, "text"), (output.get("data", {}), "text/plain")):
        if key in holder:
            holder[key] = _without_places("".join(holder[key]), folder).splitlines(keepends=True)
    asked = {"metadata": {}} if output["output_type"] in ("display_data", "execute_result") else {}
    return {**output, **asked}


def main(names: list[str]) -> None:
    for path in sorted(TUTORIALS.glob("*.ipynb")):
        if names and path.stem not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            notebook = clean(execute(path.read_text(encoding="utf-8"), folder), folder)
        text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        if len(text.encode()) > MOST_BYTES:
            sys.exit(f"expected at most {MOST_BYTES:,} bytes, got {len(text.encode()):,} (in {path.name})")
        path.write_text(text, encoding="utf-8")
        print(path.name, f"{len(text.encode()):,} bytes", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
