"""What a step of each strategy costs, in time and memory, beside a step of DARTS and a single path.

    python -m benchmarks.strategy_step [--rounds 9] [--batch 16]

The supernet is the paper's: 16 channels, 8 cells, 32×32. Prints at the end the cost of PR-DARTS' weight and
architecture steps over those of DARTS, and their memory, beside the least that two of eight operations can
cost: a quarter of the operations, and all that stands around them. It is less than can be had, for edges of
one input share its rectification and its pools: more than a quarter of these is left, which is printed, too.

What a sampled step costs depends on its draw, so draws are timed in eights: the same one with the operations
of every edge moved on by one, so that each is computed equally often.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.memory import saved_bytes
from benchmarks.timing import medians, report
from nas_lightning.spaces import DartsSpace
from nas_lightning.spaces.supernet import Active
from nas_lightning.strategies import Darts, Gdas, OneShot, PRDarts
from nas_lightning.training.gradients import constant, gradients

REST = "all but the operations,"
SHARED = {
    "convolutions": ("convolution",),
    "rectifications": ("relu",),
    "pools": ("avg_pool2d", "max_pool2d_with_indices"),
}
AROUND = {"normal": "skip_connect", "reduce": "max_pool_3x3"}  # on every edge: next to no work there


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    torch.manual_seed(0)
    space = DartsSpace()
    supernet = space.supernet(in_channels=3, num_classes=10, channels=16, cells=8)
    x, y = torch.randn(options.batch, 3, 32, 32), torch.randint(10, (options.batch,))
    strategies = {
        "DARTS": Darts(space, supernet),
        "PR-DARTS": PRDarts(space, supernet),
        "GDAS": Gdas(space, supernet),
    }

    columns = len(space.group.ops)
    around = {name: torch.zeros(group.shape, dtype=torch.bool) for name, group in space.groups.items()}
    for name, op in AROUND.items():
        around[name][:, space.group.column(op)] = True

    def loss(strategy: OneShot, arch: bool, shift: int = 0, active: Active | None = None) -> Tensor:
        with torch.set_grad_enabled(arch):
            relaxed = strategy.relax()
            weights = roll(relaxed.weights, shift)
        sampled = active if relaxed.active is None else roll(relaxed.active, shift)
        value = F.cross_entropy(supernet(x, weights, sampled), y)
        return strategy.add_penalties(value, relaxed) if arch else value

    def shifts(strategy: OneShot) -> Iterator[int]:
        """Return one shift for DARTS, else one for each operation, from the same draw."""
        state = strategy.generator.get_state()
        for shift in range(1 if strategy is strategies["DARTS"] else columns):
            strategy.generator.set_state(state)
            yield shift

    def steps(strategy: OneShot, arch: bool, active: Active | None = None) -> None:
        wanted = strategy.arch_list if arch else strategy.weight_list
        for shift in shifts(strategy):
            with constant(strategy.weight_list if arch else ()):
                gradients(loss(strategy, arch, shift, active), wanted)

    works: dict[str, Callable[[], object]] = {}
    for name, strategy in strategies.items():
        works[f"{name} weight step"] = lambda s=strategy: steps(s, False)
        works[f"{name} arch step"] = lambda s=strategy: steps(s, True)
    works[f"{REST} weight step"] = lambda: steps(strategies["DARTS"], False, around)
    works[f"{REST} arch step"] = lambda: steps(strategies["DARTS"], True, around)
    costs = medians(works, options.rounds)
    for name in costs:
        if name.startswith(("PR-DARTS", "GDAS")):
            costs[name] /= columns
    report(costs)
    print(f"GDAS arch step / its weight step: {costs['GDAS arch step'] / costs['GDAS weight step']:.2f}")
    for name, strategy in strategies.items():
        sizes = [saved_bytes(lambda s=strategy, n=n: loss(s, False, n)) for n in shifts(strategy)]
        costs[f"{name} memory"] = statistics.mean(sizes)
    costs[f"{REST} memory"] = saved_bytes(lambda: loss(strategies["DARTS"], False, active=around))
    for name in (*strategies, REST):
        print(
            f"{name + ' memory kept for the backward pass':48s} {costs[f'{name} memory'] / 2**20:10.1f} MiB"
        )
    calls = {
        name: sum(
            (count_calls(lambda s=strategy, n=n: loss(s, False, n)) for n in shifts(strategy)), Counter()
        )
        for name, strategy in strategies.items()
    }
    for kind, operations in SHARED.items():
        counts = {name: sum(calls[name][operation] for operation in operations) for name in calls}
        share = counts["PR-DARTS"] / columns / counts["DARTS"]
        print(f"{kind} of PR-DARTS / of DARTS: {share:.3f}")
    for cost in ("memory", "arch step", "weight step"):
        full, sampled, rest = (costs[f"{name} {cost}"] for name in ("DARTS", "PR-DARTS", REST))
        least = 0.25 + 0.75 * rest / full
        print(f"PR-DARTS {cost} / DARTS: {sampled / full:.3f} (at least {least:.3f})")


class _Calls(TorchDispatchMode):
    """Counts the calls of each operation."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def count_calls(work: Callable[[], object]) -> Counter[str]:
    """Return the number of calls of each operation, by name."""
    with _Calls() as calls:
        work()
    return calls.counts


def roll(matrices: Mapping[str, Tensor], by: int) -> dict[str, Tensor]:
    """Rotate the columns of the operations."""
    return {name: matrix.roll(by, dims=-1) for name, matrix in matrices.items()}


if __name__ == "__main__":
    main()
