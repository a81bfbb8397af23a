"""An ensemble: each member a run of its own within the run, then all together on the test images.

A member whose run is over is not trained again; the one that was stopped goes on from its checkpoint.
Where members are selected from a pool, its candidates are what is trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from nas_lightning.data import ExternalData, ImageData
from nas_lightning.errors import DivergenceError
from nas_lightning.jobs.ensemble_findings import ensemble_findings
from nas_lightning.models.ensemble import Ensemble
from nas_lightning.models.ensemble_plans import Member, MemberSelection, Plan, predictions, select
from nas_lightning.models.evaluation import (
    Batch,
    Evaluation,
    check_images,
    evaluate,
    evaluate_task,
    every_held_out_batch,
    every_test_batch,
)
from nas_lightning.objectives.counts import cost
from nas_lightning.runs.facts import Findings, RunFacts
from nas_lightning.runs.folder import RunFolder
from nas_lightning.tasks import MultiClass, check_classes, task_of

FOLDER = "ensemble"
Value = TypeVar("Value", bound=Hashable)
TrainMember = Callable[[Member, Path, str], object]
"""(member, its folder, its name: "Member 1 of 3") → whatever; leaves a finished training in the folder."""


class Conclusion(NamedTuple):
    """What an ensemble ends in.

    Args:
        facts: its summary.
        findings: tables and figures.
        files: those that a reader opens.
        networks: how many there are, each of which may predict several times.
    """

    facts: RunFacts
    findings: Findings
    files: list[Path]
    networks: int


def ensemble(
    plan: Plan,
    train_member: TrainMember,
    data: ImageData | ExternalData,
    folder: str | Path,
    *,
    seed: int = 0,
    architecture: int = 0,
    architectures: int = 1,
    device: str | torch.device = "cpu",
    words: Sequence[str] = (),
) -> RunFacts:
    """Train the members that a plan names and evaluate them together.

    Args:
        plan: which networks, and how they are put together.
        train_member: trains one into the folder that it is given, such as by `nas_lightning.jobs.train`.
        data: the images that the ensemble is tested on.
        folder: of the run; each member has one in it.
        seed: of the run, for its summary.
        architecture: the number of the architecture that was chosen.
        architectures: how many there are.
        device: where the members predict.
        words: what was typed for the run, for its summary.
    """
    members = plan.members(architecture, architectures)
    runs = train_members(plan, members, Path(folder), train_member)
    return conclude(plan, runs, data, Path(folder), seed, device, words).facts


def train_members(
    plan: Plan, members: Sequence[Member], folder: Path, train_member: TrainMember
) -> list[Path]:
    """The folders of the members' finished runs; only what is not finished is trained."""
    what = "member" if plan.selects is None else "candidate"
    runs = []
    for number, member in enumerate(members, 1):
        run = folder / f"{what}_{number}"
        try:
            if not _has_diverged(run) and not RunFolder(run).is_complete:
                train_member(member, run, f"{what.capitalize()} {number} of {len(members)}")
        except DivergenceError as error:
            if plan.selects is None:
                raise
            RunFolder(run).finish(RunFacts("training", error=str(error)))
        if not _has_diverged(run):
            runs.append(run)
    if len(runs) < (plan.selects or 0):
        raise DivergenceError(f"expected {plan.selects} candidates that do not diverge", got=len(runs))
    return runs


def _has_diverged(run: Path) -> bool:
    """Whether a candidate's training has: it is worse than any other, and no reason to end."""
    return RunFolder(run).is_finished and RunFolder(run).facts.error is not None


def conclude(
    plan: Plan,
    runs: Sequence[Path],
    data: ImageData | ExternalData,
    folder: Path,
    seed: int,
    device: str | torch.device,
    words: Sequence[str] = (),
    own: Mapping[str, Any] = {},
) -> Conclusion:
    """Select, evaluate and write; `runs` are what was trained for it, `own` is as `make_space` takes it."""
    start, earlier = time.monotonic(), _training_seconds(runs)
    torch.manual_seed(seed)  # whatever was trained before, in this start or an earlier one
    selection = None
    if plan.selects is not None:
        check_classes(data, "members are selected by probabilities of")
        held_out = every_held_out_batch(data)
        pool = predictions(runs, held_out, torch.device(device), **own)
        selection = select(pool, plan.selects, [run.name.replace("_", " ") for run in runs])
        runs = [runs[number] for number in selection.chosen]
    together = plan.assemble(runs, **own)
    check_images(together, data)
    together.save(folder / FOLDER)
    together.to(device)
    batches = every_test_batch(data)
    findings, metrics = _judge(together, batches, selection, data)
    files = findings.write(folder)
    size, described = cost(together, data.image), together.descriptions
    facts = RunFacts(
        "ensemble",
        seed=seed,
        metrics={name: round(value, 6) for name, value in metrics.items()},
        seconds=round(earlier + time.monotonic() - start, 1),
        words=tuple(words),
        space=described[0].genotype.space,
        space_settings=described[0].genotype.settings.to_dict(),
        dataset=data.name,
        members=len(together),
        params=size.params,
        macs=size.macs,
        notation=tuple(_distinct(one.make_space().notation(one.genotype) for one in described)),
    )
    RunFolder(folder).finish(facts, _distinct(one.genotype for one in described))
    return Conclusion(facts, findings, files, len(together.members))


def _training_seconds(runs: Iterable[Path]) -> float:
    """What the training of these runs took, in whatever start of theirs and of the ensemble's."""
    return sum(RunFolder(run).facts.seconds or 0 for run in runs)


def _judge(
    together: Ensemble,
    batches: Sequence[Batch],
    selection: MemberSelection | None,
    data: ImageData | ExternalData,
) -> tuple[Findings, dict[str, float]]:
    """What the ensemble is worth on these batches, by its task."""
    task = task_of(data)
    if isinstance(task, MultiClass):
        evaluation = evaluate(together, batches)
        findings = ensemble_findings(together, evaluation, selection, batches, data.name)
        return findings, _metrics(evaluation, selection)
    scores = evaluate_task(together, batches, task)
    tested = {f"test_{name}": value for name, value in scores.together.items()}
    return Findings([scores.table(data.name)]), tested


def _metrics(evaluation: Evaluation, selection: MemberSelection | None) -> dict[str, float]:
    numbers = dict(evaluation.numbers())
    error, loss = numbers.pop("error"), numbers.pop("nll")
    tested = {"test_accuracy": 1 - error, "test_error": error, "test_loss": loss, **numbers}
    if selection is not None:
        held_out = selection.together.ensemble
        tested |= {"valid_accuracy": 1 - held_out.error, "valid_loss": held_out.nll}
    return tested


def _distinct(values: Iterable[Value]) -> list[Value]:
    return list(dict.fromkeys(values))
