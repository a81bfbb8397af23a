"""The folder of a run: names, atomic reads and writes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
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
from nas_lightning.utils.files import PARTIAL, check_contents, check_file, hold, write_whole
from nas_lightning.validation import NonNegativeInt, check_argument

if TYPE_CHECKING:
    import optuna
    from optuna.storages.journal import JournalFileOpenLock


# The folder of a run: the names, reads and writes of everything that a run leaves.
#
# It is new, writable and nobody else's when a run starts, and free again where the run has come to nothing.
# `summary.json` says what the run has come to: where it is, the run is over.

SUMMARY = "summary.json"
REPORT = "report.html"
POOL = "pool.json"
"""The architectures that were drawn for an ensemble: a matter of seconds."""
FRONT, CANDIDATES = "front.csv", "candidates.csv"
"""The front of a search with several objectives, and all that it looked at."""
CHECKPOINT = "checkpoints/last.ckpt"
BEST = "checkpoints/best.ckpt"
DEEPEST = 4  # folders between a job and its sweep
SWEEP = "multirun.yaml"  # Hydra's record of a sweep
_NO_WORK = (
    RECORD,
    LOCK,
    SWEEP,
    POOL,
    "tensorboard",
    "wandb",
    "mlflow",
)  # loggers have their folders before the first number


class RunFolder:
    """What a run leaves.

    Args:
        path: of the folder, which need not be there yet.

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

    @classmethod
    def reserve(cls, path: str | Path, *, typed: bool, again: bool = False) -> RunFolder:
        """Make the folder that a run is written to.

        One that was typed must have no run in it, unless that goes on `again`; the default's name ends in the
        time of day and gets a number where two runs start in the same second.
        """
        run = cls(path)
        try:
            if typed and not again and (run.has_record or (run.path / SWEEP).exists()):
                raise InputError(
                    "expected a new folder, or resume=FOLDER to go on", got=str(path), where="run"
                )
            check_contents(run.path)
            there = next(parent for parent in (run.path, *run.path.absolute().parents) if parent.exists())
            if not there.is_dir() or not os.access(there, os.W_OK):
                raise NotADirectoryError
            return run._make() if typed else run._make_with_number()
        except OSError as error:
            reason = f": {error.strerror}" if error.strerror else ""
            expected = f"expected a folder that can be written{reason}"
            raise InputError(expected, got=str(path), where="run") from None

    def create(self, record: Record) -> None:
        """Make the folder and write the run's record; a first one stays."""
        if not self.has_record:
            self._make()
            record.write(self.path)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out of the folder, and take away what a killed one has not completed."""
        self._make()
        with hold(self.path):
            self._remove_partials()
            self._date_lock()
            yield

    def _remove_partials(self) -> None:
        """Those of runs within this one, too, unless somebody is at work there."""
        for place, names, files in os.walk(self.path):
            partials = {name for name in (*names, *files) if name.endswith(PARTIAL)}
            runs = {name for name in names if has_record(Path(place, name))}
            for partial in (Path(place, name) for name in partials):
                shutil.rmtree(partial) if partial.is_dir() else partial.unlink()
            for run in (RunFolder(Path(place, name)) for name in runs - partials):
                with contextlib.suppress(InputError), run.lock():
                    pass
            names[:] = [name for name in names if name not in partials | runs]

    def _make(self) -> RunFolder:
        self.path.mkdir(parents=True, exist_ok=True)
        return self

    def _make_with_number(self) -> RunFolder:
        for number in count(1):
            free = self.path if number == 1 else self.path.with_name(f"{self.path.name}-{number}")
            with contextlib.suppress(FileExistsError):
                free.mkdir(parents=True)
                break
        return RunFolder(free)

    @property
    def has_record(self) -> bool:
        """Whether a run has begun here."""
        return has_record(self.path)

    @property
    def record(self) -> Record:
        """How the run was started."""
        return read_record(self.path)

    # The end

    @property
    def is_finished(self) -> bool:
        """Whether the run is over."""
        return self.summary.is_file()

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing either: commands, which leave a record, write the page last."""
        return self.is_finished and (self.report.is_file() or not self.has_record)

    @property
    def facts(self) -> RunFacts:
        """What the run has come to."""
        return read_facts(self.summary)

    @property
    def genotypes(self) -> list[Genotype]:
        """The architectures that it found or trained."""
        return read_genotypes(self.path)

    def finish(self, facts: RunFacts, genotypes: Iterable[Genotype] = ()) -> None:
        """Write what the run has come to, once: its architectures with what they are, then its summary.

        The facts stand beside the genotypes, too, for that file is what people hand on.
        """
        found = list(genotypes)
        if found:
            write_genotypes(self.genotype, found, **facts.comparable())
        write_whole(self.summary, facts_text(facts))

    def reopen(self) -> None:
        """Let a run that has failed be tried again."""
        self.summary.unlink(missing_ok=True)
        self.error.unlink(missing_ok=True)

    def withdraw(self) -> None:
        """Let a corrected command use the folder again, after a start that has not got as far as to work.

        Where anything but a log and loggers' folders is newer than the record of the start, all is kept.
        Otherwise the records go, an empty log, and the folder itself where nothing else is in it.
        """
        for member in self._members():
            member.withdraw()
        if self.has_record and self.has_work:
            return
        with contextlib.suppress(OSError):  # not empty, or on a disk that cannot be written
            remove_record(self.path)
            for log in self.path.glob("*.log"):
                if not log.stat().st_size:
                    log.unlink()
            (self.path / SWEEP).unlink(missing_ok=True)
            (self.path / LOCK).unlink(missing_ok=True)
            self.path.rmdir()

    @property
    def has_work(self) -> bool:
        """Whether anything has been computed since the folder was locked, or else its record written."""
        marks = [path for path in (self.path / LOCK, self.path / RECORD) if path.exists()]
        if not marks:
            return False
        return self._newest() >= marks[0].stat().st_mtime_ns

    def _date_lock(self) -> None:
        """Newer than what is there and no more: a clock that is set back hides no work."""
        with contextlib.suppress(OSError):  # no lock, or somebody else's
            date = self._newest() + 1
            os.utime(self.path / LOCK, ns=(date, date))

    def _newest(self) -> int:
        """When the last of what may be work was written, in members, too."""
        members = self._members()
        left_out = {*_NO_WORK, *(member.path.name for member in members)}
        others = [path for path in self.path.iterdir() if path.suffix != ".log" and path.name not in left_out]
        dates = (path.lstat().st_mtime_ns for path in others)
        return max((*dates, *(member._newest() for member in members)), default=0)

    def _members(self) -> list[RunFolder]:
        """The runs of their own that an ensemble makes."""
        found = (path for name in ("member_*", "candidate_*") for path in self.path.glob(name))
        return [RunFolder(path) for path in found if path.is_dir()]


def sweep_of(run: Path) -> Path | None:
    """The folder of the sweep that a run is a job of, however deep `hydra.sweep.subdir` has put it."""
    for parent in run.absolute().parents[:DEEPEST]:
        if has_record(parent):
            return parent if read_record(parent).is_sweep else None
    return None


def is_requeued() -> bool:
    """Whether SLURM has started this job before."""
    return int(os.environ.get("SLURM_RESTART_COUNT", "0")) > 0


# The journal of a sweep whose jobs Optuna draws: a file that several machines write to.

JOURNAL = "optuna_journal.log"
STUDY = "sweep"
PRUNED = "pruned"
"""The attribute of a trial that its own job has ended early."""


def open_storage(sweep: Path) -> optuna.storages.BaseStorage:
    """The journal in a sweep's folder, whose lines somebody else may have written."""
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock, JournalStorage

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # a sweep's table says what came out
    sweep.mkdir(parents=True, exist_ok=True)
    path = sweep / JOURNAL
    if path.is_symlink():
        raise InputError("expected a file, and no link", where=path)
    check_file(path)
    lock = JournalFileOpenLock(str(path))  # a link in its place, left by a kill, may lead to nothing
    _cut_last_line(path, lock)
    try:
        storage: Any = JournalStorage(JournalFileBackend(str(path), lock))
    except OSError:
        raise
    except Exception as error:  # Optuna's code takes its lines as they are
        raise InputError(f"expected a journal of Optuna: {error!r:.200}", where=path) from None
    return storage


def _cut_last_line(path: Path, lock: JournalFileOpenLock) -> None:
    """One that a full disk, or a kill, has ended in its middle: the next would be written into it."""
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
    """The trial whose job a run is; None where it is the job of no such sweep."""
    sweep = sweep_of(run)
    if sweep is None or not (sweep / JOURNAL).is_file():
        return None
    import optuna

    number = look_up(read_record(run).hydra, "job", "num")
    check_argument("num", number, NonNegativeInt, "hydra.job.num")
    study = optuna.load_study(study_name=STUDY, storage=open_storage(sweep), pruner=pruner)
    trials = study.get_trials(deepcopy=False)
    if number >= len(trials):
        raise InputError(f"expected one of {len(trials)} trials", got=number, where=sweep / JOURNAL)
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
