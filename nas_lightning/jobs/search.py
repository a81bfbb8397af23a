"""A search: compose its parts, fit, derive, report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig

from nas_lightning.callbacks.stopwatch import Stopwatch
from nas_lightning.cost.counts import Cost, cost
from nas_lightning.data import SearchData
from nas_lightning.genotype import FILE_NAME, Genotype, write_genotypes
from nas_lightning.jobs.configured import checkpoint, factory_of, make_trainer, metrics, searched_parts, took
from nas_lightning.jobs.ending import announce, finish, training_command
from nas_lightning.jobs.parts import Parts, parameters
from nas_lightning.runs.tracking import publish
from nas_lightning.strategies import Strategy
from nas_lightning.version import __version__


def run(cfg: DictConfig) -> dict[str, Any]:
    """Search; returns what the run's summary says."""
    elapsed = Stopwatch()
    parts = searched_parts(cfg)
    parts.check_network()
    data, benchmark = parts.data, parts.benchmark
    strategy = seeded(factory_of(cfg.strategy), parts)
    derivation = parts.build(factory_of(cfg.derivation)) if cfg.derivation else None
    if derivation is not None:
        derivation.check(strategy)
    data.setup()  # finds what is wrong with the images before the run is announced
    trainer = make_trainer(cfg, parts, [elapsed])
    start = checkpoint(cfg, strategy)
    announce(f"Searching {parts.space.name} with {type(strategy).__name__} on {data.name}", cfg)
    trainer.fit(strategy, data, ckpt_path=start)
    genotypes = strategy.derive() if derivation is None else derivation(strategy, data)
    known = benchmark.describe(genotypes[0]) if benchmark is not None else {}
    size = cost(parts.network(genotypes[0]), data.image)
    return _conclude(cfg, trainer, strategy, data, size, genotypes, known, elapsed)


def seeded(factory: Callable[..., Strategy], parts: Parts[SearchData]) -> Strategy:
    """The strategy; one whose constructor takes no seed draws from the run's all the same."""
    strategy: Strategy = parts.build(factory)
    if "seed" not in parameters(factory):
        strategy.generator.manual_seed(parts.seed)
    return strategy


def _conclude(
    cfg: DictConfig,
    trainer: pl.Trainer,
    strategy: Strategy,
    data: SearchData,
    size: Cost,
    genotypes: list[Genotype],
    known: Mapping[str, float],
    elapsed: Stopwatch,
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
