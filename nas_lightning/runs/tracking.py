"""Where a run's numbers and pictures go: `metrics.csv` in its folder, and Weights & Biases on request.

Lightning's CSVLogger deletes the file of a run that is resumed. `MetricsCSV` goes on with it: a row is in the
file when the call returns, and `rewind` drops the rows that a resumed run computes again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import Logger, WandbLogger
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.errors import InputError
from nas_lightning.genotype import FILE_NAME
from nas_lightning.runs.record import read_record


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

    config = dict(read_record(folder).config) or None
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
