"""Thousands of architectures scored by several processes, to a file that a second call goes on from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import nn

from nas_lightning.backends import Backend, spread
from nas_lightning.checks import PositiveInt, checked, entries
from nas_lightning.genotype import Genotype
from nas_lightning.machine import Processes
from nas_lightning.metrics.base import Metric, score
from nas_lightning.metrics.passes.initialise import Scheme, initialise
from nas_lightning.metrics.passes.shared import Batch
from nas_lightning.metrics.passes.targets import check_batch
from nas_lightning.metrics.pool.file import MetricValues, PoolFile
from nas_lightning.progress import follow, never
from nas_lightning.randomness import seed_of_name
from nas_lightning.spaces.base import SearchSpace


@checked
def score_pool(
    space: SearchSpace,
    network: Callable[[Genotype], nn.Module],
    genotypes: Iterable[Genotype],
    batch: Batch,
    metrics: Annotated[Mapping[str, Metric], entries(1)],
    *,
    path: str | Path | None = None,
    workers: Processes = 1,
    threads: PositiveInt = 1,
    scheme: Scheme = "lecun",
    seed: int = 0,
    backend: Backend = "processes",
    progress: bool = True,
    out_of_time: Callable[[], bool] = never,
) -> list[MetricValues]:
    """The metrics of each genotype, in the order of the genotypes; out of time, those of the first few.

    The weights of an architecture are drawn from `seed` and its notation, so its scores are the same bits in
    whatever pool, order or number of processes it is scored; another number of threads changes the last bits.

    Args:
        space: whose notation names the architectures.
        network: genotype → derived network; what it closes over goes to the processes.
        genotypes: the pool; an architecture that comes twice is scored once.
        batch: inputs and labels that all are scored on.
        metrics: by the names that their values get.
        path: a CSV file that each result is appended to as it comes. Where it exists, its architectures are
            not scored again; `<path>.json` beside it has the settings, and others are refused.
        workers: processes; 1 stays in this one. A cluster of Ray's or Dask's has its own.
        threads: of each process.
        scheme: how the weights are drawn, see `initialise`.
        seed: of the weights.
        backend: `processes` of this machine, or `ray` or `dask`, where that package is installed.
        progress: say rate and time left.
        out_of_time: asked after each, and no other is scored where it says so.
    """
    work = Work(network, batch, dict(metrics), scheme, seed, threads)
    genotypes = list(genotypes)
    pool = {space.notation(genotype): genotype for genotype in genotypes}
    file = None if path is None else PoolFile(Path(path), list(metrics), _settings(space, work))
    scores_of = {} if file is None else file.read()
    todo = {name: genotype for name, genotype in pool.items() if name not in scores_of}
    done = spread(work, list(todo.items()), workers=workers, backend=backend)
    started = len(pool) - len(todo)
    for name, scores in follow(done, "architectures", total=len(pool), done=started, shown=progress):
        scores_of[name] = scores
        if file is not None:
            file.append(name, scores)
        if out_of_time():
            break
    named = (space.notation(genotype) for genotype in genotypes)
    return [scores_of[name] for name in takewhile(scores_of.__contains__, named)]


def check_pool(
    path: Path,
    space: SearchSpace,
    network: Callable[[Genotype], nn.Module],
    batch: Batch,
    metrics: Mapping[str, Metric],
    seed: int,
) -> None:
    """Raise for a file that `score_pool` would not go on with by these settings; nothing is scored."""
    work = Work(network, batch, dict(metrics), "lecun", seed, threads=1)
    PoolFile(path, list(metrics), _settings(space, work)).check()


@dataclass(frozen=True)
class Work:
    """What is done to each architecture, in whatever process.

    Args:
        network: genotype → derived network.
        batch: inputs and labels that all are scored on.
        metrics: by the names that their values get.
        scheme: how the weights are drawn.
        seed: of the weights.
        threads: of each process.
    """

    network: Callable[[Genotype], nn.Module]
    batch: Batch
    metrics: Mapping[str, Metric]
    scheme: Scheme
    seed: int
    threads: int

    def __post_init__(self) -> None:
        check_batch(*self.batch)

    def __call__(self, name: str, genotype: Genotype) -> tuple[str, MetricValues]:
        threads = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            with torch.random.fork_rng(devices=[]):
                return name, self.score(name, genotype)
        finally:
            torch.set_num_threads(threads)

    def score(self, name: str, genotype: Genotype) -> MetricValues:
        """The metrics of one architecture; where shapes suffice, of a network that has nothing else."""
        if all(metric.shapes_only for metric in self.metrics.values()):
            try:
                with torch.device("meta"):
                    network = self.network(genotype).to("meta")
                    x, labels = (part.to("meta") for part in self.batch)
                    return score(network, (x, labels), self.metrics)
            except Exception:  # a network that decides by values, which shapes alone do not have
                pass
        return score(self.build(name, genotype), self.batch, self.metrics)

    def build(self, name: str, genotype: Genotype) -> nn.Module:
        """The network with its own weights, which its name and the seed determine."""
        seed = seed_of_name(self.seed, name)
        torch.manual_seed(seed)  # for layers that `initialise` leaves alone
        network = self.network(genotype)
        initialise(network, self.scheme, torch.Generator().manual_seed(seed))
        return network


def _settings(space: SearchSpace, work: Work) -> dict[str, Any]:
    """What the scores depend on, in a form that can be compared: of data and network their digests."""
    example = space.unlimited.sample(torch.Generator().manual_seed(0))  # whatever limits a search has
    with torch.random.fork_rng(devices=[]):
        network = work.network(example)
    images, labels = (part.cpu().contiguous().numpy().tobytes() for part in work.batch)
    return {
        "space": space.name,
        "network": _digest(str(network).encode()),
        "batch": _digest(images + labels),
        "metrics": {name: repr(metric) for name, metric in work.metrics.items()},
        "scheme": work.scheme,
        "seed": work.seed,
        "threads": work.threads,
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
