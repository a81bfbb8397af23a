"""Six zero-cost metrics of an architecture together, against the published code, which computes each alone.

    python -m benchmarks.zero_cost [--rounds 5] [--cells 5] [--each]

NAS-Bench-201, a batch of 64, two cells: 3×3 convolutions on all edges, and operations of all kinds.
Prints the speed-ups (targets ≥ 2.8 and ≥ 3.5).
"""

from __future__ import annotations

import argparse
from functools import partial

import torch
from torch import Tensor

from benchmarks.reference.derived_network import PlainNetwork
from benchmarks.reference.zero_cost import one_by_one
from benchmarks.timing import medians, report
from nas_lightning.metrics import Fisher, GradNorm, Grasp, Jacov, Metric, Snip, Synflow, initialize, score
from nas_lightning.spaces import NasBench201, Network

METRICS: dict[str, Metric] = {
    "grad_norm": GradNorm(),
    "snip": Snip(),
    "grasp": Grasp(),
    "fisher": Fisher(),
    "jacov": Jacov(),
    "synflow": Synflow(),
}
CELLS = {
    "3×3 cell": "|{0}~0|+|{0}~0|{0}~1|+|{0}~0|{0}~1|{0}~2|".format("nor_conv_3x3"),
    "mixed cell": "|nor_conv_3x3~0|+|avg_pool_3x3~0|nor_conv_1x1~1|+|skip_connect~0|nor_conv_3x3~1|none~2|",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cells", type=int, default=5, help="per stage")
    parser.add_argument("--each", action="store_true", help="also the metrics one by one, in both ways")
    options = parser.parse_args()
    for name, cell in CELLS.items():
        network, x, y = subject(cell, options.cells)
        plain = PlainNetwork(network)
        works = {
            f"{name}, one by one": partial(one_by_one, plain, x, y),
            f"{name}, together": partial(score, network, (x, y), METRICS),
        }
        if options.each:
            for key, metric in METRICS.items():
                works[f"{name}, published {key}"] = partial(one_by_one, plain, x, y, [key])
                works[f"{name}, our {key}"] = partial(score, network, (x, y), {key: metric})
        seconds = medians(works, options.rounds)
        report(seconds)
        published, ours = list(seconds.values())[:2]
        print(f"{name}, one by one / together: {published / ours:.2f}", flush=True)


def subject(cell: str, cells: int) -> tuple[Network, Tensor, Tensor]:
    """Return a network of the cell, and a batch."""
    space, generator = NasBench201(), torch.Generator().manual_seed(0)
    network = space.network(space.parse(cell), in_channels=3, num_classes=10, cells=cells)
    initialize(network, generator=generator)
    x = torch.randn(64, 3, 32, 32, generator=generator)
    return network, x, torch.randint(10, (64,), generator=generator)


if __name__ == "__main__":
    main()
