"""Trackers: W&B, MLflow, and TensorBoard."""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pytorch_lightning.loggers import Logger, MLFlowLogger, WandbLogger
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.runs.facts import FIGURES, HISTORY_FILE, RunFacts, read_history
from nas_lightning.runs.folder import REPORT, RunFolder, sweep_of
from nas_lightning.runs.metrics_csv import METRICS_FILE, read_metrics
from nas_lightning.runs.record import Record, look_up
from nas_lightning.utils.files import json_text, read_text, write_whole
from nas_lightning.utils.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image


# The contents that a tracker publishes, read from the run's folder.

MODEL = "model.safetensors"
MOST_DRAWN = 20  # cells of a search's epochs
_GROUPS = ("strategy", "genotype", "study", "ensemble", "space", "dataset")


@dataclass(frozen=True)
class Publication:
    """The names, configuration, results, and figures of a run, as trackers show them.

    Args:
        run: the run's folder, which holds the record of its start.

    >>> from tempfile import TemporaryDirectory
    >>> hydra = {"job": {"config_name": "search"}, "runtime": {"choices": {"strategy": "darts"}}}
    >>> with TemporaryDirectory() as folder:
    ...     Record((), {"seed": 3, "name": "of ${seed}"}, hydra).write(Path(folder))
    ...     run = Publication(Path(folder))
    ...     run.name, run.job_type, run.config["name"]
    ('darts seed 3', 'search', 'of 3')
    """

    run: Path

    @cached_property
    def record(self) -> Record:
        """The record of its start."""
        return RunFolder(self.run).record

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration with interpolations resolved, and the option chosen in each group."""
        plain = {**self.record.config, "run": str(self.run)}
        try:
            resolved: Any = OmegaConf.to_container(OmegaConf.create(plain), resolve=True)
        except OmegaConfBaseException:  # an interpolation that only the run could resolve
            resolved = plain
        return {**resolved, "choices": self.choices} if self.record.config else {}

    @property
    def choices(self) -> dict[str, str]:
        """The options of our groups, without Hydra's."""
        return {
            group: str(option) for group, option in self.record.choices.items() if "/" not in group and option
        }

    @property
    def group(self) -> str | None:
        """The sweep that the run belongs to, None if there is none."""
        sweep = sweep_of(self.run)
        return None if sweep is None else sweep.name

    @property
    def job_type(self) -> str | None:
        """Search, training, ensemble or study."""
        return self.record.kind

    @property
    def tags(self) -> list[str]:
        """The chosen strategy, genotype, study, ensemble, space, and data set."""
        chosen = (self.choices.get(group) for group in _GROUPS)
        return [option for option in chosen if option is not None]

    @property
    def name(self) -> str:
        """The tags and the seed, or the folder's name."""
        if not self.tags:
            return self.run.absolute().name
        return f"{' '.join(self.tags)} seed {self.record.config.get('seed', 0)}"

    @property
    def best(self) -> dict[str, str]:
        """Metrics whose best value is kept, each with max or min."""
        score = look_up(self.config, "task", "score")
        scores = {self.config.get("objective"), f"valid_{score or 'accuracy'}"}
        maximized = {str(name): "max" for name in scores if name}
        return {**maximized, "valid_loss": "min", "train_loss": "min"}

    @cached_property
    def facts(self) -> RunFacts:
        """The facts of the finished run."""
        return RunFolder(self.run).facts

    @property
    def numbers(self) -> dict[str, float]:
        """Parameters, multiply-adds, seconds, and last metrics."""
        sizes = {"params": self.facts.params, "macs": self.facts.macs, "seconds": self.facts.seconds}
        return {**self.facts.metrics, **{name: value for name, value in sizes.items() if value is not None}}

    @property
    def pictures(self) -> dict[str, Path]:
        """The figures of the run."""
        return {f"{FIGURES}/{path.stem}": path for path in sorted((self.run / FIGURES).glob("*.png"))}

    @property
    def page(self) -> Path | None:
        """The run's page, None if there is none."""
        page = self.run / REPORT
        return page if page.is_file() else None

    @property
    def source(self) -> Path | None:
        """The folder of the search whose genotype was trained, None if there is none."""
        path = look_up(self.record.config, "genotype", "path")
        if not isinstance(path, str):
            return None
        folder = Path(path) if Path(path).is_dir() else Path(path).parent
        return folder if RunFolder(folder).genotype.is_file() else None

    def results(self) -> dict[str, Path]:
        """Return the files of genotype and model, by kind."""
        files = {"genotype": RunFolder(self.run).genotype, "model": self.run / MODEL}
        return {kind: path for kind, path in files.items() if path.is_file()}

    def details(self) -> dict[str, Any]:
        """Return the metadata of these files."""
        facts = self.facts.as_dict()
        left_out = ("versions", "overrides", "files", "space_settings")
        return {name: value for name, value in facts.items() if name not in left_out}

    def cells(self) -> Iterator[tuple[int, Image]]:
        """Draw the first genotype of each epoch that changed it; at most `MOST_DRAWN`, evenly spaced."""
        from nas_lightning.plots.cells import draw_genotype  # imports matplotlib

        changed, last = [], None
        for epoch, genotypes in self._epochs():
            if genotypes and genotypes[0].cells and genotypes[0] != last:
                changed.append((epoch, genotypes[0]))
                last = genotypes[0]
        most = min(MOST_DRAWN, len(changed))
        for place in range(most):
            epoch, genotype = changed[round(place * (len(changed) - 1) / max(most - 1, 1))]
            yield epoch, _paint(draw_genotype(genotype).figure())

    def genotypes(self) -> Table:
        """Return each epoch's first genotype and validation metrics; without epochs, the result."""
        rows = [(epoch, str(genotypes[0])) for epoch, genotypes in self._epochs() if genotypes]
        metrics = self._metrics_of_epochs() if rows else {}
        names = list(dict.fromkeys(name for values in metrics.values() for name in values))
        if not rows:
            notation: Mapping[str, float] = self.facts.metrics
            found = [[None, text, *notation.values()] for text in self.facts.notation[:1]]
            return Table("genotypes", "", ["epoch", "genotype", *notation], found)
        cells = [[e, text, *(metrics.get(e, {}).get(name) for name in names)] for e, text in rows]
        return Table("genotypes", "", ["epoch", "genotype", *names], cells)

    def _epochs(self) -> Iterator[tuple[int, list[Genotype]]]:
        history = self.run / HISTORY_FILE
        for entry in read_history(history) if history.is_file() else ():
            yield entry["epoch"], [Genotype.from_dict(one) for one in entry["genotypes"]]

    def _metrics_of_epochs(self) -> dict[int, dict[str, float]]:
        """Return the last validation metrics of each epoch."""
        epochs: dict[int, dict[str, float]] = {}
        file = self.run / METRICS_FILE
        for row in read_metrics(file) if file.is_file() else ():
            valid = {name: value for name, value in row.items() if name.startswith("valid_")}
            if valid and "epoch" in row:
                epochs.setdefault(int(row["epoch"]), {}).update(valid)
        return epochs


def _paint(figure: Figure) -> Image:
    """Render to an image: not all trackers take a figure that pyplot does not manage."""
    from PIL import Image

    file = BytesIO()
    figure.savefig(file, format="png", dpi=100, facecolor="white")
    return Image.open(file)


# Publishing a run through Lightning's loggers: one class per logger.


class Tracker(ABC):
    """Publishes a run through a logger of Lightning, besides the metrics that Lightning logs itself.

    Subclasses are found by the name of Lightning's class, `of`.

    Args:
        logger: an instance of the class named `of`.
    """

    of: ClassVar[str]

    def __init__(self, logger: Any) -> None:
        self.logger = logger

    @abstractmethod
    def publish(self, publication: Publication) -> None:
        """Publish a finished run."""

    @abstractmethod
    def close(self, *, failed: bool) -> None:
        """Close the logger's run."""


def trackers_of(loggers: Iterable[Logger]) -> list[Tracker]:
    """Return the tracker of each logger that has one; subclasses of Lightning's loggers have theirs."""
    known = {tracker.of: tracker for tracker in Tracker.__subclasses__()}
    names = [(logger, [base.__name__ for base in type(logger).__mro__]) for logger in loggers]
    return [known[next(n for n in of if n in known)](logger) for logger, of in names if {*of} & {*known}]


@contextmanager
def published(loggers: Iterable[Logger], run: Path) -> Iterator[None]:
    """Publish the run to its loggers at the end of the context, or mark it as failed."""
    trackers = [] if rank_zero_only.rank else trackers_of(loggers)  # type: ignore[attr-defined]
    try:
        yield
    except BaseException:
        for tracker in trackers:
            with contextlib.suppress(Exception):  # the run's own error is raised
                tracker.close(failed=True)
        raise
    for tracker in trackers:
        tracker.publish(Publication(run))
        tracker.close(failed=False)


def stored_id(run: Path, tracker: str) -> str | None:
    """Return the id under which a tracker knows the run, None if it is new."""
    try:
        return read_text(run / tracker / "id").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def store_id(run: Path, tracker: str, name: str) -> None:
    """Store the id, so that a resumed run continues the same run of the tracker."""
    write_whole(run / tracker / "id", name + "\n")


def store_address(run: Path, tracker: str, address: str | None) -> None:
    """Store the run's URL; an offline tracker has none."""
    if address:
        write_whole(run / tracker / "url", address + "\n")


def stored_address(run: Path, tracker: str) -> str:
    """Return the run's URL, empty if unknown."""
    file = run / tracker / "url"
    try:
        return read_text(file).strip() if file.is_file() else ""
    except (OSError, UnicodeDecodeError):
        return ""


def new_id() -> str:
    """Return a unique id."""
    return uuid.uuid4().hex[:12]


# MLflow: parameters and artifacts, in a database or on a server.

_MLFLOW = "mlflow"


def mlflow_logger(
    folder: str | Path,
    project: str = "nas-lightning",
    tracking_uri: str = "sqlite:///outputs/mlflow.db",
    name: str | None = None,
) -> MLFlowLogger:
    """Return a logger that continues its MLflow run when the run in `folder` is resumed.

    Args:
        folder: the run's folder.
        project: name of the MLflow experiment.
        tracking_uri: a database, or the address of a server.
        name: name of the run. Default: its chosen options and seed.
    """
    _check_installed()
    logging.getLogger("pytorch_lightning.loggers.mlflow").setLevel(logging.ERROR)  # of a new experiment
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
        run_id=stored_id(folder, _MLFLOW),
    )
    _start_mlflow(logger, publication)
    return logger


def _check_installed() -> None:
    try:
        import mlflow.tracking  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"logger=mlflow needs MLflow (pip install mlflow): {error}", where="logger"
        ) from None


@rank_zero_only
def _start_mlflow(logger: MLFlowLogger, publication: Publication) -> None:
    again = stored_id(publication.run, _MLFLOW) is not None
    store_id(publication.run, _MLFLOW, str(logger.run_id))
    if not again:  # MLflow takes parameters once
        logger.log_hyperparams(dict(_without_empty(publication.config)))


def _without_empty(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return {str(name): value for name, value in config.items() if value not in ({}, [])}


class MlflowTracker(Tracker):
    """Publishes figures, cells by epoch, genotypes, the page, sizes, and result files as artifacts.

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
            client.set_tag(run, "search", stored_id(source, _MLFLOW) or os.fspath(source))
        with TemporaryDirectory() as folder:
            for epoch, picture in publication.cells():
                picture.save(Path(folder) / f"epoch_{epoch + 1:04}.png")
            client.log_artifacts(run, folder, "cells")
        with TemporaryDirectory() as folder:
            table = publication.genotypes()
            client.log_artifact(run, str(write_whole(Path(folder) / "genotypes.csv", table.csv())))

    def close(self, *, failed: bool) -> None:
        self.logger.finalize("failed" if failed else "success")


# TensorBoard


class TensorBoardTracker(Tracker):
    """Publishes figures, cells by epoch, genotypes, and sizes; TensorBoard takes no files and pages.

    Args:
        logger: Lightning's `TensorBoardLogger`.
    """

    of = "TensorBoardLogger"

    def publish(self, publication: Publication) -> None:
        import numpy as np
        from PIL import Image

        writer = self.logger.experiment
        writer.add_text("config", f"```\n{json_text(publication.config, 2)}\n```")
        for epoch, picture in publication.cells():
            writer.add_image("cells", np.asarray(picture.convert("RGB")), epoch, dataformats="HWC")
        for name, path in publication.pictures.items():
            with Image.open(path) as picture:
                writer.add_image(name, np.asarray(picture.convert("RGB")), dataformats="HWC")
        table = publication.genotypes()
        if table.rows:
            writer.add_text("genotypes", table.markdown())
        for name in ("params", "macs", "seconds"):
            if name in publication.numbers:
                writer.add_scalar(name, publication.numbers[name])

    def close(self, *, failed: bool) -> None:
        self.logger.finalize("failed" if failed else "success")


# Weights & Biases

_WANDB = "wandb"
_STEP = "trainer/global_step"
"""Lightning's step, the x axis of all metrics."""


def wandb_logger(folder: str | Path, project: str = "nas-lightning", **options: Any) -> WandbLogger:
    """Return a logger that keeps its files in `folder` and continues its W&B run when that run is resumed.

    With WANDB_MODE=offline nothing is sent and nothing is printed.

    Args:
        folder: the run's folder.
        project: name of the W&B project.
        **options: arguments of `wandb.init`, which take precedence over the run's group (its sweep), job
            type, tags, and name.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    run = _start_wandb(folder, {"project": project, **options})
    return WandbLogger(experiment=run, project=project, save_dir=folder)


@rank_zero_only
def _start_wandb(folder: Path, options: dict[str, Any]) -> Any:
    """Start the W&B run here, since Lightning would only in forked processes and with a warning."""
    import wandb

    publication = Publication(folder)
    ours = {
        "name": publication.name,
        "group": publication.group,
        "job_type": publication.job_type,
        "tags": publication.tags,
        "id": stored_id(folder, _WANDB) or os.environ.get("WANDB_RUN_ID") or new_id(),
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
            f"Cannot start Weights & Biases; WANDB_MODE=offline needs no connection: {error}", where="logger"
        ) from None
    store_id(folder, _WANDB, str(run.id))
    store_address(folder, _WANDB, None if run.offline else run.url)
    _remove_links(folder)
    run.define_metric(_STEP)
    run.define_metric("*", step_metric=_STEP, step_sync=True)
    for name, best in publication.best.items():
        run.define_metric(name, step_metric=_STEP, summary=f"{best},last")
    return run


def _remove_links(folder: Path) -> None:
    """Remove W&B's links to its log in the home folder, so that the run's folder can be copied."""
    for link in (folder / _WANDB).rglob("*.log"):
        if link.is_symlink() and not link.resolve().is_relative_to(folder.resolve()):
            link.unlink()


class WandbTracker(Tracker):
    """Publishes figures, cells by epoch, genotypes, the page, sizes, and linked artifacts.

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
        logged = {*run.summary.keys()}  # with their best values, which are kept
        run.summary.update({n: value for n, value in publication.numbers.items() if n not in logged})
        for kind, path in publication.results().items():
            artifact = _artifact(kind, run.id, path, publication)
            run.log_artifact(artifact, aliases=["latest", f"seed-{publication.facts.seed}"])

    def close(self, *, failed: bool) -> None:
        self.logger.experiment.finish(exit_code=int(failed))

    def _use_source(self, publication: Publication) -> None:
        """Name the search in the configuration; online, link its genotype as an input of this run."""
        if (source := publication.source) is None:
            return
        run = self.logger.experiment
        name = stored_id(source, _WANDB) or source.absolute().name
        run.config.update({"search": name}, allow_val_change=True)
        if not run.offline:  # `use_artifact` raises offline
            run.use_artifact(_artifact("genotype", name, RunFolder(source).genotype, Publication(source)))


def _artifact(kind: str, name: str, path: Path, publication: Publication) -> Any:
    """Return an artifact; W&B gives equal files the same version."""
    import wandb

    details = publication.details() if RunFolder(publication.run).is_finished else {}
    artifact = wandb.Artifact(f"{kind}-{name}", type=kind, metadata=details)
    artifact.add_file(str(path))
    return artifact
