"""What a step of each strategy costs, in time and memory, beside a step of DARTS and a single path.

    python -m benchmarks.strategy_step [--rounds 9] [--batch 16]

The supernet is the paper's: 16 channels, 8 cells, 32×32. Prints at the end the cost of PR-DARTS' weight and
architecture steps over those of DARTS (target ≤ 0.27 each), their memory, and GDAS over a single path.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.memory import saved_bytes
from benchmarks.timing import medians, report
from nas_lightning.spaces import DartsSpace
from nas_lightning.strategies import Darts, Gdas, PRDarts
from nas_lightning.strategies.bilevel import Bilevel
from nas_lightning.strategies.gradients import gradients

DRAWS = 6  # steps of a strategy that samples are timed together: each costs what its draw costs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    torch.manual_seed(0)
    space = DartsSpace()
    supernet = space.supernet(in_channels=3, num_classes=10)
    x, y = torch.randn(options.batch, 3, 32, 32), torch.randint(10, (options.batch,))
    strategies = {
        "DARTS": Darts(space, supernet),
        "PR-DARTS": PRDarts(space, supernet),
        "GDAS": Gdas(space, supernet),
    }

    def loss(strategy: Bilevel, arch: bool) -> Tensor:
        with torch.set_grad_enabled(arch):
            relaxed = strategy.relax()
        value = F.cross_entropy(supernet(x, relaxed.weights, relaxed.active), y)
        extra = strategy.regulariser() if arch else None
        return value if extra is None else value + extra

    def steps(strategy: Bilevel, arch: bool) -> None:
        for _ in range(DRAWS if strategy is not strategies["DARTS"] else 1):
            gradients(loss(strategy, arch), strategy.arch_list if arch else strategy.weight_list)

    works: dict[str, Callable[[], object]] = {}
    for name, strategy in strategies.items():
        works[f"{name} weight step"] = lambda s=strategy: steps(s, False)
        works[f"{name} arch step"] = lambda s=strategy: steps(s, True)
    path = space.one_hot(space.sample(torch.Generator().manual_seed(0)))
    single = {
        name: (matrix.cumsum(1) == 0).int().sum(1) for name, matrix in path.items()
    }  # any column will do
    one_op = {
        name: torch.nn.functional.one_hot(columns.clamp(max=7), 8).float() for name, columns in single.items()
    }
    works["one operation an edge, weight step"] = lambda: gradients(
        F.cross_entropy(supernet(x, one_op), y), list(supernet.parameters())
    )
    seconds = medians(works, options.rounds)
    for name in seconds:
        if name.startswith(("PR-DARTS", "GDAS")):
            seconds[name] /= DRAWS
    report(seconds)
    memory = {
        name: statistics.mean(saved_bytes(lambda s=s: loss(s, False)) for _ in range(DRAWS))
        for name, s in strategies.items()
    }
    for name, size in memory.items():
        print(f"{name + ' memory kept for the backward pass':48s} {size / 2**20:10.1f} MiB")
    print(f"GDAS arch step / its weight step: {seconds['GDAS arch step'] / seconds['GDAS weight step']:.2f}")
    print(f"PR-DARTS memory / DARTS: {memory['PR-DARTS'] / memory['DARTS']:.3f}")
    for step in ("arch", "weight"):
        ratio = seconds[f"PR-DARTS {step} step"] / seconds[f"DARTS {step} step"]
        print(f"PR-DARTS {step} step / DARTS: {ratio:.3f} (target ≤ 0.27)")


if __name__ == "__main__":
    main()
