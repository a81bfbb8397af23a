"""A search: compose its parts, fit, derive, report."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.utils import get_class
from omegaconf import DictConfig
from torch import nn

from nas_lightning.analysis.cost import cost
from nas_lightning.cli.ending import announce, finish
from nas_lightning.cli.parts import checkpoint, make, make_trainer, metrics, typed
from nas_lightning.data import SearchData
from nas_lightning.genotype import FILE_NAME, Genotype, write_genotypes
from nas_lightning.spaces import SearchSpace
from nas_lightning.strategies import Strategy
from nas_lightning.version import __version__


def run(cfg: DictConfig) -> dict[str, Any]:
    """Search; returns what the run's summary says."""
    data: SearchData = make(cfg.search_data, data=make(cfg.dataset))
    space: SearchSpace = make(cfg.space)
    sizes = {"in_channels": data.image[0], "num_classes": data.num_classes}

    def network(genotype: Genotype) -> nn.Module:
        return space.network(genotype, **sizes, **cfg.network)

    parts: dict[str, Callable[[], Any]] = {
        "space": lambda: space,
        "supernet": lambda: space.supernet(**sizes, **cfg.supernet),
        "network": lambda: network,
        "data": lambda: data,
    }
    strategy = build(cfg.strategy, parts)
    data.setup()  # finds what is wrong with the images before the run is announced
    trainer = make_trainer(cfg)
    announce(f"Searching {space.name} with {type(strategy).__name__} on {data.name}", cfg)
    trainer.fit(strategy, data, ckpt_path=checkpoint(cfg))
    genotypes = strategy.derive() if not cfg.derivation else make(cfg.derivation)(strategy, data)
    return _conclude(cfg, trainer, strategy, data, network, genotypes)


def build(cfg: DictConfig, parts: Mapping[str, Callable[[], Any]]) -> Strategy:
    """Instantiate a strategy with those of the parts that its constructor names."""
    wanted: set[str] = set()
    for ancestor in get_class(cfg._target_).__mro__:  # base classes take what subclasses pass on
        if "__init__" in vars(ancestor):
            wanted |= set(inspect.signature(ancestor).parameters)
    return make(cfg, **{name: part() for name, part in parts.items() if name in wanted})


def _conclude(
    cfg: DictConfig,
    trainer: pl.Trainer,
    strategy: Strategy,
    data: SearchData,
    network: Callable[[Genotype], nn.Module],
    genotypes: list[Genotype],
) -> dict[str, Any]:
    size = cost(network(genotypes[0]), data.image)
    facts = {
        "strategy": type(strategy).__name__,
        "space": strategy.space.name,
        "dataset": data.name,
        "seed": cfg.seed,
        "versions": {"nas_lightning": __version__, "torch": torch.__version__},
        "params": size.params,
        "macs": size.macs,
        "metrics": metrics(trainer),
        "notation": [strategy.space.notation(genotype) for genotype in genotypes],
    }
    if trainer.is_global_zero:
        write_genotypes(Path(cfg.run) / FILE_NAME, genotypes, **facts)
        following = " ".join(
            ["python train.py genotype=file", f"genotype.path={cfg.run}", *typed("dataset")]
        )
        finish(Path(cfg.run), facts, [str(genotype) for genotype in genotypes], following)
    return facts
