"""The journal of a sweep whose jobs Optuna draws: a file that several machines write to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas_lightning.checks import NonNegativeInt, check_argument
from nas_lightning.errors import InputError
from nas_lightning.files import check_file
from nas_lightning.runs.folder import sweep_of
from nas_lightning.runs.record import look_up, read_record

if TYPE_CHECKING:
    import optuna
    from optuna.storages.journal import JournalFileOpenLock

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
