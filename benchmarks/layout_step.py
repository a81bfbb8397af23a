"""Steps whose maps keep their channels last, against the same with torch's own concatenation and slices.

    python -m benchmarks.layout_step [--rounds 5] [--batch 16]

Training steps of DARTS_V2 (36 channels, 20 cells) and of a NAS-Bench-101 network (32 channels, 3 cells a
stack), and the steps of PC-DARTS' supernet (16 channels, 8 cells, a quarter of them through the operations).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.retrain_step import DARTS_V2
from benchmarks.timing import medians, report
from nas_lightning.spaces import DartsSpace, NasBench101, darts, graph, nasbench1shot1, nasbench101
from nas_lightning.training.gradients import constant, gradients

PLAIN = {
    (darts, "concatenate"): lambda maps: torch.cat(maps, dim=1),
    (graph, "concatenate"): lambda maps: torch.cat(maps, dim=1),
    (graph, "divide"): lambda x, parts: (x[:, : x.shape[1] // parts], x[:, x.shape[1] // parts :]),
    (graph, "channel_shuffle"): lambda x, groups: x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2),
    (nasbench101, "concatenate"): lambda maps: torch.cat(maps, dim=1),
    (nasbench101, "reduce"): lambda add, maps: torch.stack(maps).sum(dim=0) if len(maps) > 1 else maps[0],
    (nasbench1shot1, "concatenate"): lambda maps: torch.cat(maps, dim=1),
    (nasbench1shot1, "reduce"): lambda add, maps: torch.stack(list(maps)).sum(dim=0),
}
"""What stands in the place of ours, by module and name."""


@contextmanager
def plain_channels() -> Iterator[None]:
    """Use torch's concatenation and slices of channels inside the context."""
    ours = {(module, name): getattr(module, name) for module, name in PLAIN}
    for (module, name), way in PLAIN.items():
        setattr(module, name, way)
    try:
        yield
    finally:
        for (module, name), way in ours.items():
            setattr(module, name, way)


def training_step(network: nn.Module, x: Tensor, y: Tensor) -> None:
    gradients(F.cross_entropy(network(x), y), list(network.parameters()))


def build_steps(batch: int) -> dict[str, Callable[[], None]]:
    """Return each kind of step by name."""
    x, y = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
    sizes = {"in_channels": 3, "num_classes": 10}
    space, other = DartsSpace(), NasBench101()
    darts_v2 = space.network(space.parse(DARTS_V2), **sizes, channels=36, cells=20)
    module = other.sample(torch.Generator().manual_seed(1))
    supernet = space.supernet(**sizes, channels=16, cells=8, partial=4)
    arch = {name: torch.zeros(group.shape, requires_grad=True) for name, group in space.groups.items()}
    parameters = list(supernet.parameters())

    def search_step(weights: bool) -> None:
        shares = {name: torch.softmax(beta, dim=-1) for name, beta in arch.items()}
        given = {name: share.detach() for name, share in shares.items()} if weights else shares
        with constant(() if weights else parameters):
            gradients(F.cross_entropy(supernet(x, given), y), parameters if weights else list(arch.values()))

    return {
        "DARTS_V2": partial(training_step, darts_v2, x, y),
        "NAS-Bench-101": partial(training_step, other.network(module, **sizes, channels=32, cells=3), x, y),
        "PC-DARTS weight step": partial(search_step, weights=True),
        "PC-DARTS arch step": partial(search_step, weights=False),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    torch.manual_seed(0)
    steps = build_steps(options.batch)
    works = {name: plain_channels()(step) for name, step in steps.items()}
    seconds = medians(
        {
            f"{way} {name}": work
            for name in steps
            for way, work in (("slices", works[name]), ("ours", steps[name]))
        },
        options.rounds,
    )
    report(seconds)
    for name in steps:
        print(f"{name}, slices / ours: {seconds[f'slices {name}'] / seconds[f'ours {name}']:.2f}")


if __name__ == "__main__":
    main()
