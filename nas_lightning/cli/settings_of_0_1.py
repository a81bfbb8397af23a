"""What version 0.1 called settings of strategies, and defaults that it had; its runs go on as they were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from nas_lightning.runs.record import Record

CLASSES = {"ActivationSearch", "Darts", "FairDarts", "Gaea", "Gdas", "PCDarts", "PRDarts", "RandomWS"}
"""What a configuration of today has no `_target_` of."""
MOVED = {
    **{f"strategy.{name}": f"strategy.sampler.{name}" for name in ("tau_start", "tau_end", "active_ops")},
    **{
        f"strategy.{name}": f"strategy.regularizer.sparsity.{name}"
        for name in ("lambda_skip", "lambda_nonskip", "pooling_group", "threshold")
    },
    **{f"strategy.{name}": f"strategy.regularizer.path.{name}" for name in ("lambda_path", "path_sum")},
    **{f"strategy.{name}": f"strategy.selection.{name}" for name in ("candidates", "valid_batches")},
    "strategy.zero_one": "strategy.regularizer.zero_one.weight",
}
CHOSEN = {
    "strategy.order=1": [],
    "strategy.order=2": ["arch_step=second_order"],
    "strategy.single_level=false": [],
    "strategy.single_level=true": ["arch_step=single_level"],
}
OF_ADAM = {
    "strategy.arch_betas": "strategy.arch_optimizer.betas",
    "strategy.arch_weight_decay": "strategy.arch_optimizer.weight_decay",
}
RATES = (3e-4, 0.1)
"""Defaults of `strategy.arch_lr` that are now null, the rate of the optimizer."""
ADDED = {"Nesbs": {"svgd_variance": "candidates"}}
"""Settings that came with another default than what was before, by class."""


def record_of_today(record: Record) -> Record:
    """The record of a run as if it had been started today: what has moved follows from its words."""
    strategy = record.config.get("strategy")
    if not isinstance(strategy, Mapping):
        return record
    name = str(strategy.get("_target_", "")).rpartition(".")[2]
    if name in ADDED:
        new = {key: value for key, value in ADDED[name].items() if key not in strategy}
        words = (*record.words, *(f"strategy.{key}={value}" for key, value in new.items()))
        return replace(record, words=words, config={**record.config, "strategy": {**strategy, **new}})
    if name not in CLASSES:
        return _with_todays_rate(record, strategy) if name == "OneShot" else record
    gone = {"_target_", *(key.partition(".")[2] for key in (*MOVED, *OF_ADAM)), "order", "single_level"}
    kept = {key: value for key, value in strategy.items() if key not in gone}
    words = tuple(words_of_today(record.words))
    return _with_todays_rate(replace(record, words=words), kept)


def _with_todays_rate(record: Record, strategy: Mapping[str, Any]) -> Record:
    """The record with these settings of the strategy, without a rate that nobody typed."""
    typed = any(word.startswith("strategy.arch_lr=") for word in record.words)
    gone = () if typed or strategy.get("arch_lr") not in RATES else ("arch_lr",)
    kept = {key: value for key, value in strategy.items() if key not in gone}
    return replace(record, config={**record.config, "strategy": kept})


def words_of_today(words: Iterable[str]) -> list[str]:
    """The same, as they are typed today.

    >>> words_of_today(["strategy=darts", "strategy.order=2", "strategy.tau_end=0.2"])
    ['strategy=darts', 'arch_step=second_order', 'strategy.sampler.tau_end=0.2']
    """
    return [new for word in words for new in _today(word)]


def _today(word: str) -> list[str]:
    key, _, value = word.partition("=")
    if key in OF_ADAM:
        return ["arch_optimizer=adam", f"{OF_ADAM[key]}={value}"]
    return CHOSEN.get(word, [f"{MOVED.get(key, key)}={value}"])
