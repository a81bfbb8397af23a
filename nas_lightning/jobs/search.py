"""A search: compose its parts, fit, derive, report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig
from torch import nn

from nas_lightning.callbacks.stopwatch import Elapsed
from nas_lightning.cost.counts import Cost, cost
from nas_lightning.data import SearchData
from nas_lightning.genotype import FILE_NAME, Genotype, write_genotypes
from nas_lightning.jobs.ending import announce, finish, training_command
from nas_lightning.jobs.parts import build, checkpoint, make, make_trainer, metrics, sizes_of, took
from nas_lightning.runs.tracking import publish
from nas_lightning.spaces import SearchSpace
from nas_lightning.strategies import Strategy
from nas_lightning.version import __version__


def run(cfg: DictConfig) -> dict[str, Any]:
    """Search; returns what the run's summary says."""
    elapsed = Elapsed()
    space: SearchSpace = make(cfg.space)
    supernet = sizes_of(space.supernet, cfg.supernet, "supernet")
    derived = sizes_of(space.network, cfg.network, "network")
    benchmark = make(cfg.benchmark) if cfg.benchmark else None
    if benchmark is not None:
        benchmark.check_space(space)
    data: SearchData = make(cfg.search_data, data=make(cfg.dataset))
    sizes = {"in_channels": data.image[0], "num_classes": data.num_classes}

    def network(genotype: Genotype) -> nn.Module:
        return space.network(genotype, **sizes, **derived)

    any_genotype = space.sample(torch.Generator().manual_seed(0))
    with torch.device("meta"):
        network(any_genotype)  # finds sizes that cannot be now, not after the search
    parts: dict[str, Callable[[], Any]] = {
        "space": lambda: space,
        "supernet": lambda: space.supernet(**sizes, **supernet),
        "network": lambda: network,
        "data": lambda: data,
        "benchmark": lambda: benchmark,
    }
    strategy: Strategy = build(cfg.strategy, parts)
    derivation = make(cfg.derivation) if cfg.derivation else None
    if derivation is not None:
        derivation.check(strategy)
    data.setup()  # finds what is wrong with the images before the run is announced
    trainer = make_trainer(cfg, parts, [elapsed])
    start = checkpoint(cfg, strategy)
    announce(f"Searching {space.name} with {type(strategy).__name__} on {data.name}", cfg)
    trainer.fit(strategy, data, ckpt_path=start)
    genotypes = strategy.derive() if derivation is None else derivation(strategy, data)
    known = benchmark.describe(genotypes[0]) if benchmark is not None else {}
    size = cost(network(genotypes[0]), data.image)
    return _conclude(cfg, trainer, strategy, data, size, genotypes, known, elapsed)


def _conclude(
    cfg: DictConfig,
    trainer: pl.Trainer,
    strategy: Strategy,
    data: SearchData,
    size: Cost,
    genotypes: list[Genotype],
    known: Mapping[str, float],
    elapsed: Elapsed,
) -> dict[str, Any]:
    facts = {
        "strategy": type(strategy).__name__,
        "space": strategy.space.name,
        "dataset": data.name,
        "seed": cfg.seed,
        "versions": {"nas_lightning": __version__, "torch": torch.__version__},
        "params": size.params,
        "macs": size.macs,
        "metrics": {**metrics(trainer, Path(cfg.run)), **known},
        "notation": [strategy.space.notation(genotype) for genotype in genotypes],
    }
    if trainer.is_global_zero:
        write_genotypes(Path(cfg.run) / FILE_NAME, genotypes, **facts)
        found = [str(genotype) for genotype in genotypes]
        finish(Path(cfg.run), took(facts, elapsed), found, {"Train it": training_command(cfg, len(found))})
    publish(trainer.loggers, Path(cfg.run))
    return took(facts, elapsed)
