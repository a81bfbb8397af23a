"""The pages of runs, made anew from their folders.

nas-report outputs/search/* outputs/train/*
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nas_lightning.errors import InputError
from nas_lightning.text import short_path


def main(arguments: Sequence[str] | None = None) -> None:
    """The command; prints the path of each page."""
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(prog="nas-report", description=lines[0])
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs, of search, training or study")
    options = parser.parse_args(arguments)
    from nas_lightning.report.page import write_report  # draws: --help need not wait for it

    for run in options.runs:
        try:
            print(short_path(write_report(run)))
        except InputError as error:
            sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
