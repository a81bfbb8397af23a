"""The job of `train.py` with `ensemble=`: its members' own jobs, and what the screen says of all together."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from omegaconf import DictConfig, OmegaConf, open_dict
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.cli.ending import REPEAT, next_lines, select_headline
from nas_lightning.cli.factories import build, build_data, own_parts
from nas_lightning.cli.job_context import JobContext
from nas_lightning.cli.refusals import refuse_in_a_line
from nas_lightning.cli.train_job import run_training
from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import read_genotypes, write_genotypes
from nas_lightning.jobs.ensemble import FOLDER, Conclusion, conclude, train_members
from nas_lightning.jobs.next_commands import command_to_repeat, uses_of_ensemble
from nas_lightning.models.ensemble_plans import Member, Plan
from nas_lightning.models.evaluation import check_held_out
from nas_lightning.options import groups
from nas_lightning.report.page import link_sources, refresh_all, write_report
from nas_lightning.runs.command import Command
from nas_lightning.runs.facts import RunFacts
from nas_lightning.runs.record import Record
from nas_lightning.spaces import make_space
from nas_lightning.tasks import check_classes
from nas_lightning.utils.text import quote, short_path

_OWN = ("ensemble", "genotype.index=", "seed=", "resume=", "run=")


def run_ensemble(job: JobContext) -> RunFacts:
    """Train what there is to train, evaluate."""
    with refuse_in_a_line():
        plan: Plan = build(job.cfg.ensemble)
        data = build_data(job.cfg)
        if plan.selects is not None:
            check_classes(data, "members are selected by probabilities of")
            check_held_out(data)
        if plan.space is not None:
            job = _with_pool(job, plan, plan.space)
        members = plan.members(*_choice(job.cfg, plan))
    runs = train_members(plan, members, job.folder.path, partial(_train_member, job, plan))
    return _conclude(job, plan, runs) or RunFacts("ensemble")  # on processes other than the first


@rank_zero_only
def _conclude(job: JobContext, plan: Plan, runs: list[Path]) -> RunFacts:
    own = own_parts(job.cfg, job.command.folders)
    device = build(job.cfg.trainer, logger=False).strategy.root_device
    end = conclude(plan, runs, build_data(job.cfg), job.folder.path, job.cfg.seed, device, job.words, own)
    _show(job, end)
    return end.facts


def _show(job: JobContext, end: Conclusion) -> None:
    run = job.folder.path
    following = uses_of_ensemble(job.command, run, end.networks, job.images, job.own)
    lines = [table.markdown() + "\n" for table in end.findings.tables]
    lines += [short_path(path) for path in end.files]
    further = {**following, REPEAT: command_to_repeat(job.command, end.facts)}
    report = write_report(run, end.facts.seconds, further, end.findings)
    if job.cfg.resume is None:
        link_sources(run)
    refresh_all(run.glob("member_*"))
    lines += [f"ensemble  {short_path(run / FOLDER)}", f"report    {short_path(report)}"]
    print("\n".join([*lines, *next_lines(following)]), flush=True)


def _with_pool(job: JobContext, plan: Plan, space: str) -> JobContext:
    """The job with the architectures that the plan draws, in a file of the run."""
    cfg, folders = copy.deepcopy(job.cfg), job.command.folders
    if cfg.get("genotype") is not None or cfg.init is not None:
        raise InputError("expected no genotype where architectures are drawn", got="one", where="ensemble")
    options = groups(folders)["space"]
    if space not in options:
        raise InputError(
            f"expected a space ({near_match(space, options)})", got=space, where="ensemble.space"
        )
    pool = job.folder.pool
    if cfg.resume is None or not pool.is_file():  # whichever process comes first: all draw the same
        own = pool.with_suffix(f".{os.getpid()}")
        os.replace(write_genotypes(own, plan.draw(make_space(space, folders=folders))), pool)
    with open_dict(cfg):
        cfg.genotype = {"path": str(pool), "index": 0}
    return JobContext(cfg, job.command, job.choices, job.record)


def _choice(cfg: DictConfig, plan: Plan) -> tuple[int, int]:
    """Which architecture was chosen, and of how many."""
    if not plan.trains:
        if cfg.get("genotype") is not None or cfg.init is not None:
            raise InputError("expected no genotype where nothing is trained", got="one", where="ensemble")
        return 0, 0
    if cfg.get("genotype") is None or "path" not in cfg.genotype:
        return 0, 1
    return cfg.genotype.index, len(read_genotypes(cfg.genotype.path))


def _train_member(job: JobContext, plan: Plan, member: Member, folder: Path, name: str) -> None:
    cfg = _of_member(job.cfg, plan, member, folder)
    command = Command("train", tuple(_member_words(job, plan, cfg)), job.command.folders, job.command.sweep)
    config: Any = OmegaConf.to_container(cfg, resolve=False)
    record = Record(command.words, {**config, "resume": None}, job.record.hydra)
    own = JobContext(cfg, command, job.choices, record)
    with own.own_folder():
        own.write_record()  # a member can be resumed alone, too
        pl.seed_everything(cfg.seed, workers=True, verbose=False)
        run_training(own, partial(_show_member, name))


def _of_member(cfg: DictConfig, plan: Plan, member: Member, folder: Path) -> DictConfig:
    """The configuration of the member's own run."""
    own = copy.deepcopy(cfg)
    with open_dict(own):
        own.run = str(folder)
        own.seed = cfg.seed + member.further_seed
        own.resume = None if cfg.resume is None else own.run
        own.ensemble = None
        if own.get("genotype") is not None and "path" in own.genotype:
            own.genotype.index = member.architecture
        if plan.selects is not None and "seed" in cfg.dataset:  # the same images are held out from all
            own.dataset.seed = cfg.dataset.seed
    return own


def _member_words(job: JobContext, plan: Plan, own: DictConfig) -> list[str]:
    """What would have been typed, had the member been trained alone."""
    given = [f"seed={own.seed}"]
    if plan.space is not None:
        given += ["genotype=file", f"genotype.path={quote(own.genotype.path)}"]
    if own.get("genotype") is not None and "path" in own.genotype:
        given.append(f"genotype.index={own.genotype.index}")
    if plan.selects is not None and "seed" in own.dataset:
        given.append(f"dataset.seed={own.dataset.seed}")
    replaced = (*_OWN, *(word.split("=")[0] + "=" for word in given))
    return [*job.command.without(*replaced), *given]


def _show_member(name: str, job: JobContext, facts: RunFacts, following: Mapping[str, str]) -> None:
    numbers = ", ".join(f"{key} {value:.4g}" for key, value in select_headline(facts.metrics).items())
    report = write_report(job.folder.path, following=following)
    print(f"{name}: {numbers}; report {short_path(report)}\n", flush=True)
