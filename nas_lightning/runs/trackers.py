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
from nas_lightning.runs.facts import FIGURES, HISTORY_FILE, METRICS_FILE, RunFacts, read_history, read_metrics
from nas_lightning.runs.folder import REPORT, RunFolder, sweep_of
from nas_lightning.runs.record import Record, look_up
from nas_lightning.utils.files import json_text, read_text, write_whole
from nas_lightning.utils.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image


# What there is to publish of a run, whatever it is published with: read from the run's folder.

MODEL = "model.safetensors"
MOST_DRAWN = 20  # cells of a search's epochs: a second of drawing each few
_GROUPS = ("strategy", "genotype", "study", "ensemble", "space", "dataset")


@dataclass(frozen=True)
class Publication:
    """A run, as those see it who look at many.

    Args:
        run: its folder, which has the record of its start.

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
        """How it was started."""
        return RunFolder(self.run).record

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration with its references resolved, and the option that was chosen in each group."""
        plain = {**self.record.config, "run": str(self.run)}
        try:
            resolved: Any = OmegaConf.to_container(OmegaConf.create(plain), resolve=True)
        except OmegaConfBaseException:  # to what only the run itself knew
            resolved = plain
        return {**resolved, "choices": self.choices} if self.record.config else {}

    @property
    def choices(self) -> dict[str, str]:
        """Our own groups' options, and none of Hydra's."""
        return {
            group: str(option) for group, option in self.record.choices.items() if "/" not in group and option
        }

    @property
    def group(self) -> str | None:
        """The sweep that it is a job of."""
        sweep = sweep_of(self.run)
        return None if sweep is None else sweep.name

    @property
    def job_type(self) -> str | None:
        """Search, training, ensemble or study."""
        return self.record.kind

    @property
    def tags(self) -> list[str]:
        """What was chosen of what tells runs apart."""
        chosen = (self.choices.get(group) for group in _GROUPS)
        return [option for option in chosen if option is not None]

    @property
    def name(self) -> str:
        """Its tags and its seed, or its folder."""
        if not self.tags:
            return self.run.absolute().name
        return f"{' '.join(self.tags)} seed {self.record.config.get('seed', 0)}"

    @property
    def best(self) -> dict[str, str]:
        """Metrics of which the best counts, each with what that is: max or min."""
        score = look_up(self.config, "task", "score")
        scores = {self.config.get("objective"), f"valid_{score or 'accuracy'}"}
        maximized = {str(name): "max" for name in scores if name}
        return {**maximized, "valid_loss": "min", "train_loss": "min"}

    @cached_property
    def facts(self) -> RunFacts:
        """What it has come to."""
        return RunFolder(self.run).facts

    @property
    def numbers(self) -> dict[str, float]:
        """Sizes, time and last metrics."""
        sizes = {"params": self.facts.params, "macs": self.facts.macs, "seconds": self.facts.seconds}
        return {**self.facts.metrics, **{name: value for name, value in sizes.items() if value is not None}}

    @property
    def pictures(self) -> dict[str, Path]:
        """Those that the run has drawn."""
        return {f"{FIGURES}/{path.stem}": path for path in sorted((self.run / FIGURES).glob("*.png"))}

    @property
    def page(self) -> Path | None:
        """The run's page."""
        page = self.run / REPORT
        return page if page.is_file() else None

    @property
    def source(self) -> Path | None:
        """The folder of the search that found what was trained."""
        path = look_up(self.record.config, "genotype", "path")
        if not isinstance(path, str):
            return None
        folder = Path(path) if Path(path).is_dir() else Path(path).parent
        return folder if RunFolder(folder).genotype.is_file() else None

    def results(self) -> dict[str, Path]:
        """The files that others go on with, by what they are."""
        files = {"genotype": RunFolder(self.run).genotype, "model": self.run / MODEL}
        return {kind: path for kind, path in files.items() if path.is_file()}

    def details(self) -> dict[str, Any]:
        """What is said of those files."""
        facts = self.facts.as_dict()
        left_out = ("versions", "overrides", "files", "space_settings")
        return {name: value for name, value in facts.items() if name not in left_out}

    def cells(self) -> Iterator[tuple[int, Image]]:
        """The first genotype after those epochs that have changed it; at most `MOST_DRAWN`, evenly chosen."""
        from nas_lightning.plots.cells import draw_genotype  # and with it matplotlib

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
        """A row an epoch: its first genotype and what was measured; without epochs, what came out."""
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
        """The validation's last values in each epoch."""
        epochs: dict[int, dict[str, float]] = {}
        file = self.run / METRICS_FILE
        for row in read_metrics(file) if file.is_file() else ():
            valid = {name: value for name, value in row.items() if name.startswith("valid_")}
            if valid and "epoch" in row:
                epochs.setdefault(int(row["epoch"]), {}).update(valid)
        return epochs


def _paint(figure: Figure) -> Image:
    """A picture in memory: not all trackers take a figure that pyplot does not know."""
    from PIL import Image

    file = BytesIO()
    figure.savefig(file, format="png", dpi=100, facecolor="white")
    return Image.open(file)


# What a run has come to, handed to whatever loggers of Lightning's it has.
#
# A tracker is a class in `trackers/` that names Lightning's logger; an addition is a file there.


class Tracker(ABC):
    """What one of Lightning's loggers is told of a run, besides the metrics that Lightning logs itself.

    Args:
        logger: an object of Lightning's class of the name `of`.
    """

    of: ClassVar[str]

    def __init__(self, logger: Any) -> None:
        self.logger = logger

    @abstractmethod
    def publish(self, publication: Publication) -> None:
        """Hand over what there is of a finished run."""

    @abstractmethod
    def close(self, *, failed: bool) -> None:
        """End the run there."""


def trackers_of(loggers: Iterable[Logger]) -> list[Tracker]:
    """The tracker of each logger that has one; a logger of a user's own derives from one of Lightning's."""
    known = {tracker.of: tracker for tracker in Tracker.__subclasses__()}
    names = [(logger, [base.__name__ for base in type(logger).__mro__]) for logger in loggers]
    return [known[next(n for n in of if n in known)](logger) for logger, of in names if {*of} & {*known}]


@contextmanager
def published(loggers: Iterable[Logger], run: Path) -> Iterator[None]:
    """Around a run's work: its loggers get what it has come to, or that it has failed."""
    trackers = [] if rank_zero_only.rank else trackers_of(loggers)  # type: ignore[attr-defined]
    try:
        yield
    except BaseException:
        for tracker in trackers:
            with contextlib.suppress(Exception):  # the run's own error counts
                tracker.close(failed=True)
        raise
    for tracker in trackers:
        tracker.publish(Publication(run))
        tracker.close(failed=False)


def stored_id(run: Path, tracker: str) -> str | None:
    """The name by which a tracker knows a run that has begun before."""
    try:
        return read_text(run / tracker / "id").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def store_id(run: Path, tracker: str, name: str) -> None:
    """Keep it, so that a run that is resumed goes on there, too."""
    write_whole(run / tracker / "id", name + "\n")


def store_address(run: Path, tracker: str, address: str | None) -> None:
    """Keep where the run is to be seen; a tracker that is offline has no such place."""
    if address:
        write_whole(run / tracker / "url", address + "\n")


def stored_address(run: Path, tracker: str) -> str:
    """Where the run is to be seen; empty where that is not known."""
    file = run / tracker / "url"
    try:
        return read_text(file).strip() if file.is_file() else ""
    except (OSError, UnicodeDecodeError):
        return ""


def new_id() -> str:
    """One that nobody else has."""
    return uuid.uuid4().hex[:12]


# MLflow: one run there for a run here, with parameters and artifacts, in a database or on a server.

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


# TensorBoard: pictures, cells over epochs, genotypes and sizes beside the metrics.


class TensorBoardTracker(Tracker):
    """What TensorBoard has places for; files and pages it has none for.

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


# Weights & Biases: one run there for a run here, however often it is resumed.

_FOLDER_WEIGHTS_AND_BIASES = "wandb"
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
    run = _start_weights_and_biases(folder, {"project": project, **options})
    return WandbLogger(experiment=run, project=project, save_dir=folder)


@rank_zero_only
def _start_weights_and_biases(folder: Path, options: dict[str, Any]) -> Any:
    """Lightning would pass an option that W&B warns of, and start the run only in forked processes."""
    import wandb

    publication = Publication(folder)
    ours = {
        "name": publication.name,
        "group": publication.group,
        "job_type": publication.job_type,
        "tags": publication.tags,
        "id": stored_id(folder, _FOLDER_WEIGHTS_AND_BIASES) or os.environ.get("WANDB_RUN_ID") or new_id(),
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
    store_id(folder, _FOLDER_WEIGHTS_AND_BIASES, str(run.id))
    store_address(folder, _FOLDER_WEIGHTS_AND_BIASES, None if run.offline else run.url)
    _remove_links(folder)
    run.define_metric(_STEP)
    run.define_metric("*", step_metric=_STEP, step_sync=True)
    for name, best in publication.best.items():
        run.define_metric(name, step_metric=_STEP, summary=f"{best},last")
    return run


def _remove_links(folder: Path) -> None:
    """W&B links its own log in the home folder; a run's folder leads nowhere else, and may be handed on."""
    for link in (folder / _FOLDER_WEIGHTS_AND_BIASES).rglob("*.log"):
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
        name = stored_id(source, _FOLDER_WEIGHTS_AND_BIASES) or source.absolute().name
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
