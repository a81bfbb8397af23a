"""What runs that are compared must share: all but what is compared, seeds, data and where they ran."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nas_lightning.errors import InputError
from nas_lightning.report.paired.joins import Joined
from nas_lightning.report.record import RunRecord
from nas_lightning.report.side_by_side import flatten
from nas_lightning.text import short_path

_FREE = (  # what says where and how often something ran, and not what
    *("run", "resume", "seed", "logger", "callbacks", "launcher", "objective", "genotype.path", "experiment"),
    *("dataset.seed", "dataset.root", "dataset.download", "dataset.num_workers", "dataset.in_memory"),
    *("trainer.devices", "trainer.accelerator", "trainer.num_nodes", "trainer.strategy", "benchmark.path"),
)


def check_alike(joined: Sequence[Joined], by: Iterable[str]) -> None:
    """Raise for the first setting that sets runs apart beside what is compared.

    Searches of one arm share all their settings, those of different arms need not; trainings share theirs
    throughout. Different data sets have what is theirs.
    """
    searches: dict[tuple[str, str], list[RunRecord]] = {}
    trainings: dict[str, list[RunRecord]] = {}
    for one in joined:
        searches.setdefault((one.arm, one.data), []).append(one.search)
        if one.training is not None:
            trainings.setdefault(one.data, []).append(one.training)
    free = (*_FREE, *by)
    for (arm, _), runs in searches.items():
        _check_same(runs, f"expected searches of {arm} that differ in their seeds only", free)
    for runs in trainings.values():
        _check_same(runs, "expected trainings that differ in their seeds and architectures only", free)


def _check_same(runs: Sequence[RunRecord], expected: str, free: Sequence[str]) -> None:
    first, kept = runs[0], _kept(runs[0], free)
    for run in runs[1:]:
        other = _kept(run, free)
        for key in dict.fromkeys([*kept, *other]):
            if kept.get(key) != other.get(key):
                values = f"{key}={kept.get(key)} and {key}={other.get(key)}"
                where = f"{short_path(first.run)}, {short_path(run.run)}"
                raise InputError(expected, got=values, where=where)


def _kept(run: RunRecord, free: Sequence[str]) -> dict[str, str]:
    chosen = {group: str(option) for group, option in run.choices.items() if "/" not in group}
    settings = {**chosen, **dict(flatten(run.config))}
    return {k: v for k, v in settings.items() if not any(k == f or k.startswith(f"{f}.") for f in free)}
