"""MLflow: one run there for a run here, with parameters and artifacts, in a database or on a server."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pytorch_lightning.loggers import MLFlowLogger
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.errors import InputError
from nas_lightning.files import write_whole
from nas_lightning.runs.publication import Publication
from nas_lightning.runs.tracking import Tracker, store_id, stored_id

_FOLDER = "mlflow"


def mlflow_logger(
    folder: str | Path,
    project: str = "nas-lightning",
    tracking_uri: str = "sqlite:///outputs/mlflow.db",
    name: str | None = None,
) -> MLFlowLogger:
    """A logger whose run goes on where the one in `folder` is resumed.

    Args:
        folder: the run's.
        project: the experiment's name there.
        tracking_uri: a database, or a server's address.
        name: of the run; None: what was chosen for it.
    """
    _check_installed()
    logging.getLogger("pytorch_lightning.loggers.mlflow").setLevel(
        logging.ERROR
    )  # a new experiment is no news
    folder, database = Path(folder), tracking_uri.removeprefix("sqlite:///")
    place = None
    if database != tracking_uri:
        Path(database).parent.mkdir(parents=True, exist_ok=True)
        place = (Path(database).absolute().parent / "mlflow_artifacts").as_uri()
    publication = Publication(folder)
    tags = {"kind": publication.job_type, "sweep": publication.group, "folder": str(folder)}
    logger = MLFlowLogger(
        experiment_name=project,
        tracking_uri=tracking_uri,
        run_name=name or publication.name,
        tags={key: value for key, value in tags.items() if value is not None},
        artifact_location=place,
        run_id=stored_id(folder, _FOLDER),
    )
    _start(logger, publication)
    return logger


def _check_installed() -> None:
    try:
        import mlflow.tracking  # noqa: F401
    except ImportError as error:
        raise InputError(f"expected MLflow (pip install mlflow): {error}", where="logger") from None


@rank_zero_only
def _start(logger: MLFlowLogger, publication: Publication) -> None:
    again = stored_id(publication.run, _FOLDER) is not None
    store_id(publication.run, _FOLDER, str(logger.run_id))
    if not again:  # parameters are said once
        logger.log_hyperparams(dict(_without_empty(publication.config)))


def _without_empty(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return {str(name): value for name, value in config.items() if value not in ({}, [])}


class MlflowTracker(Tracker):
    """Pictures, cells over epochs, genotypes, the page, sizes, and what others go on with, as artifacts.

    Args:
        logger: Lightning's `MLFlowLogger`.
    """

    of = "MLFlowLogger"

    def publish(self, publication: Publication) -> None:
        client, run = self.logger.experiment, self.logger.run_id
        logged = client.get_run(run).data.metrics  # with their steps
        for name, value in publication.numbers.items():
            if name not in logged:
                client.log_metric(run, name, value)
        for path in publication.pictures.values():
            client.log_artifact(run, str(path), "figures")
        files = [*publication.results().values(), *filter(None, [publication.page])]
        for path in files:
            client.log_artifact(run, str(path))
        if (source := publication.source) is not None:
            client.set_tag(run, "search", stored_id(source, _FOLDER) or os.fspath(source))
        with TemporaryDirectory() as folder:
            for epoch, picture in publication.cells():
                picture.save(Path(folder) / f"epoch_{epoch + 1:04}.png")
            client.log_artifacts(run, folder, "cells")
        with TemporaryDirectory() as folder:
            table = publication.genotypes()
            client.log_artifact(run, str(write_whole(Path(folder) / "genotypes.csv", table.csv())))

    def close(self, *, failed: bool) -> None:
        self.logger.finalize("failed" if failed else "success")
