"""One job: what a search and a training run have in common around the work itself."""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from hydra.core.hydra_config import HydraConfig
from hydra.errors import InstantiationException
from hydra.types import RunMode
from omegaconf import DictConfig
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.cli import search_job, train_job
from nas_lightning.errors import InputError

SUMMARY = "summary.json"


def run_job(cfg: DictConfig) -> float | None:
    """Run the job that the composed configuration describes; its objective goes back to Hydra.

    A user's mistake is one line and the exit code 1; in a sweep it fails its own job and no other.
    """
    _quieten()
    start = time.monotonic()
    try:
        if not isinstance(cfg.seed, int):
            raise InputError("expected a whole number", got=cfg.seed, where="seed")
        pl.seed_everything(cfg.seed, workers=True, verbose=False)
        work = search_job.run if "strategy" in cfg else train_job.run
        facts = work(cfg)
    except (InputError, InstantiationException, TypeError) as error:
        message = _user_error(error)
        if HydraConfig.get().mode != RunMode.MULTIRUN:
            sys.exit(f"error: {message}")
        print(f"error: {message}", file=sys.stderr)
        facts = {"error": message}
    _summarise(Path(cfg.run), {**facts, "seconds": round(time.monotonic() - start, 1)})
    return facts.get("metrics", {}).get(cfg.objective)


def _user_error(error: Exception) -> str:
    """The user's mistake behind an error; everything else is ours and keeps its traceback."""
    cause = error.__cause__ if isinstance(error, InstantiationException) else error
    if isinstance(cause, InputError):
        return str(cause)
    if isinstance(cause, TypeError) and "unexpected keyword argument" in str(cause):
        return str(InputError("expected a setting that exists", got=str(cause)))
    raise error


@rank_zero_only
def _summarise(run: Path, facts: dict[str, Any]) -> None:
    facts["overrides"] = [o for o in HydraConfig.get().overrides.task if not o.startswith("resume=")]
    run.mkdir(parents=True, exist_ok=True)
    (run / SUMMARY).write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _quieten() -> None:
    """Leave the screen to the run: advertisements and advice of the libraries go unsaid."""
    for name in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="pytorch_lightning|torchvision|torch.*scheduler")
