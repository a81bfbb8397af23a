"""A table of NAS-Bench-201's shape whose accuracies are made up: the rank is known by construction."""

import csv
from pathlib import Path

import pytest
import torch

from nas_lightning.objectives.tables import all_notations

HEADER = ("arch", "cifar10", "cifar100", "imagenet16-120")


def rows() -> list[list[str]]:
    """Row i of the sorted strings: i/200 on CIFAR-10, less on the others."""
    return [
        [arch, f"{i / 200}", f"{i / 250}", f"{i / 400}"] for i, arch in enumerate(sorted(all_notations()))
    ]


def write(path: Path, lines: list[list[str]], header=HEADER) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *lines])
    return path


@pytest.fixture(scope="session")
def lines() -> list[list[str]]:
    found = rows()
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(0)).tolist()
    return [found[i] for i in order]


@pytest.fixture
def table(tmp_path):
    """`table(lines, header)`: a CSV file of them."""
    return lambda lines, header=HEADER: write(tmp_path / "table.csv", lines, header)


@pytest.fixture(scope="session")
def whole(tmp_path_factory, lines) -> Path:
    return write(tmp_path_factory.mktemp("table") / "whole.csv", lines)


@pytest.fixture(scope="session")
def validated(tmp_path_factory, lines) -> Path:
    """With validation accuracies whose order is the opposite of the test accuracies'."""
    path = tmp_path_factory.mktemp("table") / "validated.csv"
    full = [[*row, f"{100 - float(row[1])}", f"{90 - float(row[1])}"] for row in lines]
    return write(path, full, (*HEADER, "cifar10-valid", "cifar10-valid-12"))
