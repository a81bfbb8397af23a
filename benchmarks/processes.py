"""Cost of a step that two processes share: processor time of both, against that of one.

    python -m benchmarks.processes [--rounds 5] [--batch 16] [--channels 16] [--cells 8]

DARTS' weight step. Four ways, in turn: the whole batch in one process; half of it twice in one process, which
smaller batches cost by themselves; half of it in each of two at the same time, which share the machine's
cache and memory; and the same with gradients averaged. Prints the last over the first (target ≤ 1.22), and
what each way adds to the one before.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
from torch import distributed, multiprocessing
from torch.nn import functional as F

from benchmarks.timing import report
from nas_lightning.spaces import DartsSpace
from nas_lightning.training.gradients import average

WHOLE, HALVES, BESIDE, SHARED = (
    "one process, the whole batch",
    "one process, half of it twice",
    "two processes, not averaged",
    "two processes, averaged",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--cells", type=int, default=8)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        sizes = options.rounds, options.batch, options.channels, options.cells
        multiprocessing.spawn(measure, (f"file://{folder}/meeting", *sizes), nprocs=2)


def measure(rank: int, meeting: str, rounds: int, batch: int, channels: int, cells: int) -> None:
    """Run the part of one of two processes."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    distributed.init_process_group("gloo", meeting, rank=rank, world_size=2)
    step = build_step(batch, channels, cells)
    half = batch // 2
    works: dict[str, Callable[[], object]] = {
        WHOLE: lambda: step(batch) if rank == 0 else None,
        HALVES: lambda: (step(half), step(half)) if rank == 0 else None,
        BESIDE: lambda: step(half),
        SHARED: lambda: average(step(half)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for round_ in range(1 + rounds):
        for name, work in works.items():
            spent = _seconds_of_both(work)
            if round_:
                seconds[name].append(spent)
    if rank == 0:
        _report({name: statistics.median(values) for name, values in seconds.items()})
    distributed.destroy_process_group()


def build_step(batch: int, channels: int, cells: int) -> Callable[[int], list[torch.Tensor]]:
    """Return a function from the number of images to gradients."""
    space = DartsSpace()
    supernet = space.supernet(in_channels=3, num_classes=10, channels=channels, cells=cells)
    x, y = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
    weights = {name: torch.softmax(torch.zeros(group.shape), -1) for name, group in space.groups.items()}
    parameters = list(supernet.parameters())

    def step(images: int) -> list[torch.Tensor]:
        loss = F.cross_entropy(supernet(x[:images], weights), y[:images])
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        return [gradient for gradient in found if gradient is not None]

    return step


def _seconds_of_both(work: Callable[[], object]) -> float:
    distributed.barrier()  # waits for the other without using the processor
    start = time.process_time()
    work()
    spent = torch.tensor(time.process_time() - start, dtype=torch.float64)
    distributed.barrier()
    distributed.all_reduce(spent)
    return float(spent)


def _report(seconds: dict[str, float]) -> None:
    report(seconds)
    whole, halves, beside, shared = seconds.values()
    for name, more in (
        ("smaller batches", halves - whole),
        ("beside another process", beside - halves),
        ("averaging", shared - beside),
    ):
        print(f"{name}: {100 * more / whole:+.1f} %")
    print(f"two processes / one: {shared / whole:.2f} (target ≤ 1.22)")


if __name__ == "__main__":
    main()
