"""NAS-Bench-101 (Ying et al. 2019, arXiv:1902.09635) as a table: genotype → accuracy of the trained network.

The official file is turned into a small table once, without TensorFlow:

    python -m nas_lightning.benchmarks.nasbench101 convert nasbench_only108.tfrecord TARGET.parquet
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from nas_lightning.benchmarks.base import TabularBenchmark
from nas_lightning.benchmarks.formats.columns import (
    READERS,
    Columns,
    parse_percentages,
    require_columns,
    run_convert,
    write_parquet,
)
from nas_lightning.benchmarks.formats.official101 import DATASET, EPOCHS, HASH, LENGTHS, MODULE
from nas_lightning.benchmarks.formats.official101 import read as read_official
from nas_lightning.checks import checked
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.nasbench101.modules import OPS
from nas_lightning.spaces.nasbench101.space import NasBench101

COMMAND = "python -m nas_lightning.benchmarks.nasbench101 convert"


class TabularNasBench101(TabularBenchmark):
    r"""CIFAR-10 accuracies after 108 epochs, means over three runs; after 4, 12 and 36 from the full file.

    Args:
        path: a table `.parquet` or `.csv` that `convert` made.

    >>> from tempfile import TemporaryDirectory
    >>> module = {"matrix": [[0, 1, 0], [0, 0, 1], [0, 0, 0]], "ops": ["input", OPS[0], "output"]}
    >>> genotype = NasBench101().parse(module)
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "part.csv")
    ...     row = f'{NasBench101().hash(genotype)},"{NasBench101().notation(genotype)}",92.5'
    ...     _ = path.write_text(f"{HASH},{MODULE},{DATASET}\n{row}\n")
    ...     table = TabularNasBench101(path)
    >>> table.column("cifar10", genotype)
    92.5
    """

    title = "NAS-Bench-101"
    datasets = (DATASET,)
    epochs, lengths = EPOCHS, LENGTHS
    spaces = ("nasbench101", "nasbench1shot1")
    ops = OPS
    space: NasBench101

    @checked
    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        columns = _read(path)
        require_columns(columns, (HASH, MODULE, DATASET), path)
        self.modules = dict(zip(columns[HASH], columns[MODULE], strict=True))
        if len(self.modules) != len(columns[HASH]) or not self.modules:
            raise InputError(
                "expected each module once, and at least one", got=len(columns[HASH]), where=path
            )
        names = [name for name in columns if str(name).startswith(DATASET)]
        values = {name: parse_percentages(columns[name], name, path) for name in names}
        self.table = {name: dict(zip(columns[HASH], value, strict=True)) for name, value in values.items()}
        self.space, self.dataset = NasBench101(), DATASET
        self.entries = f"a module of the table's {len(self.modules):,}"

    def key(self, genotype: Genotype) -> str:
        return self.space.hash(genotype)

    def architecture(self, key: str) -> Genotype:
        return self.space.parse(self.modules[key])


def _read(path: Path) -> Columns:
    if path.suffix not in READERS:
        expected = (
            f"expected a table .parquet or .csv; of an official file: {COMMAND} FILE.tfrecord TABLE.parquet"
        )
        raise InputError(expected, got=path.name, where="benchmark.path")
    if not path.is_file():
        raise InputError("expected a table of NAS-Bench-101", got=str(path), where="benchmark.path")
    return READERS[path.suffix](path)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command `convert`."""
    run_convert(
        "nas_lightning.benchmarks.nasbench101",
        "nasbench_only108.tfrecord or nasbench_full.tfrecord",
        _convert,
        arguments,
        {"--partial": "accept a file with fewer modules or runs than the benchmark has"},
    )


def _convert(options: Namespace) -> str:
    columns = read_official(options.source, partial=options.partial)
    write_parquet(columns, options.target)
    return f"{len(columns[HASH]):,} modules, {', '.join(columns)}"


if __name__ == "__main__":
    main()
