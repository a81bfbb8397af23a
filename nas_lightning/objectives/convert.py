"""Convert an official file of NAS-Bench-201, NATS-Bench, or NAS-Bench-101 into a small Parquet table.

python -m nas_lightning.objectives.convert SOURCE TARGET.parquet
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nas_lightning.errors import InputError
from nas_lightning.flags import FlagParser, command, place_to_write
from nas_lightning.objectives.table_formats import ARCH, HASH, read_official101, write_parquet
from nas_lightning.objectives.tables import columns_of, read_nasbench201
from nas_lightning.utils.files import hold_file


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; a `.tfrecord` is of NAS-Bench-101, everything else of NAS-Bench-201."""
    parser = FlagParser(prog="python -m nas_lightning.objectives.convert")
    parser.add_argument(
        "source",
        type=Path,
        help="nasbench_….tfrecord; NATS-tss-… (folder or .pickle.pbz2), NAS-Bench-201-….pth, or .csv",
    )
    parser.add_argument("target", type=place_to_write, help="the .parquet file to write")
    parser.add_argument(
        "--trust",
        action="store_true",
        help="read an official file of NAS-Bench-201, which is a pickle and can run code",
    )
    parser.add_argument(
        "--partial",
        action="store_true",
        help="accept a file with fewer modules or runs than NAS-Bench-101 has",
    )

    @command
    def run(words: Sequence[str] | None) -> None:
        options = parser.parse_args(words)
        if options.target.suffix != ".parquet":
            raise InputError("The target must end in .parquet", got=options.target.name)
        with hold_file(options.target):
            print(convert(options.source, options.target, options.trust, options.partial))

    run(arguments)


def convert(source: Path, target: Path, trust: bool = False, partial: bool = False) -> str:
    """Write the table and return a line about it."""
    if source.suffix == ".tfrecord":
        columns = read_official101(source, partial=partial)
        kind = "modules", HASH
    else:
        columns = columns_of(read_nasbench201(source, trust=trust))
        kind = "architectures", ARCH
    write_parquet(columns, target)
    names = [name for name in columns if name != ARCH]
    return f"{len(columns[kind[1]]):,} {kind[0]}, {', '.join(names)} → {target}"


if __name__ == "__main__":
    main()
