"""The end of an ensemble's run: its members are selected, tested together, written and short_path."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.cost.counts import cost
from nas_lightning.data import ImageData
from nas_lightning.data.loaders import Batch
from nas_lightning.ensembles import figures
from nas_lightning.ensembles.ensemble import Ensemble
from nas_lightning.ensembles.evaluation import (
    Evaluation,
    Quality,
    check_images,
    evaluate,
    every_held_out_batch,
    every_test_batch,
)
from nas_lightning.ensembles.member_selection import Selection, predictions, select
from nas_lightning.ensembles.plans import Plan
from nas_lightning.genotype import FILE_NAME, write_genotypes
from nas_lightning.jobs.configured import make, own_parts
from nas_lightning.jobs.ending import again, ensemble_uses
from nas_lightning.report.page import write_report
from nas_lightning.runs.findings import Findings
from nas_lightning.runs.folder import SUMMARY
from nas_lightning.tables import Entry, Table
from nas_lightning.text import short_path
from nas_lightning.version import __version__

FOLDER = "ensemble"


@rank_zero_only
def conclude(cfg: DictConfig, plan: Plan, runs: Sequence[Path]) -> dict[str, Any]:
    """Evaluate, write, show; `runs` are what was trained for it."""
    start, earlier = time.monotonic(), _seconds(runs)
    run, data = Path(cfg.run), make(cfg.dataset)
    device = make(cfg.trainer, logger=False).strategy.root_device
    selection = None
    if plan.selects is not None:
        selection = select(
            predictions(runs, every_held_out_batch(data), device, **own_parts(cfg)), plan.selects
        )
        runs = [runs[number] for number in selection.chosen]
    ensemble = plan.assemble(runs, **own_parts(cfg))
    check_images(ensemble, data)
    ensemble.save(run / FOLDER)
    ensemble.to(device)
    batches = every_test_batch(data)
    evaluation = evaluate(ensemble, batches)
    tables = [*([] if selection is None else [selection.table()]), *_tables(evaluation, data.name)]
    findings = Findings(tables, _figures(ensemble, evaluation, batches))
    files = findings.write(run)
    facts = _facts(cfg, ensemble, data, evaluation, selection)
    genotypes = dict.fromkeys(known.genotype for known in ensemble.known)
    write_genotypes(run / FILE_NAME, genotypes, **facts)
    lines = [table.markdown() + "\n" for table in findings.tables]
    lines += [short_path(path) for path in files]
    seconds = round(earlier + time.monotonic() - start, 1)
    following = ensemble_uses(cfg, len(ensemble.members))
    report = write_report(run, seconds, {**following, "The same from another start": again(facts)}, findings)
    lines += [f"ensemble  {short_path(run / FOLDER)}", f"report    {short_path(report)}"]
    for purpose, command in following.items():
        lines += ["", f"{purpose}:", f"  {command}"]
    print("\n".join(lines), flush=True)
    return {**facts, "seconds": seconds}


def _seconds(runs: Iterable[Path]) -> float:
    """What the training of these runs took, in whatever start of theirs and of the ensemble's."""
    return sum(json.loads((run / SUMMARY).read_text(encoding="utf-8"))["seconds"] for run in runs)


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
    found = {
        "member_errors": figures.errors(evaluation),
        "member_agreement": figures.agreement(evaluation),
        "prediction_map": figures.prediction_map(ensemble, batches),
    }
    return {name: figure for name, figure in found.items() if figure is not None}


def _facts(
    cfg: DictConfig,
    ensemble: Ensemble,
    data: ImageData,
    evaluation: Evaluation,
    selection: Selection | None,
) -> dict[str, Any]:
    numbers, size = dict(evaluation.numbers()), cost(ensemble, data.image)
    error, loss = numbers.pop("error"), numbers.pop("nll")
    tested = {"test_accuracy": 1 - error, "test_error": error, "test_loss": loss, **numbers}
    if selection is not None:
        held_out = selection.together.ensemble
        tested |= {"val_accuracy": 1 - held_out.error, "val_loss": held_out.nll}
    return {
        "space": ensemble.known[0].genotype.space,
        "dataset": data.name,
        "seed": cfg.seed,
        "versions": {"nas_lightning": __version__, "torch": torch.__version__},
        "members": len(ensemble),
        "params": size.params,
        "macs": size.macs,
        "metrics": {name: round(value, 6) for name, value in tested.items()},
        "notation": list(
            dict.fromkeys(known.make_space().notation(known.genotype) for known in ensemble.known)
        ),
    }
