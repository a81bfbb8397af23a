"""`resume=DIR` goes on with the run in that folder: its settings, what is typed besides, the same folder.

What decides the result must be what it was; the folder's `.hydra` stays as it is.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from nas_lightning.cli.composition import composed
from nas_lightning.errors import InputError
from nas_lightning.runs.folder import CHECKPOINT, requeued, script_of

KEPT = (
    *("space", "supernet", "genotype", "network", "dataset", "search_data"),
    *("strategy", "derivation", "retrain", "init", "ensemble", "study", "seed", "trainer.max_epochs"),
)
"""What a resumed run shares with the stopped one: schedules, for instance, follow the number of epochs."""
MOVABLE = (".root", ".download", ".num_workers", ".in_memory", ".eval_batch_size", ".workers", ".cells")
"""What may differ all the same: where the data set is and how it is read, how many share a study's work, and
how many architectures it looks at."""


def run_to_resume(typed: Sequence[str]) -> Path | None:
    """The folder behind `resume=`."""
    given = [line.split("=", 1)[1].strip("\"'") for line in typed if line.startswith("resume=")]
    if given and not given[-1]:
        raise InputError("expected the folder of an earlier run", got="nothing", where="resume")
    return Path(given[-1]) if given and given[-1] != "null" else None


def after_requeue(typed: Sequence[str]) -> list[str]:
    """What was typed, with `resume=` in place of `run=` where SLURM starts a job again that had begun."""
    key = "hydra.run.dir="
    folders = [line.removeprefix(key) for line in typed if line.startswith(key)]
    if not (requeued() and folders and (Path(folders[-1].strip("\"'")) / ".hydra").is_dir()):
        return list(typed)
    return [*(line for line in typed if not line.startswith(key)), f"resume={folders[-1]}"]


def continued(name: str, run: Path, typed: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """The overrides that go on with a run, or an `InputError` where it cannot be gone on with."""
    hydra = run / ".hydra"
    before, config = _load(hydra / "overrides.yaml", run), _load(hydra / "config.yaml", run)
    if script_of(config) != name:
        raise InputError(f"expected the folder of a run of {name}.py", got=str(run), where="resume")
    checkpoint = run / CHECKPOINT
    if checkpoint.exists() and not _whole(checkpoint):
        raise InputError("expected a checkpoint", got="a damaged file", where=checkpoint)
    again = {line.split("=")[0] for line in typed}
    lines = [*(line for line in before if line.split("=")[0] not in again), *typed]
    today, now = (OmegaConf.to_container(composed(name, words, folders)) for words in (before, lines))
    _check_same(config, today, now)
    return lines


def own_folders(run: Path) -> list[Path]:
    """The configuration folders that the run was started with."""
    sources = _load(run / ".hydra" / "hydra.yaml", run)["hydra"]["runtime"]["config_sources"]
    return [Path(source["path"]) for source in sources if source["provider"] == "command-line"]


def _load(file: Path, run: Path) -> Any:
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        raise InputError("expected the folder of an earlier run", got=str(run), where="resume") from None


def _whole(file: Path) -> bool:
    """Whether every part of the archive that torch saved has its checksum."""
    try:
        with zipfile.ZipFile(file) as archive:
            return archive.testzip() is None
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError):
        return False


def _check_same(before: Any, today: Any, now: Any) -> None:
    """Raise for what must not change; options newer than the run are as its own words have them today."""
    old, new = {**dict(_leaves(today)), **dict(_leaves(before))}, dict(_leaves(now))
    for key in sorted({*old, *new}, key=lambda key: (not key.endswith("_target_"), key)):
        kept = f"{key}.".startswith(tuple(f"{name}." for name in KEPT)) and not key.endswith(MOVABLE)
        if kept and _comparable(old.get(key)) != _comparable(new.get(key)):
            expected = f"expected {key}={old.get(key)}, as the run that goes on has it"
            raise InputError(expected, got=new.get(key, "nothing"), where="resume")


def _comparable(value: Any) -> Any:
    """A value; of a class of ours its name, whatever module it stood in when the run was started."""
    ours = isinstance(value, str) and value.startswith("nas_lightning.")
    return value.rpartition(".")[2] if ours else value


def _leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
