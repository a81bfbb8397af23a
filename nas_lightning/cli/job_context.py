"""A job that Hydra has started: its configuration, the command behind it, its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, read_write
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.cli.composer import record_of
from nas_lightning.cli.factories import own_modules
from nas_lightning.jobs.next_commands import image_words
from nas_lightning.options import option_file
from nas_lightning.runs.command import Command
from nas_lightning.runs.folder import RunFolder
from nas_lightning.runs.record import Record
from nas_lightning.runs.screen_log import ScreenLog


@dataclass(frozen=True)
class JobContext:
    """What a job's functions are given.

    Args:
        cfg: the composed configuration, without Hydra's own part.
        command: what was typed for this job.
        choices: the option that was chosen in each group.
        record: what its folder keeps of its start.
    """

    cfg: DictConfig
    command: Command
    choices: Mapping[str, str]
    record: Record

    @property
    def folder(self) -> RunFolder:
        """Where everything is written to."""
        return RunFolder(self.cfg.run)

    @contextmanager
    def own_folder(self) -> Iterator[None]:
        """The folder, locked; other processes of the run leave that to the first."""
        if rank_zero_only.rank:  # type: ignore[attr-defined]
            yield
            return
        with self.folder.lock():
            yield

    def screen_log(self) -> ScreenLog:
        """What the screen has, in the folder; of the first process alone."""
        other = bool(rank_zero_only.rank)  # type: ignore[attr-defined]
        return ScreenLog(None if other else self.folder.path / f"{self.record.hydra['job']['name']}.log")

    @rank_zero_only
    def write_record(self) -> None:
        """A first one stays."""
        self.folder.create(self.record)

    @property
    def words(self) -> tuple[str, ...]:
        """What was typed, as a run's summary has it."""
        return tuple(word.lstrip("+") for word in self.command.without("resume="))

    @property
    def own(self) -> dict[str, list[str]]:
        """The user's own that files may name: operations and networks."""
        return {"operations": [*self.cfg.operations], "modules": own_modules(self.cfg)}

    @property
    def images(self) -> list[str]:
        """What chooses this job's images again."""
        choice = self.choices["dataset"]
        file = option_file("dataset", choice, self.command.folders)
        option: Any = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
        settings: Any = OmegaConf.to_container(self.cfg.dataset, resolve=False)
        return image_words(self.command, choice, settings, option)


def started_job(cfg: DictConfig) -> JobContext:
    """The job that Hydra runs now; nobody else asks Hydra for what it knows of it."""
    hydra = HydraConfig.get()
    sources = (source for source in hydra.runtime.config_sources if source.provider == "command-line")
    command = Command(
        str(hydra.job.config_name),
        tuple(hydra.overrides.task),
        tuple(Path(source.path) for source in sources),
        hydra.mode == RunMode.MULTIRUN,
    )
    return JobContext(cfg, command, dict(hydra.runtime.choices), record_of(cfg, hydra))


def let_hydra_name(folder: Path) -> None:
    """Make Hydra say that this is the folder of the run."""
    hydra: Any = HydraConfig.get()
    with read_write(hydra):
        hydra.run.dir = str(folder)
