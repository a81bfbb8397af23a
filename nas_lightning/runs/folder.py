"""The folder of a run: names, atomic reads and writes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas_lightning.errors import InputError
from nas_lightning.genotype import FILE_NAME as GENOTYPE
from nas_lightning.genotype import Genotype, read_genotypes, write_genotypes
from nas_lightning.runs.facts import RunFacts, facts_text, read_facts
from nas_lightning.runs.record import (
    RECORD,
    Record,
    has_record,
    look_up,
    read_record,
    read_start,
    remove_record,
)
from nas_lightning.utils.files import FILE_NAME as LOCK
from nas_lightning.utils.files import PARTIAL, check_file, hold, write_whole
from nas_lightning.validation import NonNegativeInt, check_argument

if TYPE_CHECKING:
    import optuna
    from optuna.storages.journal import JournalFileOpenLock


# A run is finished when its folder contains `summary.json`, which is written last.

SUMMARY = "summary.json"
REPORT = "report.html"
POOL = "pool.json"
"""The architectures that were sampled for an ensemble."""
FRONT, CANDIDATES = "front.csv", "candidates.csv"
"""The front of a multi-objective search, and all its evaluated architectures."""
CHECKPOINT = "checkpoints/last.ckpt"
BEST = "checkpoints/best.ckpt"
DEEPEST = 4  # maximum depth of a job's folder in that of its sweep
SWEEP = "multirun.yaml"  # Hydra's record of a sweep
_NO_WORK = (
    RECORD,
    LOCK,
    SWEEP,
    POOL,
    "tensorboard",
    "wandb",
    "mlflow",
)  # files that exist before anything is computed; loggers create their folders early


class RunFolder:
    """The folder of a run and the paths of its files.

    Args:
        path: the folder, which need not exist yet.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     run = RunFolder(folder)
    ...     run.finish(RunFacts("search", seed=1, metrics={"valid_accuracy": 0.9}))
    ...     run.is_finished, run.facts.metrics
    (True, {'valid_accuracy': 0.9})
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.summary = self.path / SUMMARY
        self.report = self.path / REPORT
        self.genotype = self.path / GENOTYPE
        self.checkpoint = self.path / CHECKPOINT
        self.best_checkpoint = self.path / BEST
        self.pool = self.path / POOL
        self.front = self.path / FRONT
        self.candidates = self.path / CANDIDATES
        self.error = self.path / "error.txt"

    # The start
    def create(self, record: Record) -> None:
        """Create the folder and write the record, unless there is one."""
        if not self.has_record:
            self._make()
            record.write(self.path)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder, and remove incomplete files of killed processes."""
        self._make()
        with hold(self.path):
            self._remove_partials()
            self._date_lock()
            yield

    def _remove_partials(self) -> None:
        """Remove incomplete files, also in runs within this one that no other process has locked."""
        for place, names, files in os.walk(self.path):
            partials = {name for name in (*names, *files) if name.endswith(PARTIAL)}
            runs = {name for name in names if has_record(Path(place, name))}
            for partial in (Path(place, name) for name in partials):
                shutil.rmtree(partial) if partial.is_dir() else partial.unlink()
            for run in (RunFolder(Path(place, name)) for name in runs - partials):
                with contextlib.suppress(InputError), run.lock():
                    pass
            names[:] = [name for name in names if name not in partials | runs]

    def _make(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    @property
    def has_record(self) -> bool:
        """Whether a run was started in the folder."""
        return has_record(self.path)

    @property
    def record(self) -> Record:
        """The record of the run's start."""
        return read_record(self.path)

    # The end

    @property
    def is_finished(self) -> bool:
        """Whether the run has ended."""
        return self.summary.is_file()

    @property
    def is_complete(self) -> bool:
        """Whether the run has ended and, if a command started it, its report is written."""
        return self.is_finished and (self.report.is_file() or not self.has_record)

    @property
    def facts(self) -> RunFacts:
        """The results of the run."""
        return read_facts(self.summary)

    @property
    def genotypes(self) -> list[Genotype]:
        """The architectures that the run found or trained."""
        return read_genotypes(self.path)

    def finish(self, facts: RunFacts, genotypes: Iterable[Genotype] = ()) -> None:
        """Write the genotypes, then the summary, which marks the run as finished.

        The file of the genotypes also has the facts, so that it can be shared alone.
        """
        found = list(genotypes)
        if found:
            write_genotypes(self.genotype, found, **facts.comparable())
        write_whole(self.summary, facts_text(facts))

    def reopen(self) -> None:
        """Remove the summary of a failed run, so that it can be retried."""
        self.summary.unlink(missing_ok=True)
        self.error.unlink(missing_ok=True)

    def withdraw(self) -> None:
        """Remove the traces of a run that has computed nothing, so that a corrected command can start here.

        This removes the record, empty logs, and the folder if it is empty then. If the run has computed
        anything, all files are kept.
        """
        for member in self._members():
            member.withdraw()
        if self.has_record and self.has_work:
            return
        with contextlib.suppress(OSError):  # not empty, or a read-only disk
            remove_record(self.path)
            for log in self.path.glob("*.log"):
                if not log.stat().st_size:
                    log.unlink()
            (self.path / SWEEP).unlink(missing_ok=True)
            (self.path / LOCK).unlink(missing_ok=True)
            self.path.rmdir()

    @property
    def has_work(self) -> bool:
        """Whether any result is newer than the lock or, without a lock, the record."""
        marks = [path for path in (self.path / LOCK, self.path / RECORD) if path.exists()]
        if not marks:
            return False
        return self._newest() >= marks[0].stat().st_mtime_ns

    def _date_lock(self) -> None:
        """Date the lock just after the newest file, so that `has_work` does not depend on the clock."""
        with contextlib.suppress(OSError):  # no lock, or owned by another user
            date = self._newest() + 1
            os.utime(self.path / LOCK, ns=(date, date))

    def _newest(self) -> int:
        """Return the modification time of the newest result, including those of ensemble members."""
        members = self._members()
        left_out = {*_NO_WORK, *(member.path.name for member in members)}
        others = [path for path in self.path.iterdir() if path.suffix != ".log" and path.name not in left_out]
        dates = (path.lstat().st_mtime_ns for path in others)
        return max((*dates, *(member._newest() for member in members)), default=0)

    def _members(self) -> list[RunFolder]:
        """Return the runs of an ensemble's members or candidates."""
        found = (path for name in ("member_*", "candidate_*") for path in self.path.glob(name))
        return [RunFolder(path) for path in found if path.is_dir()]


def sweep_of(run: Path) -> Path | None:
    """Return the sweep that a run is a job of, None if there is none."""
    for parent in run.absolute().parents[:DEEPEST]:
        if has_record(parent):
            return parent if read_record(parent).is_sweep else None
    return None


def is_requeued() -> bool:
    """Return whether SLURM has started this job before."""
    return int(os.environ.get("SLURM_RESTART_COUNT", "0")) > 0


# The journal of an Optuna sweep, which several machines can write to.

JOURNAL = "optuna_journal.log"
STUDY = "sweep"
PRUNED = "pruned"
"""Attribute of a trial that its job has pruned."""


def open_storage(sweep: Path) -> optuna.storages.BaseStorage:
    """Open the journal in a sweep's folder, which may come from somebody else.

    Raises:
        InputError: It is a link, a special file, or no journal.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock, JournalStorage

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # the sweep's table has the results
    sweep.mkdir(parents=True, exist_ok=True)
    path = sweep / JOURNAL
    if path.is_symlink():
        raise InputError("The path must be a file, not a link", where=path)
    check_file(path)
    lock = JournalFileOpenLock(str(path))  # a symlink lock that a kill leaves may be broken
    _cut_last_line(path, lock)
    try:
        storage: Any = JournalStorage(JournalFileBackend(str(path), lock))
    except OSError:
        raise
    except Exception as error:  # Optuna does not validate the lines
        raise InputError(f"The file must be a journal of Optuna: {error!r:.200}", where=path) from None
    return storage


def _cut_last_line(path: Path, lock: JournalFileOpenLock) -> None:
    """Remove an incomplete last line after a full disk or a kill; the next line would be appended to it."""
    if not path.exists():
        return
    lock.acquire()
    try:
        content = path.read_bytes()
        if (end := content.rfind(b"\n") + 1) < len(content):
            os.truncate(path, end)
    finally:
        lock.release()


def trial_of(run: Path, pruner: optuna.pruners.BasePruner) -> optuna.Trial | None:
    """Return the trial of a run, None if it is not a job of an Optuna sweep."""
    sweep = sweep_of(run)
    if sweep is None or not (sweep / JOURNAL).is_file():
        return None
    import optuna

    number = look_up(read_record(run).hydra, "job", "num")
    check_argument("num", number, NonNegativeInt, "hydra.job.num")
    study = optuna.load_study(study_name=STUDY, storage=open_storage(sweep), pruner=pruner)
    trials = study.get_trials(deepcopy=False)
    if number >= len(trials):
        raise InputError(
            f"`num` must be the number of one of {len(trials)} trials", got=number, where=sweep / JOURNAL
        )
    return optuna.Trial(study, trials[number]._trial_id)


def job_folders(sweep: Path) -> list[Path]:
    """Return the folders of the jobs of a sweep in order; an empty list for other folders.

    Their names follow `hydra.sweep.subdir`, or are numbers if there is no record of the sweep.
    """
    if has_record(sweep) and read_start(sweep).is_sweep:
        return sorted(_runs_below(sweep), key=lambda run: _natural_key(run.relative_to(sweep)))
    return sorted(
        (path for path in sweep.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name)
    )


def _runs_below(folder: Path) -> Iterator[Path]:
    """Yield the runs in a folder, but not those inside of other runs, such as members of an ensemble."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            is_run = has_record(path) or any((path / name).is_file() for name in (SUMMARY, GENOTYPE))
            yield from [path] if is_run else _runs_below(path)


def _natural_key(path: Path) -> list[tuple[int, str]]:
    """Return a sort key with numbers by their value: job 10 comes after job 9.

    >>> sorted([Path("seed=10"), Path("seed=9"), Path("b")], key=_natural_key)[1]
    PosixPath('seed=9')
    """
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", str(path))]
