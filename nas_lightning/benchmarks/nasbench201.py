"""NAS-Bench-201 (Dong & Yang 2020, arXiv:2001.00326) as a table: genotype → accuracy of the trained network.

The official files are turned into a small table once:

    python -m nas_lightning.benchmarks.nasbench201 convert SOURCE TARGET.parquet
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from nas_lightning.benchmarks.base import TabularBenchmark
from nas_lightning.benchmarks.formats.columns import run_convert, write_parquet
from nas_lightning.benchmarks.formats.official import DATASETS
from nas_lightning.benchmarks.tables import columns_of, read, read_validation
from nas_lightning.checks import checked
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.nasbench201 import OPS, NasBench201


class TabularNasBench201(TabularBenchmark):
    r"""The accuracies of all 15,625 architectures, after 200 epochs or after 12.

    Args:
        path: a table `.csv` or `.parquet`, or an official file or folder of NAS-Bench-201 or NATS-Bench.
        dataset: cifar10, cifar100 or imagenet16-120; what `describe` and defaults refer to.
        validation: a file `arch, <dataset>_valid, seconds` of validation accuracies after 12 epochs and their
            cost, where the table has none.
        trust: read official files, too, which are pickles and can run code: those of their authors.

    >>> from tempfile import TemporaryDirectory
    >>> from nas_lightning.benchmarks.tables import all_notations
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "mine.csv")
    ...     rows = [f"{name},{number / 200},50,30" for number, name in enumerate(sorted(all_notations()))]
    ...     _ = path.write_text("\n".join(["arch,cifar10,cifar100,imagenet16-120", *rows]))
    ...     table = TabularNasBench201(path)
    >>> table.rank(table.best()), table.column("cifar10", table.best())
    (1, 78.12)
    """

    title = "NAS-Bench-201"
    datasets = DATASETS
    epochs, lengths = 200, (12, 200)
    spaces = ("nasbench201",)
    ops = OPS

    @checked
    def __init__(
        self,
        path: str | Path,
        dataset: str = "cifar10",
        trust: bool = False,
        validation: str | Path | None = None,
    ) -> None:
        self.check_dataset(dataset)
        self.space, self.dataset = NasBench201(), dataset
        self.table = read(path, trust=trust)
        if validation is not None:
            columns, self.seconds = read_validation(validation)
            self.table = {**self.table, **columns}

    def key(self, genotype: Genotype) -> str:
        return self.space.notation(genotype)

    def architecture(self, key: str) -> Genotype:
        return self.space.parse(key)


_FLAGS = {"--trust": "read an official file, which is a pickle and can run code: one of its authors'"}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command `convert`."""
    source = "NATS-tss-… (folder or .pbz2), NAS-Bench-201-….pth or .csv"
    run_convert("nas_lightning.benchmarks.nasbench201", source, _convert, arguments, _FLAGS)


def _convert(options: Namespace) -> str:
    table = read(options.source, trust=options.trust)
    write_parquet(columns_of(table), options.target)
    return f"{len(table[DATASETS[0]]):,} architectures, {', '.join(table)}"


if __name__ == "__main__":
    main()
