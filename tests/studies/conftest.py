"""What studies are tested with: the command in an empty folder, and a table of NAS-Bench-201."""

from functools import cache
from pathlib import Path

import pytest
import torch

from nas_lightning.objectives.table_formats import DATASETS
from nas_lightning.objectives.tables import all_notations
from tests.cli.conftest import command  # noqa: F401


@pytest.fixture
def table(tmp_path) -> Path:
    return write_table(tmp_path)


def write_table(folder: Path) -> Path:
    """Write a table of accuracies."""
    path = folder / "table.csv"
    path.write_text(table_text())
    return path


@cache
def table_text() -> str:
    """Accuracies that grow with the number of convolutions, and noise."""
    random = torch.Generator().manual_seed(0)
    lines = ["arch," + ",".join(DATASETS)]
    for arch in sorted(all_notations()):
        noise = torch.rand(len(DATASETS), generator=random)
        lines.append(
            ",".join([arch, *(f"{40 + 5 * arch.count('conv') + 20 * x:.3f}" for x in noise.tolist())])
        )
    return "\n".join([*lines, ""])
