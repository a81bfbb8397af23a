"""The images below a folder; a link back to a folder above is not followed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from nas_lightning.text import printable

ENDINGS = frozenset(
    [".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".jp2"]
)
"""Of files that are images; others are left out."""


def walk_images(root: Path) -> Iterator[tuple[str, str]]:
    """The path of every image and the name of the folder that it is in, in natural order of the paths."""
    from timm.utils.misc import natural_key

    paths = (
        os.path.join(folder, name)
        for folder, names in _walk(str(root), ())
        for name in names
        if os.path.splitext(name)[1].lower() in ENDINGS
    )
    for path in sorted(paths, key=natural_key):
        folder = os.path.dirname(path)
        yield path, "" if folder == str(root) else printable(os.path.basename(folder))


def _walk(folder: str, above: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """Folders and the names of the files in them; `above` are the real paths on the way here."""
    here = os.path.realpath(folder)
    if here in above:
        return
    with os.scandir(folder) as scan:
        entries = list(scan)
    yield folder, [entry.name for entry in entries if entry.is_file()]
    for entry in entries:
        if entry.is_dir():
            yield from _walk(entry.path, (*above, here))
