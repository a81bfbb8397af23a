"""Tables and figures of an ensemble: scores of the members and the ensemble, and diversity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nas_lightning.data.batches import Batch
from nas_lightning.models.ensemble import Ensemble
from nas_lightning.models.ensemble_plans import MemberSelection
from nas_lightning.models.evaluation import Evaluation, Quality
from nas_lightning.runs.facts import Findings
from nas_lightning.utils.tables import Entry, Table


def ensemble_findings(
    ensemble: Ensemble,
    evaluation: Evaluation,
    selection: MemberSelection | None,
    batches: Sequence[Batch],
    images: str,
) -> Findings:
    """Return the tables and figures of an evaluated ensemble.

    Args:
        ensemble: the ensemble.
        evaluation: its evaluation on `batches`.
        selection: the selection of its members, if any.
        batches: the test batches.
        images: name of the data set.
    """
    selected = [] if selection is None else [selection.table()]
    return Findings([*selected, *_tables(evaluation, images)], _figures(ensemble, evaluation, batches))


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


def _figures(ensemble: Ensemble, evaluation: Evaluation, batches: Sequence[Batch]) -> dict[str, Any]:
    from nas_lightning.models import evaluation as figures  # imports matplotlib

    found = {
        "member_errors": figures.errors(evaluation),
        "member_agreement": figures.agreement(evaluation),
        "prediction_map": figures.prediction_map(ensemble, batches),
    }
    return {name: figure for name, figure in found.items() if figure is not None}
