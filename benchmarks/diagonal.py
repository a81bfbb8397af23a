"""Cost of the kernel's diagonal, which Eigen-NAS needs, compared with the kernel (arXiv:2209.07238, 5.2).

    python -m benchmarks.diagonal [--images 16 64] [--channels 16] [--cells 5] [--rounds 3]

NAS-Bench-201, all edges 3×3 convolutions. For each number of images N the processor time of the mean
diagonal, of the kernel layer by layer, and of the kernel as J Jᵀ with a backward pass for each image; that of
one forward and backward pass, which all have; and how many times cheaper the diagonal is than each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from benchmarks.ntk import subject
from nas_lightning.metrics import GradNorm, NTKFrobenius, NTKMeanDiagonal
from nas_lightning.metrics.base import Metric
from nas_lightning.utils.tables import align

WAYS: dict[str, Metric] = {
    "one backward pass": GradNorm(),
    "diagonal": NTKMeanDiagonal(),
    "layer by layer": NTKFrobenius(),
    "image by image": NTKFrobenius(coupled=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--cells", type=int, default=5, help="per stage")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [["N", *WAYS, "layer by layer / diagonal", "image by image / diagonal"]]
    for images in options.images:
        seconds = times(images, options.channels, options.cells, options.rounds)
        diagonal, layers, single = (seconds[name] for name in list(WAYS)[1:])
        found = [*seconds.values(), layers / diagonal, single / diagonal]
        rows.append([str(images), *(f"{value:.2f}" for value in found)])
        print(align(rows), flush=True)


def times(images: int, channels: int, cells: int, rounds: int) -> dict[str, float]:
    """Return the least processor seconds of each way; the last one is run once."""
    network, x, labels = subject(cells, channels=channels, images=images)

    def of(metric: Metric) -> Callable[[], object]:
        return lambda: metric(network, (x, labels))

    counts = {name: 1 if name == "image by image" else rounds for name in WAYS}
    return {name: min(_seconds(of(metric)) for _ in range(counts[name])) for name, metric in WAYS.items()}


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main()
