"""The page of a run, made anew from its folder; of several runs, a page that compares them.

nas-report outputs/search/<run>
nas-report outputs/search/* --out comparison.html
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nas_lightning.errors import InputError
from nas_lightning.flags import FlagParser, command, place_to_write
from nas_lightning.text import short_path


@command
def main(arguments: Sequence[str] | None = None) -> None:
    """The command; prints the path of the page."""
    lines = (__doc__ or "").splitlines()
    parser = FlagParser(prog="nas-report", description=lines[0])
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs, of search, training or study")
    parser.add_argument("--out", type=place_to_write, help="the page of several runs: comparison.html")
    options = parser.parse_args(arguments)
    if options.out and len(options.runs) == 1:
        raise InputError("expected several runs beside --out: the page of one is in its folder", got=1)
    from nas_lightning.report.page import write_report  # these draw: --help need not wait for them
    from nas_lightning.report.side_by_side import write_side_by_side

    if len(options.runs) == 1:
        page = write_report(options.runs[0])
    else:
        page = write_side_by_side(options.runs, options.out or Path("comparison.html"))
    print(short_path(page))


if __name__ == "__main__":
    main()
