"""What a step does, counted: numbers that do not depend on how busy a machine is.

Each bound is what was counted when it was written, and a twentieth more for other versions of torch.
"""

import csv

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.bench import COLUMNS, COMMANDS, LINES, measurements, read, write
from benchmarks.memory import saved_bytes
from benchmarks.ntk import OURS
from nas_lightning.spaces import DartsSpace
from nas_lightning.training.gradients import constant, gradients

SLACK = 1.05


class Dispatched(TorchDispatchMode):
    """Counts the operations that reach a kernel or a view."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def darts_step(kind):
    """The loss, as a function, and what its step differentiates."""
    torch.manual_seed(0)
    space = DartsSpace()
    supernet = space.supernet(in_channels=3, num_classes=10, channels=4, cells=3)
    x, y = torch.randn(2, 3, 16, 16), torch.tensor([0, 1])
    arch = {name: torch.zeros(group.shape, requires_grad=True) for name, group in space.groups.items()}
    parameters = list(supernet.parameters())

    def loss():
        weights = {name: beta.softmax(-1) for name, beta in arch.items()}
        if kind == "weights":
            weights = {name: matrix.detach() for name, matrix in weights.items()}
        return F.cross_entropy(supernet(x, weights), y)

    return loss, parameters, list(arch.values())


@pytest.mark.parametrize(
    ("kind", "operations", "kept"), [("weights", 7560, 3_855_044), ("architecture", 4366, 2_952_100)]
)
def test_a_step_of_darts(kind, operations, kept):
    loss, parameters, arch = darts_step(kind)
    with constant(parameters if kind == "architecture" else ()):
        with Dispatched() as dispatched:
            gradients(loss(), parameters if kind == "weights" else arch)
        size = saved_bytes(loss)
    assert operations / SLACK <= dispatched.count <= operations * SLACK, dispatched.count
    assert kept / SLACK <= size <= kept * SLACK, size


def test_work_with_two_units_has_two_names():
    """Milliseconds are not divided by megabytes."""
    assert measurements("ours      12.5 ms\nours      451 MB\n") == {}
    text = f"{OURS}      12.5 ms\nmemory of {OURS}      451 MB\n"
    assert measurements(text) == {OURS: (12.5, "ms"), f"memory of {OURS}": (451.0, "MB")}


def test_the_table_of_all_figures(tmp_path):
    text = "our weight step     10.0 ms\nplain weight step    31.0 ms\nours / theirs: 3.1 (target ≥ 3)\n"
    row = LINES[0].row(measurements(text))
    assert row[1:] == ("10 ms", "31 ms", "3.10", "≥ 3.1")
    assert LINES[0].row({}) == (LINES[0].work, "", "", "its command failed", "≥ 3.1")
    write([row], tmp_path)
    with (tmp_path / "bench.csv").open(newline="") as file:
        assert [tuple(cells) for cells in csv.reader(file)] == [COLUMNS, row]
    assert read(tmp_path)[row[0]] == row
    assert "one thread" in (tmp_path / "machine.txt").read_text()
    assert {line.command for line in LINES} == {*COMMANDS}
