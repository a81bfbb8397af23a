"""The order of samples: pure functions of the seed, the epoch, and the number of the batch.

A killed run resumes with the next batch, and two processes with batches of b see the same samples as one with
2b: the *global* batch is drawn, and each process takes a contiguous share of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.utils.randomness import generator

# Purposes of generators, part of their keys, so that no two purposes share random numbers
ORDER, AUGMENT, SAMPLE, SUBSET, HOLD_OUT, SEARCH_SPLIT, PLAIN, CONTENT = range(8)


@dataclass(frozen=True)
class BatchRows:
    """The share of one process in a global batch: `rows` of the set, from position `first` of `total`.

    Args:
        rows: (batch,), which samples of the set.
        first: the position of the first of them in the global batch.
        total: the size of the global batch.
        key: of the generators for the batch.
    """

    rows: Tensor  # (batch,)
    first: int = 0
    total: int = 0
    key: tuple[int, ...] = ()


def training_rows(
    size: int, batch_size: int, seed: int, epoch: int, start: int, count: int, rank: int, world: int
) -> Iterator[BatchRows]:
    """Yield `count` batches from number `start`, pass after pass, each in a new order.

    `batch_size` is that of one process. A pass ends with its last full batch.
    """
    total = batch_size * world
    per_pass = size // total
    first = rank * batch_size
    order, order_of = torch.empty(0), -1
    for number in range(start, start + count):
        nth, within = divmod(number, per_pass)
        if nth != order_of:
            order, order_of = torch.randperm(size, generator=generator(ORDER, seed, epoch, nth)), nth
        begin = within * total + first
        yield BatchRows(order[begin : begin + batch_size], first, total, (seed, epoch, number))


def evaluation_rows(size: int, batch_size: int, rank: int, world: int) -> list[BatchRows]:
    """Return every sample once, in order: contiguous shares of the processes, with equal numbers of batches.

    Shares differ by at most one sample. If one process had a batch more than another, the other splits one
    sample off its last batch: no sample is repeated or padded, and sums are exact.
    """
    shares = [size // world + (r < size % world) for r in range(world)]
    begin, share = sum(shares[:rank]), shares[rank]
    batches = -(-shares[0] // batch_size)
    if shares[-1] < batches:
        raise InputError(f"There must be at least {batches * world} samples, or larger batches", got=size)
    starts = [min(i * batch_size, share - (batches - i)) for i in range(batches)] + [share]
    return [BatchRows(torch.arange(begin + a, begin + b)) for a, b in pairwise(starts)]


def stratified_split(labels: Tensor, fraction: float, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Split rows into two disjoint parts, the first with `fraction` of the samples of every class.

    Each sample gets a random position in its class, (position + ½) / class size; the samples with the
    smallest positions are the first part. Its size is round(fraction · n); classes are exact to one sample.
    """
    size = len(labels)
    shuffled = torch.randperm(size, generator=random)
    place = torch.empty(size, dtype=torch.float64)
    for label in labels.unique():
        rows = shuffled[labels[shuffled] == label]
        place[rows] = (torch.arange(len(rows), dtype=torch.float64) + 0.5) / len(rows)
    order = shuffled[torch.argsort(place[shuffled], stable=True)]
    cut = round(fraction * size)
    if not 0 < cut < size:
        raise InputError(f"The fraction must leave samples of {size} on both sides", got=fraction)
    return order[:cut].sort().values, order[cut:].sort().values
