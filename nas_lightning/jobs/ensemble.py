"""Training of an ensemble: each member a run of its own within the run, then all together on the test images.

A member whose run is over is not trained again; the one that was stopped goes on from its checkpoint.
Where members are selected from a pool, its candidates are what is trained.
"""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.ensembles.evaluation import check_held_out
from nas_lightning.ensembles.plans import Member, Plan
from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import read_genotypes, write_genotypes
from nas_lightning.jobs import train as train_job
from nas_lightning.jobs.configured import make, own_folders, space_config
from nas_lightning.jobs.ending import headline
from nas_lightning.jobs.ensemble_ending import conclude
from nas_lightning.options import groups
from nas_lightning.report.page import write_report
from nas_lightning.runs.folder import POOL, SUMMARY, summarise
from nas_lightning.text import quote, short_path

_OWN = ("ensemble", "genotype.index=", "seed=", "resume=", "run=")


def run(cfg: DictConfig) -> dict[str, Any]:
    """Train what there is to train, evaluate; returns what the run's summary says."""
    plan: Plan = make(cfg.ensemble)
    if plan.selects is not None:
        check_held_out(make(cfg.dataset))
    if plan.space is not None:
        cfg = _with_pool(cfg, plan, plan.space)
    members = plan.members(*_choice(cfg, plan))
    runs = [_train(cfg, plan, member, number, len(members)) for number, member in enumerate(members, 1)]
    return conclude(cfg, plan, runs) or {}


def _with_pool(cfg: DictConfig, plan: Plan, space: str) -> DictConfig:
    """The configuration with the architectures that the plan draws, in a file of the run."""
    if cfg.get("genotype") is not None or cfg.init is not None:
        raise InputError("expected no genotype where architectures are drawn", got="one", where="ensemble")
    known = groups(own_folders())["space"]
    if space not in known:
        raise InputError(f"expected a space ({near_match(space, known)})", got=space, where="ensemble.space")
    path = Path(cfg.run) / POOL
    if cfg.resume is None or not path.is_file():  # whichever process comes first: all draw the same
        partial = path.with_suffix(f".{os.getpid()}")
        os.replace(write_genotypes(partial, plan.draw(make(space_config(space).space))), path)
    cfg = copy.deepcopy(cfg)
    with open_dict(cfg):
        cfg.genotype = {"path": str(path), "index": 0}
    return cfg


def _choice(cfg: DictConfig, plan: Plan) -> tuple[int, int]:
    """Which architecture was chosen, and of how many."""
    if not plan.trains:
        if cfg.get("genotype") is not None or cfg.init is not None:
            raise InputError("expected no genotype where nothing is trained", got="one", where="ensemble")
        return 0, 0
    if cfg.get("genotype") is None or "path" not in cfg.genotype:
        return 0, 1
    return cfg.genotype.index, len(read_genotypes(cfg.genotype.path))


def _train(cfg: DictConfig, plan: Plan, member: Member, number: int, total: int) -> Path:
    """The folder of the member's finished run."""
    what = "member" if plan.selects is None else "candidate"
    own = _of_member(cfg, plan, member, f"{what}_{number}")
    folder = Path(own.run)
    if not (folder / SUMMARY).is_file():
        _record(cfg, plan, own)
        pl.seed_everything(own.seed, workers=True, verbose=False)
        facts = train_job.run(own, partial(_end_of_member, f"{what.capitalize()} {number} of {total}"))
        _summarise(folder, facts)
    return folder


def _of_member(cfg: DictConfig, plan: Plan, member: Member, name: str) -> DictConfig:
    """The configuration of the member's own run."""
    own = copy.deepcopy(cfg)
    with open_dict(own):
        own.run = str(Path(cfg.run) / name)
        own.seed = cfg.seed + member.further_seed
        own.resume = None if cfg.resume is None else own.run
        own.ensemble = None
        if own.get("genotype") is not None and "path" in own.genotype:
            own.genotype.index = member.architecture
        if plan.selects is not None:  # the same images are held out from all
            own.dataset.seed = cfg.dataset.seed
    return own


@rank_zero_only
def _record(cfg: DictConfig, plan: Plan, own: DictConfig) -> None:
    """What Hydra would have written, had the member been trained alone; it can be resumed alone, too."""
    hydra = Path(own.run) / ".hydra"
    if hydra.is_dir():
        return
    given = [f"seed={own.seed}"]
    if plan.space is not None:
        given += ["genotype=file", f"genotype.path={quote(own.genotype.path)}"]
    if own.get("genotype") is not None and "path" in own.genotype:
        given.append(f"genotype.index={own.genotype.index}")
    if plan.selects is not None:
        given.append(f"dataset.seed={own.dataset.seed}")
    replaced = (*_OWN, *(line.split("=")[0] + "=" for line in given))
    typed = [o for o in HydraConfig.get().overrides.task if not o.lstrip("+").startswith(replaced)]
    hydra.mkdir(parents=True)
    OmegaConf.save(OmegaConf.create([*typed, *given]), hydra / "overrides.yaml")
    OmegaConf.save(own, hydra / "config.yaml")
    shutil.copy(Path(cfg.run) / ".hydra" / "hydra.yaml", hydra / "hydra.yaml")


@rank_zero_only
def _summarise(member: Path, facts: dict[str, Any]) -> None:
    typed = OmegaConf.load(member / ".hydra" / "overrides.yaml")
    summarise(member, facts, [str(line) for line in typed])


def _end_of_member(
    name: str, run: Path, facts: dict[str, Any], genotypes: Sequence[str], following: Mapping[str, str]
) -> None:
    numbers = ", ".join(f"{key} {value:.4g}" for key, value in headline(facts["metrics"]).items())
    print(f"{name}: {numbers}; report {short_path(write_report(run, following=following))}\n", flush=True)
