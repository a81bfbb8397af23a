"""A training step of DARTS_V2 against the published way of computing it.

    python -m benchmarks.training_step [--rounds 3] [--batch 16]

36 channels, 20 cells, 32×32, auxiliary head, clipping and SGD. Prints the speed-up (target ≥ 1.8).
"""

from __future__ import annotations

import argparse
from functools import partial

import torch

from benchmarks.reference.derived_network import PlainNetwork
from benchmarks.retrain_step import DARTS_V2, BareLoop
from benchmarks.timing import medians, report
from nas_lightning.spaces import DartsSpace


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    torch.manual_seed(0)
    space, size = DartsSpace(), {"in_channels": 3, "num_classes": 10, "channels": 36, "cells": 20}
    network = space.network(space.parse(DARTS_V2), **size, auxiliary=True)
    x, y = torch.randn(options.batch, 3, 32, 32), torch.randint(10, (options.batch,))
    loops = {
        "published training step": BareLoop(PlainNetwork(network)),
        "our training step": BareLoop(network),
    }
    seconds = medians({name: partial(loop.step, x, y) for name, loop in loops.items()}, options.rounds)
    report(seconds)
    published, ours = seconds.values()
    print(f"published training step / ours: {published / ours:.2f} (target ≥ 1.8)")


if __name__ == "__main__":
    main()
