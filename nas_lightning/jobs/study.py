"""A study: build the parts that it asks for, run it, write and show what it found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig

from nas_lightning.errors import InputError
from nas_lightning.jobs.configured import own_folders, searched_parts
from nas_lightning.options import groups
from nas_lightning.report.page import write_report
from nas_lightning.runs.findings import Findings
from nas_lightning.studies.base import Study
from nas_lightning.text import short_path
from nas_lightning.version import __version__


def run(cfg: DictConfig) -> dict[str, Any]:
    """Run the study; returns what the run's summary says."""
    if cfg.get("study") is None:
        options = ", ".join(groups(own_folders())["study"])
        raise InputError(f"expected a study: study=<one of {options}> (--help says what each is)")
    parts = searched_parts(cfg)
    as_python: Callable[..., Study] = instantiate(cfg.study, _convert_="all", _partial_=True)  # plain lists
    study = parts.build(as_python, ("seed",))  # its options may have the names of other parts
    if not isinstance(study, Study):
        raise InputError("expected a subclass of Study", got=type(study).__name__, where="study._target_")
    name = HydraConfig.get().runtime.choices["study"]
    wanted = study.wants()
    if "data" in wanted:
        parts.data.setup()  # finds what is wrong with the images
    if "network" in wanted:
        parts.check_network()
    handed = {name: getattr(parts, name) for name in wanted}
    missing = [name for name, needed in wanted.items() if needed and handed[name] is None]
    if missing:
        raise InputError(
            f"expected a {missing[0]}, which the study needs: {missing[0]}=… (--help lists them)"
        )
    print(f"Study {name}, seed {cfg.seed} → {short_path(cfg.run)}", flush=True)
    findings = study.run(**handed)
    files = findings.write(Path(cfg.run))
    facts: dict[str, Any] = {
        "study": name,
        "seed": cfg.seed,
        "versions": {"nas_lightning": __version__, "torch": torch.__version__},
        "metrics": dict(findings.numbers),
        "files": [str(path.relative_to(cfg.run)) for path in files],
    }
    report = write_report(Path(cfg.run), findings=findings, facts=facts)
    _show(findings, [*files, report])
    return facts


def _show(findings: Findings, files: list[Path]) -> None:
    tables = [table.markdown() for table in findings.tables if not table.long]
    paths = "\n".join(short_path(path) for path in files)
    print("\n" + "\n\n".join([*tables, paths]), flush=True)
