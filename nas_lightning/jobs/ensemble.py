"""Ensembles: train each member in a subfolder of the run, then evaluate all on the test images.

Finished members are not trained again, and a stopped one is resumed from its checkpoint. If members are
selected from a pool, all candidates of the pool are trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from nas_lightning.data import ExternalData, ImageData
from nas_lightning.errors import DivergenceError
from nas_lightning.models.ensemble import Ensemble
from nas_lightning.models.ensemble_plans import Member, MemberSelection, Plan, predictions, select
from nas_lightning.models.evaluation import (
    Batch,
    Evaluation,
    Quality,
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
from nas_lightning.utils.tables import Entry, Table

FOLDER = "ensemble"
Value = TypeVar("Value", bound=Hashable)
TrainMember = Callable[[Member, Path, str], object]
"""(member, its folder, its name such as "Member 1 of 3") → anything; trains the member into the folder."""


class Conclusion(NamedTuple):
    """The results of an ensemble.

    Args:
        facts: its summary.
        findings: tables and figures.
        files: the written files to show to the user.
        networks: number of networks, each of which may predict several times.
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
    overrides: Sequence[str] = (),
) -> RunFacts:
    """Train the members of an ensemble and evaluate them together.

    Args:
        plan: the members, and how their predictions are combined.
        train_member: trains a member into a folder, for example with `nas_lightning.jobs.train`.
        data: the test images.
        folder: the run's folder; each member has a subfolder.
        seed: the run's seed, for its summary.
        architecture: index of the chosen architecture.
        architectures: number of architectures.
        device: device of the evaluation.
        overrides: the overrides of the run, for its summary.
    """
    members = plan.members(architecture, architectures)
    runs = train_members(plan, members, Path(folder), train_member)
    return conclude(plan, runs, data, Path(folder), seed, device, overrides).facts


def train_members(
    plan: Plan, members: Sequence[Member], folder: Path, train_member: TrainMember
) -> list[Path]:
    """Train the members that are not finished; return the folders of all.

    Raises:
        DivergenceError: A member diverged, or too few candidates of a pool did not.
    """
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
        raise DivergenceError(f"At least {plan.selects} candidates must not diverge", got=len(runs))
    return runs


def _has_diverged(run: Path) -> bool:
    """Return whether the training of a candidate has diverged, which excludes it from the selection."""
    return RunFolder(run).is_finished and RunFolder(run).facts.error is not None


def conclude(
    plan: Plan,
    runs: Sequence[Path],
    data: ImageData | ExternalData,
    folder: Path,
    seed: int,
    device: str | torch.device,
    overrides: Sequence[str] = (),
    own: Mapping[str, Any] = {},
) -> Conclusion:
    """Select members, evaluate the ensemble, and write it.

    Args:
        plan: the plan of the ensemble.
        runs: folders of the trained members or candidates.
        data: the test images.
        folder: the run's folder.
        seed: the run's seed.
        device: device of the evaluation.
        overrides: the overrides of the run.
        own: custom parts, as keywords of `make_space`.
    """
    start, earlier = time.monotonic(), _training_seconds(runs)
    torch.manual_seed(seed)  # the result must not depend on how many members this process has trained
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
        overrides=tuple(overrides),
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
    """Return the total training time, including that of earlier, stopped processes."""
    return sum(RunFolder(run).facts.seconds or 0 for run in runs)


def _judge(
    together: Ensemble,
    batches: Sequence[Batch],
    selection: MemberSelection | None,
    data: ImageData | ExternalData,
) -> tuple[Findings, dict[str, float]]:
    """Evaluate the ensemble with the scores of its task."""
    task = task_of(data)
    if isinstance(task, MultiClass):
        evaluation = evaluate(together, batches)
        selected = [] if selection is None else [selection.table()]
        tables = [*selected, *_tables(evaluation, data.name)]
        return Findings(tables, _figures(together, evaluation, batches)), _metrics(evaluation, selection)
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


def _tables(evaluation: Evaluation, images: str) -> list[Table]:
    columns = ["error", "NLL", "Brier score", "calibration error"]
    rows: list[list[Entry]] = [
        [f"member {i}", *_cells(alone)] for i, alone in enumerate(evaluation.members, 1)
    ]
    numbers = evaluation.numbers()
    size, count = evaluation.probabilities.shape[:2]
    return [
        Table(
            "ensemble",
            f"{size} members, alone and together, on {count:,} test images of {images}",
            ["", *columns],
            [*rows, ["ensemble", *_cells(evaluation.ensemble)]],
        ),
        Table(
            "members",
            "How the members differ",
            ["ATE", "best member", "ensemble", "PPD", "oracle"],
            [[numbers[key] for key in ("ate", "best_member_error", "error", "ppd", "oracle_error")]],
            "ATE: mean error of the members; PPD: share of images on which two of them disagree; oracle: "
            "share of images on which none is right",
        ),
    ]


def _cells(quality: Quality) -> list[Entry]:
    return list(vars(quality).values())


def _figures(together: Ensemble, evaluation: Evaluation, batches: Sequence[Batch]) -> dict[str, Any]:
    from nas_lightning.models import evaluation as figures  # imports matplotlib

    found = {
        "member_errors": figures.errors(evaluation),
        "member_agreement": figures.agreement(evaluation),
        "prediction_map": figures.prediction_map(together, batches),
    }
    return {name: figure for name, figure in found.items() if figure is not None}
