"""The empirical kernel with trace, κ and λ_min, against the published ways of computing it.

    python -m benchmarks.ntk [--rounds 5] [--quick] [--rows]

NAS-Bench-201, all edges 3×3 convolutions, a batch of 64. Prints two figures: peak memory beyond the
network's as a share of the full Jacobian's (target ≤ 0.5) and the speed-up over it (target ≥ 2). The public
code of HNAS is the one with a full Jacobian, from a single backward pass; `--rows` times that of TE-NAS too,
a backward pass per row, once and against the kernel of the same meaning.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.reference import ntk as reference
from benchmarks.reference.derived_network import PlainNetwork
from benchmarks.timing import medians, report
from nas_lightning.metrics import ntk
from nas_lightning.metrics.recording import initialize
from nas_lightning.spaces import NasBench201, Network

Work = Callable[[], object]
PUBLISHED, SAME_LAYOUT, OURS = "full Jacobian", "full Jacobian, channels last", "ours"
BOTH = "full Jacobian, channels last, a kernel each for trace and κ"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="1 cell per stage instead of 5")
    parser.add_argument("--rows", action="store_true", help="also the published code with a pass per row")
    options = parser.parse_args()
    cells = 1 if options.quick else 5
    names = (PUBLISHED, SAME_LAYOUT, OURS)
    memory = {name: _peak_megabytes(name, cells) for name in ("nothing", *names)}
    work = works(cells)
    seconds = medians({name: work[name] for name in (*names, BOTH)}, options.rounds)
    if options.rows:
        seconds |= medians({name: work[name] for name in ("row by row", "ours, coupled")}, 1, 0)
    report(seconds)
    extra = {name: memory[name] - memory["nothing"] for name in names}
    for name, megabytes in extra.items():
        print(f"{f'memory of {name}':48s} {megabytes:10.0f} MB")
    print(f"full Jacobian, channels last / ours: {seconds[SAME_LAYOUT] / seconds[OURS]:.2f}")
    print(f"memory, ours / full Jacobian: {extra[OURS] / extra[PUBLISHED]:.2f} (target ≤ 0.5)")
    print(f"full Jacobian / ours: {seconds[PUBLISHED] / seconds[OURS]:.2f} (target ≥ 2)")


def subject(cells: int, *, channels: int = 16, images: int = 64) -> tuple[Network, Tensor, Tensor]:
    """Return the network in training mode, and a batch."""
    space = NasBench201()
    text = "|{0}~0|+|{0}~0|{0}~1|+|{0}~0|{0}~1|{0}~2|".format("nor_conv_3x3")
    sizes = {"channels": channels, "cells": cells}
    network = space.network(space.parse(text), in_channels=3, num_classes=10, **sizes)
    generator = torch.Generator().manual_seed(0)
    initialize(network, generator=generator)
    x = torch.randn(images, 3, 32, 32, generator=generator)
    return network, x, torch.randint(10, (images,), generator=generator)


def works(cells: int) -> dict[str, Work]:
    """Return the computation of trace, κ, and λ_min in each way."""
    network, x, labels = subject(cells)
    published = PlainNetwork(network)

    def ours(coupled: bool) -> tuple[float, float, float]:
        kernel = ntk(network, (x, labels), coupled=coupled)
        return kernel.trace, kernel.condition, kernel.lambda_min

    def theirs(model: nn.Module, compute: Callable[[nn.Module, Tensor, Tensor], Tensor]) -> Work:
        return lambda: reference.condition(compute(model, x, labels))

    return {
        "nothing": lambda: published(x[:2]),
        PUBLISHED: theirs(published, reference.full_jacobian),
        SAME_LAYOUT: theirs(network, reference.full_jacobian),
        BOTH: lambda: [reference.condition(reference.full_jacobian(network, x, labels)) for _ in range(2)],
        OURS: lambda: ours(coupled=False),
        "row by row": theirs(published, reference.row_by_row),
        "ours, coupled": lambda: ours(coupled=True),
    }


def _peak_megabytes(name: str, cells: int) -> float:
    """Return the peak memory of a process that does one piece of work."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (name, cells))


def _measure(name: str, cells: int) -> float:
    torch.set_num_threads(1)
    works(cells)[name]()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
