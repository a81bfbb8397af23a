"""A pool of architectures scored by two processes of one thread, and by one process of two threads.

    python -m benchmarks.pool [--rounds 3] [--architectures 64] [--cells 5]

Wall time, because processes are compared: run it on an idle machine. Architectures differ in size, so that
few of them are not shared evenly: 16 gave 1.06. Prints the ratio (target ≥ 1.2).
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial

import torch

from nas_lightning.metrics import GradNorm, NTKSqrtMeanDiagonal
from nas_lightning.metrics.pool import score_pool
from nas_lightning.spaces import NasBench201

WAYS = {"2 processes, 1 thread": (2, 1), "1 process, 2 threads": (1, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--architectures", type=int, default=64)
    parser.add_argument("--cells", type=int, default=5, help="per stage")
    options = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    space = NasBench201()
    network = partial(space.network, in_channels=3, num_classes=10, cells=options.cells)
    batch = torch.randn(64, 3, 32, 32, generator=generator), torch.arange(64) % 10
    genotypes = [space.sample(generator) for _ in range(options.architectures)]
    metrics = {"grad_norm": GradNorm(), "ntk_sqrt_mean_diag": NTKSqrtMeanDiagonal()}
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for round_ in range(options.rounds + 1):  # the first starts the processes
        for name, (workers, threads) in WAYS.items():
            start = time.perf_counter()
            score_pool(
                space, network, genotypes, batch, metrics, workers=workers, threads=threads, progress=False
            )
            if round_:
                seconds[name].append(time.perf_counter() - start)
    medians = [statistics.median(seconds[name]) for name in WAYS]
    print(f"{len(genotypes)} architectures")
    for name, median in zip(WAYS, medians, strict=True):
        print(f"{name:48s} {median:10.2f} s")
    print(f"rate of two processes / one with two threads: {medians[1] / medians[0]:.2f} (target ≥ 1.2)")


if __name__ == "__main__":
    main()
