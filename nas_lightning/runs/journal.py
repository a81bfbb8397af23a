"""The journal of a sweep whose jobs Optuna draws: a file that several machines write to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas_lightning.runs.folder import sweep_of
from nas_lightning.runs.record import look_up, read_record

if TYPE_CHECKING:
    import optuna

JOURNAL = "optuna_journal.log"
STUDY = "sweep"
PRUNED = "pruned"
"""The attribute of a trial that its own job has ended early."""


def open_storage(sweep: Path) -> optuna.storages.BaseStorage:
    """The journal in a sweep's folder."""
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # a sweep's table says what came out
    sweep.mkdir(parents=True, exist_ok=True)
    storage: Any = JournalStorage(JournalFileBackend(str(sweep / JOURNAL)))
    return storage


def trial_of(run: Path, pruner: optuna.pruners.BasePruner) -> optuna.Trial | None:
    """The trial whose job a run is; None where it is the job of no such sweep."""
    sweep = sweep_of(run)
    if sweep is None or not (sweep / JOURNAL).is_file():
        return None
    import optuna

    number = look_up(read_record(run).hydra, "job", "num")
    study = optuna.load_study(study_name=STUDY, storage=open_storage(sweep), pruner=pruner)
    stored = study.get_trials(deepcopy=False)[number]
    return optuna.Trial(study, stored._trial_id)
