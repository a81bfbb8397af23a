"""Training of an ensemble: each member a run of its own within the run, then all together on the test images.

A member that has its network is not trained again; the one that was stopped goes on from its checkpoint.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.cli import train_job
from nas_lightning.cli.ending import ensemble_uses, headline, shown
from nas_lightning.cli.parts import make
from nas_lightning.data import ImageData
from nas_lightning.data.loaders import Batch
from nas_lightning.ensembles import figures
from nas_lightning.ensembles.ensemble import Ensemble
from nas_lightning.ensembles.evaluation import Evaluation, Quality, check_images, evaluate, every_test_batch
from nas_lightning.ensembles.plans import Member, Plan
from nas_lightning.errors import InputError
from nas_lightning.genotype import FILE_NAME, read_genotypes, write_genotypes
from nas_lightning.model_file import FILE_NAME as MODEL
from nas_lightning.report import write_report
from nas_lightning.studies.base import Findings
from nas_lightning.studies.tables import Cell, Table
from nas_lightning.version import __version__

FOLDER = "ensemble"
_OWN = ("ensemble", "genotype.index=", "seed=", "resume=", "run=")


def run(cfg: DictConfig) -> dict[str, Any]:
    """Train what there is to train, evaluate; returns what the run's summary says."""
    plan: Plan = make(cfg.ensemble)
    members = plan.members(*_choice(cfg, plan))
    runs = [_train(cfg, member, number, len(members)) for number, member in enumerate(members, 1)]
    return _conclude(cfg, plan, runs) or {}


def _choice(cfg: DictConfig, plan: Plan) -> tuple[int, int]:
    """Which architecture was chosen, and of how many."""
    if not plan.trains:
        if cfg.get("genotype") is not None or cfg.init is not None:
            raise InputError("expected no genotype where nothing is trained", got="one", where="ensemble")
        return 0, 0
    if cfg.get("genotype") is None or "path" not in cfg.genotype:
        return 0, 1
    return cfg.genotype.index, len(read_genotypes(cfg.genotype.path))


def _train(cfg: DictConfig, member: Member, number: int, total: int) -> Path:
    """The folder of the member's finished run."""
    own = _of_member(cfg, member, number)
    folder = Path(own.run)
    if not (folder / MODEL).is_file():
        _record(cfg, own)
        pl.seed_everything(own.seed, workers=True, verbose=False)
        train_job.run(own, partial(_end_of_member, f"Member {number} of {total}"))
    return folder


def _of_member(cfg: DictConfig, member: Member, number: int) -> DictConfig:
    """The configuration of the member's own run."""
    own = copy.deepcopy(cfg)
    with open_dict(own):
        own.run = str(Path(cfg.run) / f"member_{number}")
        own.seed = cfg.seed + member.further_seed
        own.resume = None if cfg.resume is None else own.run
        own.ensemble = None
        if own.get("genotype") is not None and "path" in own.genotype:
            own.genotype.index = member.architecture
    return own


@rank_zero_only
def _record(cfg: DictConfig, own: DictConfig) -> None:
    """What Hydra would have written, had the member been trained alone; it can be resumed alone, too."""
    hydra = Path(own.run) / ".hydra"
    if hydra.is_dir():
        return
    typed = [o for o in HydraConfig.get().overrides.task if not o.lstrip("+").startswith(_OWN)]
    if own.get("genotype") is not None and "path" in own.genotype:
        typed.append(f"genotype.index={own.genotype.index}")
    hydra.mkdir(parents=True)
    OmegaConf.save(OmegaConf.create([*typed, f"seed={own.seed}"]), hydra / "overrides.yaml")
    OmegaConf.save(own, hydra / "config.yaml")
    shutil.copy(Path(cfg.run) / ".hydra" / "hydra.yaml", hydra / "hydra.yaml")


def _end_of_member(
    name: str, run: Path, facts: dict[str, Any], genotypes: Sequence[str], following: Mapping[str, str]
) -> None:
    numbers = ", ".join(f"{key} {value:.4g}" for key, value in headline(facts["metrics"]).items())
    print(f"{name}: {numbers}; report {shown(write_report(run))}\n", flush=True)


@rank_zero_only
def _conclude(cfg: DictConfig, plan: Plan, runs: Sequence[Path]) -> dict[str, Any]:
    """Evaluate, write, show."""
    run, data = Path(cfg.run), make(cfg.dataset)
    ensemble = plan.assemble(runs)
    check_images(ensemble, data)
    ensemble.save(run / FOLDER)
    ensemble.to(make(cfg.trainer, logger=False).strategy.root_device)
    batches = every_test_batch(data)
    evaluation = evaluate(ensemble, batches)
    findings = Findings(_tables(evaluation, data.name), _figures(ensemble, evaluation, batches))
    files = findings.write(run)
    facts = _facts(cfg, ensemble, data, evaluation)
    genotypes = dict.fromkeys(known.genotype for known in ensemble.known)
    write_genotypes(run / FILE_NAME, genotypes, **facts)
    lines = [table.markdown() + "\n" for table in findings.tables]
    lines += [shown(path) for path in files]
    lines += [f"ensemble  {shown(run / FOLDER)}", f"report    {shown(write_report(run))}"]
    for purpose, command in ensemble_uses(cfg, len(ensemble.members)).items():
        lines += ["", f"{purpose}:", f"  {command}"]
    print("\n".join(lines), flush=True)
    return facts


def _tables(evaluation: Evaluation, images: str) -> list[Table]:
    columns = ["error", "NLL", "Brier score", "calibration error"]
    rows: list[list[Cell]] = [
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


def _cells(quality: Quality) -> list[Cell]:
    return list(vars(quality).values())


def _figures(ensemble: Ensemble, evaluation: Evaluation, batches: Sequence[Batch]) -> dict[str, Any]:
    found = {
        "member_errors": figures.errors(evaluation),
        "member_agreement": figures.agreement(evaluation),
        "prediction_map": figures.prediction_map(ensemble, batches),
    }
    return {name: figure for name, figure in found.items() if figure is not None}


def _facts(cfg: DictConfig, ensemble: Ensemble, data: ImageData, evaluation: Evaluation) -> dict[str, Any]:
    numbers = dict(evaluation.numbers())
    error, loss = numbers.pop("error"), numbers.pop("nll")
    tested = {"test_accuracy": 1 - error, "test_error": error, "test_loss": loss, **numbers}
    return {
        "space": ensemble.known[0].genotype.space,
        "dataset": data.name,
        "seed": cfg.seed,
        "versions": {"nas_lightning": __version__, "torch": torch.__version__},
        "members": len(ensemble),
        "params": sum(parameter.numel() for parameter in ensemble.parameters()),
        "metrics": {name: round(value, 6) for name, value in tested.items()},
        "notation": list(
            dict.fromkeys(known.make_space().notation(known.genotype) for known in ensemble.known)
        ),
    }
