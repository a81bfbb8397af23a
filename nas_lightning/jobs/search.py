"""Run a search: fit the strategy, derive genotypes, and write the summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytorch_lightning as pl

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.jobs.limits import limited_costs, measure_here
from nas_lightning.jobs.measurements import check_steps, last_metrics, stopwatch_of
from nas_lightning.jobs.parts import Parts, parameters
from nas_lightning.objectives.counts import cost
from nas_lightning.objectives.fronts import write_front
from nas_lightning.objectives.tables import TabularBenchmark
from nas_lightning.runs.facts import RunFacts
from nas_lightning.runs.folder import RunFolder
from nas_lightning.strategies import Strategy

Derivation = Callable[[Strategy, SearchData], list[Genotype]]
"""(strategy, data) → the genotypes of a finished search, the best first."""


def search(
    strategy: Strategy | Callable[..., Strategy],
    parts: Parts[SearchData],
    trainer: pl.Trainer | None = None,
    *,
    derivation: Derivation | None = None,
    checkpoint: str | Path | None = None,
    overrides: Sequence[str] = (),
) -> RunFacts:
    """Run a search, and write its results to the folder.

    Args:
        strategy: the strategy, or a class or partial that is called with the parts that it names.
        parts: space, images, seed, and folder of the run.
        trainer: fits the strategy. Default: `parts.trainer()`.
        derivation: derives genotypes from the fitted strategy. Default: `strategy.derive()`.
        checkpoint: the checkpoint of a stopped run to resume.
        overrides: the overrides of the run, for its summary.

    >>> from tempfile import TemporaryDirectory
    >>> from nas_lightning.data import Fake
    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.strategies import Darts
    >>> quiet = {f"enable_{what}": False for what in ("progress_bar", "model_summary", "checkpointing")}
    >>> data, sizes = SearchData(Fake(shape=(1, 8, 8))), {"channels": 2, "cells": 1}
    >>> with TemporaryDirectory() as folder:
    ...     parts = Parts(NasBench201(), data, Path(folder), seed=3, supernet_sizes=sizes)
    ...     trainer = pl.Trainer(max_epochs=1, limit_train_batches=1, logger=False, **quiet)
    ...     facts = search(Darts, parts, trainer)
    ...     facts.strategy, RunFolder(folder).facts == facts
    ('Darts', True)
    """
    strategy = strategy if isinstance(strategy, Strategy) else build_strategy(strategy, parts)
    trainer = trainer or parts.trainer()
    stopwatch = stopwatch_of(trainer)
    strategy.check_length(trainer.max_epochs)
    trainer.fit(strategy, parts.data, ckpt_path=checkpoint)
    strategy.to(trainer.strategy.root_device)  # Lightning has moved it to the CPU
    stopwatch.go_on()
    if strategy.needs_steps:
        check_steps(trainer)
    derived = strategy.derive() if derivation is None else derivation(strategy, parts.data)
    genotypes = list(dict.fromkeys(strategy.space.keep_limits(genotype) for genotype in derived))
    seconds = round(stopwatch.seconds(), 1)  # without the summary that follows
    front = strategy.front()
    chosen = genotypes[0 if front is None else front.knee]
    size = cost(parts.network(chosen), parts.data.image)
    looked_up, note = look_up(chosen, parts.benchmark)
    if front is not None:
        looked_up["hypervolume"] = front.hypervolume
    facts = RunFacts(
        "search",
        seed=parts.seed,
        metrics={**last_metrics(trainer, parts.folder), **looked_up},
        seconds=seconds,
        overrides=tuple(overrides),
        space=parts.space.name,
        space_settings=parts.space.settings.to_dict(),
        dataset=parts.data.name,
        strategy=strategy.label,
        params=size.params,
        macs=size.macs,
        notation=tuple(parts.space.notation(genotype) for genotype in genotypes),
        knee=None if front is None else front.knee,
        note=note or strategy.note,
        limits=limited_costs(parts, chosen),
        measured=measure_here(parts, chosen) if trainer.is_global_zero else {},
    )
    if trainer.is_global_zero:
        if front is not None:
            write_front(RunFolder(parts.folder), front, facts.notation)
        RunFolder(parts.folder).finish(facts, genotypes)
    return facts


def look_up(genotype: Genotype, benchmark: TabularBenchmark | None) -> tuple[dict[str, float], str | None]:
    """Return the entries of a tabular benchmark for the result, and a note if it lacks the architecture."""
    if benchmark is None:
        return {}, None
    note = None if benchmark.knows(genotype) else "not in the table (benchmark.path): its accuracy is unknown"
    return benchmark.describe(genotype), note


def build_strategy(factory: Callable[..., Strategy], parts: Parts[SearchData]) -> Strategy:
    """Build the strategy; if its constructor takes no seed, its generator is seeded with the run's seed."""
    if parts.objectives is not None and "objectives" not in parameters(factory):
        expected = "`objectives` needs a multi-objective strategy, such as strategy=evolution"
        raise InputError(expected, got=", ".join(parts.objectives.names), where="objectives")
    strategy: Strategy = parts.build(factory)
    if "seed" not in parameters(factory):
        strategy.generator.manual_seed(parts.seed)
    return strategy
