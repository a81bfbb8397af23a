"""Where a run's numbers and pictures go: `metrics.csv` in its folder, and Weights & Biases on request.

Lightning's CSVLogger deletes the file of a run that is resumed. `MetricsCSV` goes on with it: a row is in the
file when the call returns, and `rewind` drops the rows that a resumed run computes again.
"""

from __future__ import annotations

import csv
import os
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import yaml
from pytorch_lightning.loggers import Logger, WandbLogger
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.errors import InputError
from nas_lightning.genotype import FILE_NAME
from nas_lightning.whole_files import replacing

METRICS_FILE = "metrics.csv"


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The rows of a metrics file, each with the values that it has."""
    try:
        return [{name: float(value) for name, value in row.items() if value} for row in _read(path)[1]]
    except ValueError as error:
        raise InputError(f"expected a table of numbers: {error}", where=path) from None


class MetricsCSV(Logger):
    """Writes `metrics.csv` in `folder`: the columns step and epoch, then the metrics by name; a row a call.

    The columns are those that a row has needed so far; a new one rewrites the file.

    >>> import tempfile
    >>> logger = MetricsCSV(tempfile.mkdtemp())
    >>> logger.log_metrics({"train_loss": 0.5, "epoch": 0}, step=9)
    >>> logger.finalize("success")
    >>> print(logger.path.read_text(), end="")
    step,epoch,train_loss
    9,0,0.5
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self.path = Path(folder) / METRICS_FILE
        self._columns: list[str] = []
        self._known: frozenset[str] = frozenset()
        self._file: IO[str] | None = None

    @property
    def name(self) -> None:
        return None

    @property
    def version(self) -> None:
        return None

    @property
    def save_dir(self) -> str:
        return str(self.path.parent)

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Nothing: they are no metrics."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        row = _as_text(metrics, step or 0)
        file = self._file or self._open()
        if not row.keys() <= self._known:
            file = self._widen(row)
        file.write(",".join([row.get(name, "") for name in self._columns]) + "\n")

    @rank_zero_only
    def rewind(self, step: int, last: Mapping[str, float] | None = None) -> None:
        """Drop what was logged from `step` on, and log `last` for the step before, unless it is there."""
        self.finalize("rewind")
        kept: list[dict[str, str]] = []
        if self.path.is_file():
            columns, rows = _read(self.path)
            kept = [row for row in rows if int(row["step"]) < step]
            _write(self.path, columns, kept)
        if last and _as_text(last, step - 1) not in [_filled(row) for row in kept[-1:]]:
            self.log_metrics(last, step - 1)
            self.finalize("rewind")

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Close the file; the next row opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> IO[str]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._columns = _read(self.path)[0] if self.path.is_file() else []
        self._known = frozenset(self._columns)
        self._file = self.path.open("a", encoding="utf-8", buffering=1)  # every row is written at once
        return self._file

    def _widen(self, row: Mapping[str, str]) -> IO[str]:
        self.finalize("new columns")
        rows = _read(self.path)[1]
        names = {*self._columns, *row} - {"step", "epoch"}
        _write(self.path, ["step", "epoch", *sorted(names)], rows)
        return self._open()


def _as_text(metrics: Mapping[str, float], step: int) -> dict[str, str]:
    row = {name: repr(float(value)) for name, value in metrics.items()} | {"step": str(step)}
    return row | {"epoch": str(int(metrics["epoch"]))} if "epoch" in row else row


def _filled(row: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in row.items() if value}


def _read(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Columns and rows; a last line that a kill cut off does not count."""
    text = path.read_text(encoding="utf-8")
    lines = text[: text.rfind("\n") + 1].splitlines()
    reader = csv.DictReader(lines, restval="")
    return list(reader.fieldnames or []), list(reader)


def _write(path: Path, columns: list[str], rows: Iterable[Mapping[str, str]]) -> None:
    """All or nothing, whenever the process is killed."""
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def wandb_logger(folder: str | Path, project: str = "nas-lightning", **options: Any) -> WandbLogger:
    """A logger that keeps its files in `folder` and starts with the configuration found there.

    `options` are those of `wandb.init`. With WANDB_MODE=offline nothing is sent and nothing is printed.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    run = _start(folder, {"project": project, **options})
    return WandbLogger(experiment=run, project=project, save_dir=folder)


@rank_zero_only
def _start(folder: Path, options: dict[str, Any]) -> Any:
    """Lightning would pass an option that W&B warns of, and start the run only in forked processes."""
    import wandb

    composed = folder / ".hydra" / "config.yaml"
    config = yaml.safe_load(composed.read_text(encoding="utf-8")) if composed.is_file() else None
    silent = os.environ.get("WANDB_MODE") in ("offline", "dryrun")
    settings = wandb.Settings(silent=silent)
    try:
        run = wandb.init(dir=folder, config=config, settings=settings, **options)
    except wandb.Error as error:  # no account, no connection
        raise InputError(
            f"expected Weights & Biases, or WANDB_MODE=offline: {error}", where="logger"
        ) from None
    run.define_metric("trainer/global_step")  # Lightning's step, which all metrics are drawn over
    run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    return run


@rank_zero_only
def publish(loggers: Iterable[Logger], run: Path) -> None:
    """Hand the pictures and the genotype in a run's folder to Weights & Biases, and end the run there."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            _publish(logger, run)


def _publish(logger: WandbLogger, run: Path) -> None:
    import wandb

    pictures = sorted((run / "figures").glob("*.png"))
    logger.experiment.log({f"figures/{path.stem}": wandb.Image(str(path)) for path in pictures})
    if (run / FILE_NAME).is_file():
        artifact = wandb.Artifact(f"genotype-{logger.version}", type="genotype")
        artifact.add_file(str(run / FILE_NAME))
        logger.experiment.log_artifact(artifact)
    logger.experiment.finish()
