"""Weights & Biases: one run there for a run here, however often it is resumed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.errors import InputError
from nas_lightning.files import read_text
from nas_lightning.runs.folder import RunFolder
from nas_lightning.runs.publication import Publication
from nas_lightning.runs.tracking import Tracker, new_id, store_address, store_id, stored_id

_FOLDER = "wandb"
_STEP = "trainer/global_step"
"""Lightning's step, which all metrics are drawn over."""


def wandb_logger(folder: str | Path, project: str = "nas-lightning", **options: Any) -> WandbLogger:
    """A logger that keeps its files in `folder` and starts with what is known of the run there.

    The run's id stays in the folder, and a resumed run goes on under it. Group (the sweep), job type, tags
    and name are the run's where `options`, which are those of `wandb.init`, do not say otherwise. With
    WANDB_MODE=offline nothing is sent and nothing is printed.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    run = _start(folder, {"project": project, **options})
    return WandbLogger(experiment=run, project=project, save_dir=folder)


@rank_zero_only
def _start(folder: Path, options: dict[str, Any]) -> Any:
    """Lightning would pass an option that W&B warns of, and start the run only in forked processes."""
    import wandb

    publication = Publication(folder)
    ours = {
        "name": publication.name,
        "group": publication.group,
        "job_type": publication.job_type,
        "tags": publication.tags,
        "id": stored_id(folder, _FOLDER) or os.environ.get("WANDB_RUN_ID") or new_id(),
        "resume": "allow",
    }
    typed = {name: value for name, value in options.items() if value is not None}
    silent = os.environ.get("WANDB_MODE") in ("offline", "dryrun")
    settings = wandb.Settings(silent=silent, reinit="finish_previous")
    try:
        run = wandb.init(
            dir=folder, config=publication.config or None, settings=settings, **{**ours, **typed}
        )
    except wandb.Error as error:  # no account, no connection
        raise InputError(
            f"expected Weights & Biases, or WANDB_MODE=offline: {error}", where="logger"
        ) from None
    store_id(folder, _FOLDER, str(run.id))
    store_address(folder, _FOLDER, None if run.offline else run.url)
    _remove_links(folder)
    run.define_metric(_STEP)
    run.define_metric("*", step_metric=_STEP, step_sync=True)
    for name, best in publication.best.items():
        run.define_metric(name, step_metric=_STEP, summary=f"{best},last")
    return run


def _remove_links(folder: Path) -> None:
    """W&B links its own log in the home folder; a run's folder leads nowhere else, and may be handed on."""
    for link in (folder / _FOLDER).rglob("*.log"):
        if link.is_symlink() and not link.resolve().is_relative_to(folder.resolve()):
            link.unlink()


class WandbTracker(Tracker):
    """Pictures, cells over epochs, genotypes, the page, sizes, and artifacts that follow from each other.

    Args:
        logger: Lightning's `WandbLogger`.
    """

    of = "WandbLogger"

    def publish(self, publication: Publication) -> None:
        import wandb

        run = self.logger.experiment
        self._use_source(publication)
        for epoch, picture in publication.cells():
            run.log({"cells": wandb.Image(picture), "cells/epoch": epoch})
        content: dict[str, Any] = {n: wandb.Image(str(path)) for n, path in publication.pictures.items()}
        table = publication.genotypes()
        if table.rows:
            content["genotypes"] = wandb.Table(columns=[*table.columns], data=[[*row] for row in table.rows])
        if publication.page is not None:
            content["report"] = wandb.Html(read_text(publication.page), inject=False)
        run.log(content)
        logged = {*run.summary.keys()}  # with their best, which stays
        run.summary.update({n: value for n, value in publication.numbers.items() if n not in logged})
        for kind, path in publication.results().items():
            artifact = _artifact(kind, run.id, path, publication)
            run.log_artifact(artifact, aliases=["latest", f"seed-{publication.facts.seed}"])

    def close(self, *, failed: bool) -> None:
        self.logger.experiment.finish(exit_code=int(failed))

    def _use_source(self, publication: Publication) -> None:
        """Name the search's artifact as what this run goes on from; offline that is kept to be sent later."""
        if (source := publication.source) is None:
            return
        run, searched = self.logger.experiment, Publication(source)
        name = stored_id(source, _FOLDER) or source.absolute().name
        artifact = _artifact("genotype", name, RunFolder(source).genotype, searched)
        if run.offline:  # where W&B's public method refuses
            run._log_artifact(artifact, is_user_created=True, use_after_commit=True)
        else:
            run.use_artifact(artifact)


def _artifact(kind: str, name: str, path: Path, publication: Publication) -> Any:
    """The same file is the same version, whichever run names it."""
    import wandb

    details = publication.details() if RunFolder(publication.run).is_finished else {}
    artifact = wandb.Artifact(f"{kind}-{name}", type=kind, metadata=details)
    artifact.add_file(str(path))
    return artifact
