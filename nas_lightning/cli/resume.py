"""`resume=DIR` goes on with the run in that folder, `-m resume=DIR` with the sweep.

Its settings count, what is typed besides, the same folder.

What decides the result must be what it was; the folder's `.hydra` stays as it is. It may be a stranger's:
what `stored` refuses in it counts with `--trust` only.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from nas_lightning.cli.composer import Composer, words_of
from nas_lightning.cli.composition import compose_checked
from nas_lightning.cli.settings_of_0_1 import record_of_today
from nas_lightning.cli.stored_words import check_folders, check_stored, own_words, sweep_words
from nas_lightning.errors import InputError
from nas_lightning.runs.folder import RunFolder, is_requeued
from nas_lightning.runs.record import Record
from nas_lightning.utils.files import check_contents

KEPT = (
    *("space", "supernet", "genotype", "network", "dataset", "search_data"),
    *(
        "strategy",
        "limits",
        "derivation",
        "retrain",
        "init",
        "ensemble",
        "study",
        "seed",
        "trainer.max_epochs",
    ),
    *("trainer.max_steps", "trainer.max_time"),
)
"""What a resumed run shares with the stopped one: schedules, for instance, follow the number of epochs."""
MOVABLE = (
    *(".root", ".download", ".num_workers", ".in_memory", ".eval_batch_size", ".workers", ".cells"),
    "study.scores",
)
"""What may differ all the same: where the data set is and how it is read, how many share a study's work,
how many architectures it looks at, and where their scores are, which say themselves what they are of."""


class StoppedRun(NamedTuple):
    """A run that goes on.

    Args:
        run: its folder.
        record: how it was started, as far as that may be said by a record.
        words: those of its settings that are not typed anew.
        folders: configurations of its own, where they are trusted.
    """

    run: Path
    record: Record
    words: Sequence[str]
    folders: tuple[Path, ...]


def find_run(
    script: str, typed: Sequence[str], folders: tuple[Path, ...], *, sweep: bool, trust: bool
) -> StoppedRun | None:
    """The run behind `resume=`; None where there is none to go on with."""
    run = run_to_resume(typed)
    if run is None:
        return None
    record = record_to_resume(script, run)
    if record.is_sweep != sweep:
        kind = "run, or -m before resume=" if record.is_sweep else "sweep, or resume= without -m"
        raise InputError(f"expected the folder of a {kind}", got=str(run), where="resume")
    replaced = {word.split("=")[0] for word in typed}
    words = [word for word in record.words if word.split("=")[0] not in replaced]
    further = sweep_words(record, typed, trust=trust) if sweep else []
    if trust:
        return StoppedRun(run, record, [*words, *further], () if folders else record.folders)
    check_contents(run)
    check_folders(record, folders)
    check_stored(words, folders, run)
    refused = {*own_words(record.words, folders)}  # which are typed anew
    kept = tuple(word for word in record.words if word not in refused)
    return StoppedRun(run, replace(record, words=kept), [*words, *further], ())


def run_to_resume(typed: Sequence[str]) -> Path | None:
    """The folder behind `resume=`."""
    given = [word.split("=", 1)[1].strip("\"'") for word in typed if word.startswith("resume=")]
    if given and not given[-1]:
        raise InputError("expected the folder of an earlier run", got="nothing", where="resume")
    if not given or given[-1] == "null":
        return None
    return Path(given[-1])


def resume_requeued(typed: Sequence[str]) -> list[str]:
    """What was typed, with `resume=` in place of `run=` where SLURM starts a job again that had begun."""
    key = "hydra.run.dir="
    folders = [line.removeprefix(key) for line in typed if line.startswith(key)]
    if not (is_requeued() and folders and RunFolder(folders[-1].strip("\"'")).has_record):
        return list(typed)
    return [*(line for line in typed if not line.startswith(key)), f"resume={folders[-1]}"]


def record_to_resume(script: str, path: Path) -> Record:
    """The record of a run that goes on, or an `InputError` where it cannot be gone on with."""
    run = RunFolder(path)
    try:
        record = run.record
    except InputError:
        record = None
    if record is None or not record.config or not record.hydra:
        raise InputError("expected the folder of an earlier run", got=str(path), where="resume")
    if record.script != script:
        raise InputError(f"expected the folder of a run of {script}.py", got=str(path), where="resume")
    if run.checkpoint.exists() and not _is_whole(run.checkpoint):
        raise InputError("expected a checkpoint", got="a damaged file", where=run.checkpoint)
    return record_of_today(record)


def _is_whole(file: Path) -> bool:
    """Whether every part of the archive that torch saved has its checksum."""
    try:
        with zipfile.ZipFile(file) as archive:
            return archive.testzip() is None
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError):
        return False


def check_same_run(record: Record, config: DictConfig, composer: Composer) -> None:
    """Raise for what must not change; an option newer than the run is as its own words have it today.

    Those are composed only where there is such an option, which something typed besides may have changed.
    """
    old, new = (kept_settings(tree) for tree in (record.config, OmegaConf.to_container(config)))
    besides = {word for word in words_of(config) if not word.startswith(("resume=", "hydra."))}
    if new.keys() - old.keys() and besides - {*record.words}:
        old = {**kept_settings(OmegaConf.to_container(compose_checked(composer, record.words))), **old}
    else:
        old = {**new, **old}
    check_same(old, new, where="resume")


def check_same(old: Mapping[str, Any], new: Mapping[str, Any], where: str) -> None:
    """Raise for the first setting, classes before others, that is not what it was."""
    for key in sorted({*old, *new}, key=lambda key: (not key.endswith("_target_"), key)):
        if _without_module(old.get(key)) != _without_module(new.get(key)):
            expected = f"expected {key}={old.get(key)}, as the run that goes on has it"
            raise InputError(expected, got=new.get(key, "nothing"), where=where)


def _without_module(value: Any) -> Any:
    """A value; of a class of ours its name, whatever module it stood in when the run was started."""
    ours = isinstance(value, str) and value.startswith("nas_lightning.")
    return value.rpartition(".")[2] if ours else value


def kept_settings(tree: Any) -> dict[str, Any]:
    """The settings that must be those of the stopped run."""
    names = tuple(f"{name}." for name in KEPT)
    leaves = _leaves(tree)
    return {key: v for key, v in leaves if f"{key}.".startswith(names) and not key.endswith(MOVABLE)}


def _leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
