"""NASI's samples once, its step for any ν and μ afterwards (Shu et al. 2022, arXiv:2109.00817, section 4.1).

All samples are taken at α₀ = 0, so neither the architectures A_t nor ∇t(A_t) depend on ν, μ or T:

    Δ* = ξ/T Σ_t G_t / max(‖G_1‖, …, ‖G_t‖),   G_t = (1 − μ [t(A_t) > ν_t]) ∇t(A_t)             (thesis, 6.13)
    ν_t = ν, or ν_t = t⁻¹ (ν + Σ_{s<t} t(A_s))                                                  (6.14, 6.15)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nas_lightning.data import SearchData
from nas_lightning.data.batches import Batch
from nas_lightning.metrics.pool.file import PoolFile
from nas_lightning.randomness import generator
from nas_lightning.strategies.nasi.batches import replace_batch
from nas_lightning.strategies.nasi.strategy import Nasi


class TraceSamples(NamedTuple):
    """What the architectures A_1, …, A_T came to.

    Args:
        traces: t(A_t), (T,).
        slopes: ∇_α t(A_t), (T, decisions), the groups one behind the other.
    """

    traces: Tensor
    slopes: Tensor

    def first(self, steps: int) -> TraceSamples:
        """Those that a search of so many steps has.

        >>> TraceSamples(torch.arange(3.0), torch.zeros(3, 2)).first(2).traces
        tensor([0., 1.])
        """
        return TraceSamples(self.traces[:steps], self.slopes[:steps])


def trace_step(samples: TraceSamples, mu: float, nu: float, *, adaptive: bool = False) -> Tensor:
    """Δ* with ξ = 1, (decisions,).

    >>> samples = TraceSamples(torch.tensor([1.0, 9.0]), torch.tensor([[2.0, 0.0], [0.0, 4.0]]))
    >>> trace_step(samples, mu=2.0, nu=5.0)  # of the second t is too large: the step leads away from it
    tensor([ 0.5000, -0.5000])
    """
    traces, slopes = samples
    numbers = torch.arange(1, len(traces) + 1, dtype=traces.dtype)
    before = traces.cumsum(0) - traces
    nus = (nu + before) / numbers if adaptive else torch.full_like(traces, nu)
    G = torch.where(traces > nus, 1 - mu, 1.0)[:, None] * slopes
    largest = G.norm(dim=1).cummax(0).values.clamp_min(torch.finfo(G.dtype).tiny)
    return (G / largest[:, None]).mean(dim=0)


def draw_samples(
    strategy: Nasi, data: SearchData, path: Path, *, steps: int, batch_size: int, settings: Mapping[str, Any]
) -> TraceSamples:
    """The samples of a search, on a fresh mini-batch each; what the file has of them is not drawn again."""
    sizes = [parameter.numel() for parameter in strategy.arch_list]
    columns = ["trace", *(f"slope {number}" for number in range(sum(sizes)))]
    file = PoolFile(path, columns, {**settings, "batch": batch_size, "seed": strategy.seed})
    rows = file.read()
    batches = _batches(strategy, data, batch_size)
    for step, batch in enumerate(islice(batches, steps)):
        if str(step) in rows:  # its random numbers are used up, so that the next are the next
            strategy.sample(dict(strategy.arch))
            continue
        slopes, t, _ = strategy.trace_slopes(*batch)
        values = [float(t), *torch.cat([slope.flatten() for slope in slopes]).tolist()]
        rows[str(step)] = dict(zip(columns, values, strict=True))
        file.append(str(step), rows[str(step)])
    found = torch.tensor([[rows[str(step)][name] for name in columns] for step in range(steps)])
    return TraceSamples(found[:, 0].double(), found[:, 1:].double())


def _batches(strategy: Nasi, data: SearchData, batch_size: int) -> Iterator[Batch]:
    kinds = strategy.labels, strategy.inputs, data.num_classes
    for epoch in count():
        random = generator(strategy.seed, epoch)
        for batch in data.train.shuffled_pass(epoch, batch_size, strategy.seed):
            yield replace_batch(batch, *kinds, random)
