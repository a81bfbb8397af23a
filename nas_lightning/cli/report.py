"""Write the report of a run again, or a report that compares several runs.

nas-report RUN [RUN ...] [--out FILE]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nas_lightning.errors import InputError
from nas_lightning.flags import FlagParser, command, place_to_write
from nas_lightning.report.comparison import write_side_by_side
from nas_lightning.report.page import write_report
from nas_lightning.utils.text import short_path


@command
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command: print the path of the report."""
    parser = FlagParser(prog="nas-report", description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, help="folders of searches, trainings, or studies")
    parser.add_argument(
        "--out", type=place_to_write, help="output file for several runs (default: comparison.html)"
    )
    options = parser.parse_args(arguments)
    if options.out and len(options.runs) == 1:
        raise InputError("--out needs several runs; the page of one run is in its folder", got=1)
    if len(options.runs) == 1:
        page = write_report(options.runs[0])
    else:
        page = write_side_by_side(options.runs, options.out or Path("comparison.html"))
    print(short_path(page))


if __name__ == "__main__":
    main()
