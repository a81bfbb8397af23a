"""What to say where a data set is not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nas_lightning.errors import InputError


def missing_data_error(name: str, root: str | Path, files: str, *, download: bool) -> InputError:
    """One line with what was looked for, and with what the user can do."""
    how = f"pass dataset.root=FOLDER that has {files}"
    if download:
        how += ", or dataset.download=true to fetch them"
    return InputError(f"expected the data set {name}: {how}", got="none of them", where=root)


def fetch(download: Callable[[], object], name: str) -> None:
    """Run torchvision's download; what goes wrong with it becomes one line."""
    try:
        download()
    except (OSError, RuntimeError) as error:  # no network, a full disk, a wrong checksum
        raise InputError(f"expected to download {name}: {error}") from None
