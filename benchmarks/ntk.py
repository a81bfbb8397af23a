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
from benchmarks.timing import medians, report
from nas_lightning.metrics import initialise, ntk
from nas_lightning.spaces import NasBench201

Work = Callable[[nn.Module, Tensor, Tensor], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="1 cell per stage instead of 5")
    parser.add_argument("--rows", action="store_true", help="also the published code with a pass per row")
    options = parser.parse_args()
    cells = 1 if options.quick else 5
    memory = {name: _peak_megabytes(name, cells) for name in ("nothing", *WORKS)}
    network, x, labels = subject(cells)
    seconds = medians({n: lambda w=work: w(network, x, labels) for n, work in WORKS.items()}, options.rounds)
    if options.rows:
        works = {"row by row": _row_by_row, "ours, coupled": _ours_coupled}
        seconds |= medians({n: lambda w=work: w(network, x, labels) for n, work in works.items()}, 1, 0)
    report(seconds)
    extra = {name: memory[name] - memory["nothing"] for name in WORKS}
    for name, megabytes in extra.items():
        print(f"{name:48s} {megabytes:10.0f} MB")
    print(f"memory, ours / full Jacobian: {extra['ours'] / extra['full Jacobian']:.2f} (target ≤ 0.5)")
    print(f"full Jacobian / ours: {seconds['full Jacobian'] / seconds['ours']:.2f} (target ≥ 2)")


def subject(cells: int) -> tuple[nn.Module, Tensor, Tensor]:
    """The network, in training mode, and its batch."""
    space = NasBench201()
    text = "|{0}~0|+|{0}~0|{0}~1|+|{0}~0|{0}~1|{0}~2|".format("nor_conv_3x3")
    network = space.network(space.parse(text), in_channels=3, num_classes=10, cells=cells)
    generator = torch.Generator().manual_seed(0)
    initialise(network, generator=generator)
    x = torch.randn(64, 3, 32, 32, generator=generator)
    return network, x, torch.randint(10, (64,), generator=generator)


def _ours(network: nn.Module, x: Tensor, labels: Tensor) -> tuple[float, float, float]:
    kernel = ntk(network, (x, labels))
    return kernel.trace, kernel.condition, kernel.lambda_min


def _ours_coupled(network: nn.Module, x: Tensor, labels: Tensor) -> tuple[float, float, float]:
    kernel = ntk(network, (x, labels), coupled=True)
    return kernel.trace, kernel.condition, kernel.lambda_min


def _full_jacobian(network: nn.Module, x: Tensor, labels: Tensor) -> tuple[float, float, float]:
    return reference.condition(reference.full_jacobian(network, x, labels))


def _row_by_row(network: nn.Module, x: Tensor, labels: Tensor) -> tuple[float, float, float]:
    return reference.condition(reference.row_by_row(network, x, labels))


def _nothing(network: nn.Module, x: Tensor, labels: Tensor) -> None:
    with torch.no_grad():
        network(x[:2])


WORKS: dict[str, Work] = {"full Jacobian": _full_jacobian, "ours": _ours}


def _peak_megabytes(name: str, cells: int) -> float:
    """The most memory that a process of its own holds during one piece of work."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_measure, (name, cells))


def _measure(name: str, cells: int) -> float:
    torch.set_num_threads(1)
    work: Work = {**WORKS, "nothing": _nothing}[name]
    work(*subject(cells))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
