"""The processes of a distributed run, and the GPUs of processes that run side by side."""

from __future__ import annotations

import getpass
import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import torch
from filelock import FileLock, Timeout
from torch import distributed as dist

Item = TypeVar("Item")
Result = TypeVar("Result")


def rank_and_world() -> tuple[int, int]:
    """Return the number of this process and the number of processes."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def from_first(work: Callable[[], Result]) -> Result:
    """Do the work in the first process, and return its result in all of them."""
    rank, world = rank_and_world()
    if world == 1:
        return work()
    box: list[Any] = [work() if rank == 0 else None]
    dist.broadcast_object_list(box)
    return box[0]


def share_out(
    run: Callable[[Sequence[Item]], Iterable[Result]], items: Sequence[Item], count: int = 8
) -> Iterator[Result]:
    """Yield the results of `run`, which every process calls with its share of the items.

    All processes yield the same results in the same order. A single process yields each as it comes.

    Args:
        run: yields a result per item.
        items: the same on all processes.
        count: items per process between two exchanges.

    >>> list(share_out(lambda own: (2 * item for item in own), [1, 2, 3]))
    [2, 4, 6]
    """
    rank, world = rank_and_world()
    if world == 1:
        yield from run(items)
        return
    for start in range(0, len(items), count * world):
        results: list[Any] = [None] * world
        dist.all_gather_object(results, list(run(items[start : start + count * world][rank::world])))
        yield from itertools.chain(*results)


# Parallel jobs of one machine share out its GPUs. A process holds a lock for each GPU that it uses; the
# system releases them when the process ends.

_claimed: list[FileLock] = []


def claim_gpus(count: int = 1) -> None:
    """Let this process see only `count` of the visible GPUs: those that fewest processes have claimed.

    It sets CUDA_VISIBLE_DEVICES, so it has an effect only before the process first uses CUDA. It does nothing
    if there is no choice, or if the process has claimed GPUs before.
    """
    if _claimed or torch.cuda.is_initialized():
        return
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = [*map(str, range(torch.cuda.device_count()))] if named is None else named.split(",")
    blocks = [visible[start : start + count] for start in range(0, len(visible) - count + 1, count)]
    if len(blocks) < 2:
        return
    folder = Path(tempfile.gettempdir()) / f"nas_lightning_gpus_{getpass.getuser()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for turn in itertools.count():
        for block in blocks:
            with ExitStack() as undo:
                locks = [FileLock(folder / f"{gpu}_{turn}") for gpu in block]
                try:
                    for lock in locks:
                        lock.acquire(timeout=0)
                        undo.callback(lock.release)
                except Timeout:
                    continue
                undo.pop_all()
            _claimed.extend(locks)
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(block)
            return
