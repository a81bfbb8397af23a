"""The commands to run after a run, built from its facts and overrides."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nas_lightning.cli.saved import check_saved
from nas_lightning.errors import InputError
from nas_lightning.runs import programs
from nas_lightning.runs.facts import RunFacts
from nas_lightning.runs.programs import IN_PYTHON
from nas_lightning.runs.record import Record
from nas_lightning.spaces.operations import custom_targets
from nas_lightning.utils.text import quote_where_needed, short_path

_TRAINING_ONLY = ("batch_size", "eval_batch_size", "seed", "subset", "val_fraction", "augment", "cutout")
_TASK = ("task=", "task.")


def command_to_train(record: Record, run: Path, facts: RunFacts, images: Iterable[str]) -> str:
    """Return the command that trains the found architectures on the same images."""
    command = [
        *program("train", record.folders),
        "genotype=file",
        f"genotype.path={hydra_value(short_path(run))}",
    ]
    several = ["ensemble=all"] if len(facts.notation) > 1 else []
    several = several if facts.knee is None else ["genotype.index=knee"]
    own = _permissions({"operations": custom_targets(facts.space_settings.get("ops", ()))})
    return shlex.join([*command, *own, *several, *images, *record.settings(*_TASK, "network.")])


def command_to_repeat(record: Record, facts: RunFacts) -> str:
    """Return the command that repeats a run with the next seed."""
    typed = record.without("seed=", "resume=")
    return shlex.join([*program(record.script, record.folders), *typed, f"seed={facts.seed + 1}"])


def command_to_resume(record: Record, run: Path) -> str:
    """Return the command that resumes a run or sweep, with `trust=true` if its settings need that."""
    sweep = ["-m"] if record.is_sweep else []
    command = [*program(record.script, record.folders), *sweep, f"resume={hydra_value(short_path(run))}"]
    try:
        check_saved(record.config, record.folders)
    except InputError:
        command.append("trust=true")
    return shlex.join(command)


Own = Mapping[str, Sequence[str]]
"""Custom `operations` and `modules` that files may name, by their dotted names."""
NONE_OWN: Own = MappingProxyType({})


def uses_of_model(record: Record, run: Path, own: Own = NONE_OWN) -> dict[str, str]:
    """Return the commands that use a trained network, by purpose."""
    path = short_path(run)
    start = [*program("train", record.folders), f"pretrained={hydra_value(path)}", "retrain=finetune"]
    further = [*start, *_permissions(own), *record.settings(*_TASK)]
    images = "dataset=…" if _has_another_task(record) else "dataset=image_folder dataset.root=…"
    parts = [*_folders(record.folders), *_flags(own)]
    export = [*program("export"), path, f"{path}/model.onnx", *parts]
    predict = [*program("predict"), path, *parts]
    return {
        IN_PYTHON: f"network = nas_lightning.load({_arguments(record, run, own)})",
        "Predict the images of a folder": f"{shlex.join(predict)} …",
        "Export it": shlex.join(export),
        "Train it further on your own images": f"{shlex.join(further)} {images}",
    }


def uses_of_ensemble(
    record: Record, run: Path, members: int, images: Iterable[str], own: Own = NONE_OWN
) -> dict[str, str]:
    """Return the commands that use a trained ensemble of `members` networks, by purpose."""
    path = short_path(run)
    parts = [*_folders(record.folders), *_flags(own)]
    load = f"ensemble = Ensemble.load({_arguments(record, run, own)})"
    attack = [*program("analyze", record.folders), "study=defense", f"study.ensemble={hydra_value(path)}"]
    attacked = members > 1 and not _has_another_task(record)
    export = shlex.join([*program("export"), path, f"{path}/ensemble.onnx", *parts])
    return {
        IN_PYTHON: f"from nas_lightning.models import Ensemble; {load}",
        "Predict the images of a folder": f"{shlex.join([*program('predict'), path, *parts])} …",
        **({"Export it": export} if members > 1 else {}),
        **({"Attack it": shlex.join([*attack, *images])} if attacked else {}),
    }


def image_overrides(
    record: Record, choice: str, settings: Mapping[str, Any], option: Mapping[str, Any]
) -> list[str]:
    """Return the overrides that choose the same images again.

    Args:
        record: the record of the run.
        choice: the chosen option of `dataset`.
        settings: the composed settings of the data set.
        option: the defaults of the option.

    >>> own = {"root": "data", "batch_size": 8, "shape": [1, 8, 8]}
    >>> image_overrides(Record((), {}, {}), "fake", {**own, "batch_size": 9, "root": "my data"}, own)
    ['dataset=fake', 'dataset.root="my data"']
    """
    typed = record.settings("dataset.")
    keys = {word.lstrip("+").split("=")[0] for word in typed}
    changed = {
        f"dataset.{key}": value
        for key, value in settings.items()
        if key not in _TRAINING_ONLY and (key not in option or option[key] != value)
    }
    further = [f"{key}={hydra_value(value)}" for key, value in changed.items() if key not in keys]
    return [f"dataset={choice}", *further, *typed]


def hydra_value(value: Any) -> str:
    """Format a value for Hydra's command line.

    >>> hydra_value(None), hydra_value("a b"), hydra_value(0.5)
    ('null', '"a b"', '0.5')
    """
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return quote_where_needed(value) if isinstance(value, str) else str(value)


def _has_another_task(record: Record) -> bool:
    """Return whether the task is not multi-class classification, which image folders and attacks need."""
    return any(word != "task=multi_class" for word in record.settings("task="))


def _permissions(own: Own) -> list[str]:
    """Return the overrides that allow files to name custom operations and modules."""
    return [f"{kind}=[{','.join(names)}]" for kind, names in own.items() if names]


def _flags(own: Own) -> list[str]:
    return [word for kind, names in own.items() for name in names for word in (f"--{kind[:-1]}", name)]


def _folders(folders: Iterable[Path]) -> list[str]:
    return [word for folder in folders for word in ("--config-dir", short_path(folder))]


def _arguments(record: Record, run: Path, own: Own) -> str:
    """Return the arguments of `nas_lightning.load` as Python code, with absolute paths."""
    named = {
        "with_normalization": True,
        "folders": [str(folder.absolute()) for folder in record.folders],
        **{kind: [*names] for kind, names in own.items()},
    }
    return ", ".join(
        [repr(str(run.absolute())), *(f"{name}={value}" for name, value in named.items() if value)]
    )


def program(name: str, folders: Iterable[Path] = ()) -> list[str]:
    """Return the start of a command line that runs a command, such as `train`, in the current folder."""
    command = [short_path(word) if os.path.isabs(word) else word for word in programs.program(name)]
    return [*command, *_folders(folders)]
