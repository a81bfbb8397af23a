"""Peak memory of a process during a step of DARTS: the published way, ours, and `checkpoint_cells`.

    python -m benchmarks.memory [--batch 64] [--ways ours checkpointed]

16 channels, 8 cells, 32×32, each step in a process of its own. Prints gigabytes; the targets for a batch of
64 are 6 GB for the architecture step, which needs more than the weight step, and 4 GB with
`checkpoint_cells`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from benchmarks.reference.darts_supernet import PlainSupernet
from nas_lightning.spaces import DartsSpace
from nas_lightning.training.gradients import constant, gradients

WAYS = ("published", "ours", "checkpointed")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    options = parser.parse_args()
    for way in options.ways:
        for step in ("weight", "arch"):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                peak = pool.apply(measure, (way, step, options.batch))
            print(f"{f'{way} {step} step':40s} {peak:8.2f} GB", flush=True)


def measure(way: str, step: str, batch: int) -> float:
    """Return gigabytes, including those of Python and torch."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    space = DartsSpace()
    supernet = space.supernet(in_channels=3, num_classes=10, channels=16, cells=8)
    supernet.backbone.checkpointed = way == "checkpointed"
    net = PlainSupernet(supernet, space.group.edges, space.group.ops) if way == "published" else supernet
    arch = {name: torch.nn.Parameter(1e-3 * torch.randn(group.shape)) for name, group in space.groups.items()}
    weights = {name: torch.softmax(beta, dim=-1) for name, beta in arch.items()}
    if step == "weight":
        weights = {name: matrix.detach() for name, matrix in weights.items()}
    parameters = list(net.parameters())
    with constant(parameters if step == "arch" and way != "published" else ()):
        loss = F.cross_entropy(net(torch.randn(batch, 3, 32, 32), weights), torch.randint(10, (batch,)))
        gradients(loss, parameters if step == "weight" else list(arch.values()))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def saved_bytes(forward: Callable[[], Tensor]) -> int:
    """Return the bytes of the distinct storages that autograd saves for the backward pass."""
    storages: dict[int, int] = {}
    kept: list[Tensor] = []  # so that no storage is freed and its address used again

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        kept.append(tensor)
        return tensor

    with torch.enable_grad(), saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = forward()
    del loss
    return sum(storages.values())


if __name__ == "__main__":
    main()
