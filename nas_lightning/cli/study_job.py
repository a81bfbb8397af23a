"""The job of `analyze.py`: the study that is configured, and what the screen says of it."""

from __future__ import annotations

import time
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig

from nas_lightning.cli.factories import searched_parts
from nas_lightning.cli.job_context import JobContext
from nas_lightning.cli.refusals import refuse_in_a_line
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.jobs.parts import Parts
from nas_lightning.jobs.study import named_parts, write_findings
from nas_lightning.options import groups
from nas_lightning.report.page import link_sources, write_report
from nas_lightning.runs.facts import Findings, RunFacts
from nas_lightning.studies.base import Study
from nas_lightning.utils.text import short_path


def run_study(job: JobContext) -> RunFacts:
    """Answer the question that is configured."""
    cfg, start = job.cfg, time.monotonic()
    if cfg.get("study") is None:
        options = ", ".join(groups(job.command.folders)["study"])
        raise InputError(f"expected a study: study=<one of {options}> (--help says what each is)")
    name = job.choices["study"]
    with refuse_in_a_line():
        parts = searched_parts(cfg)
        question = _question(cfg, parts)
        named = named_parts(question, parts)
    print(f"Study {name}, seed {cfg.seed} → {short_path(cfg.run)}", flush=True)
    findings = question.run(**named)
    facts = write_findings(findings, parts, name, time.monotonic() - start, job.words)
    report = write_report(parts.folder, findings=findings)
    if cfg.resume is None:
        link_sources(parts.folder)
    _show(findings, [*(parts.folder / file for file in facts.files), report])
    return facts


def _question(cfg: DictConfig, parts: Parts[SearchData]) -> Study:
    """The study; its options may have the names of other parts than the seed."""
    factory = instantiate(cfg.study, _convert_="all", _partial_=True)  # lists as Python has them
    question = parts.build(factory, ("seed",))
    if not isinstance(question, Study):
        raise InputError("expected a subclass of Study", got=type(question).__name__, where="study._target_")
    return question


def _show(findings: Findings, files: list[Path]) -> None:
    tables = [table.markdown() for table in findings.tables if not table.long]
    paths = "\n".join(short_path(file) for file in files)
    print("\n" + "\n\n".join([*tables, paths]), flush=True)
