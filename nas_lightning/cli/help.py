"""The text of `--help`, collected from the yamls, and one-line messages for errors of Hydra."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.errors import MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nas_lightning.options import groups

_INTRODUCTION = {
    "search": """Search an architecture.

  nas-search                                        {default} on handwritten digits, minutes on a laptop
  nas-search strategy=darts dataset=cifar10 dataset.root=data
  nas-search dataset=image_folder dataset.root=my_images
  nas-search -m strategy=darts seed=0,1,2           a sweep: a folder a job, a table at the end
  nas-search resume=outputs/search/<run>            resume a run that was stopped
""",
    "train": """Train an architecture that a search found, or a published one.

  nas-train genotype=file genotype.path=outputs/search/<run>
  nas-train genotype=darts_v2 dataset=cifar10 dataset.root=data
  nas-train network=timm network.name=resnet18      a network of a library; network=custom: your own
  nas-train -m genotype=darts_v1,darts_v2 seed=0,1  a sweep: a folder a job, a table at the end
  nas-train resume=outputs/train/<run>              resume a run that was stopped
  nas-train pretrained=outputs/train/<run> retrain=finetune dataset=image_folder dataset.root=images
""",
    "analyze": """Run a study of many architectures, which writes tables and figures.

  nas-analyze study=correlation benchmark.path=test_accuracy.csv
  nas-analyze study=correlation benchmark.path=… dataset=cifar10 dataset.root=data study.cells=1000
  nas-analyze resume=outputs/analyze/<run>          resume a study that was stopped
""",
}
_GROUPS = {
    "search": (
        *("strategy", "space", "dataset", "experiment", "derivation", "benchmark"),
        *("callbacks", "logger", "trainer", "launcher", "sweeper"),
    ),
    "train": (
        *("genotype", "network", "ensemble", "dataset", "retrain", "experiment"),
        *("callbacks", "logger", "trainer", "launcher", "sweeper"),
    ),
    "analyze": ("study", "space", "dataset", "benchmark", "retrain", "trainer", "launcher"),
}
_ENDING = """Every setting can be given as key=value; --cfg job prints them all with their values. Often used:

  seed=1                       random seed
  trainer.max_epochs=50        length of the run
  logger=wandb                 track with Weights & Biases (WANDB_MODE=offline works)
  dataset.batch_size=64        images per step
  run=DIR                      the output folder
  --config-dir DIR             add your own configurations
  resume=DIR trust=true        resume without safety checks, for a folder that you trust

Flags are Hydra's: --hydra-help lists them.
"""
_PLUGINS = {
    "joblib": "hydra-joblib-launcher",
    "ray": "hydra-ray-launcher",
    "submitit_slurm": "hydra-submitit-launcher",
    "submitit_local": "hydra-submitit-launcher",
}


def register_resolvers() -> None:
    """Register the OmegaConf resolvers of our yamls: `help_text`, `run_folder`, and `gpus_of_job`."""
    OmegaConf.register_new_resolver("help_text", _help_of, replace=True)
    OmegaConf.register_new_resolver("run_folder", run_folder, replace=True, use_cache=True)
    OmegaConf.register_new_resolver("gpus_of_job", gpus_of_job, replace=True)


def gpus_of_job(devices: int | str) -> int:
    """Return the number of GPUs that a Ray task requests for a trainer with so many devices, 0 without GPUs.

    Ray hides the GPUs from tasks that request none.
    """
    import torch

    return int(devices) if torch.cuda.is_available() and str(devices).isdecimal() else 0


def run_folder(resume: str | None, run: str | None, default: str) -> str:
    """Return the folder of a run or sweep: `resume`, else `run`, else a new one named `default`."""
    if resume or run:
        return str(Path(resume or run or "").expanduser())
    names = [default, *(f"{default}-{number}" for number in range(2, 100))]  # for starts in the same second
    return next((name for name in names if not Path(name).exists()), default)


def _help_of(*, _root_: DictConfig) -> str:
    sources = _root_.hydra.runtime.config_sources
    own = [Path(source.path) for source in sources if source.provider == "command-line"]
    return help_text(str(_root_.hydra.job.name), own).replace("$", "$$")  # Hydra substitutes `$name`


def help_text(script: str, folders: Iterable[Path] = ()) -> str:
    """Return the help of a script: the options of each group with the first line of their yaml."""
    available = groups(folders)
    parts = [_INTRODUCTION[script].format(default=available["strategy"]["pr_darts"].split(":")[0])]
    for group in _GROUPS[script]:
        options = available.get(group, {})
        width = max(map(len, options), default=0)
        parts.append(
            "\n".join([f"{group}=", *(f"  {o:<{width}}  {line}" for o, line in options.items()), ""])
        )
    return "\n".join([*parts, _ENDING])


def explain(error: Exception) -> str:
    """Return an error as one line; for an unknown option or setting, suggest a similar one."""
    cause: Any = error if isinstance(error, OmegaConfBaseException) else error.__cause__
    if isinstance(error, MissingConfigException):
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        package = _PLUGINS.get(option) if group == "hydra/launcher" else None
        options = error.options or [*groups().get(group, {})]  # Hydra names none for an entry of a list
        hint = f"pip install {package}" if package else _suggest(option, options)
        if options:
            return f"`{group}` has no option `{option}`. {hint}"
    if isinstance(cause, OmegaConfBaseException) and isinstance(cause.parent_node, DictConfig):
        parent, key = cause.parent_node, str(cause.key)
        if key not in parent:
            path, add = str(cause.full_key).removesuffix(key), f"To add it, type +{cause.full_key}=…"
            names = {name: path + name for name in map(str, parent) if name != "hydra"}
            if not path:  # the user may have left out the group
                names = {**_leaf_names(parent), **names}
            said = [f"There is no setting `{cause.full_key}`.", _suggest(key, names), add]
            return " ".join(filter(None, said))
    return " ".join(str(error).split())


def _leaf_names(node: DictConfig, path: str = "") -> dict[str, str]:
    """Map the last part of each setting's name to its dotted name; the outermost takes precedence."""
    found: dict[str, str] = {}
    for key, value in node.items_ex(resolve=False):
        if isinstance(value, DictConfig) and key != "hydra" and OmegaConf.to_container(value, resolve=False):
            found = {**_leaf_names(value, f"{path}{key!s}."), **found}
    return {**found, **{name: path + name for name in map(str, node) if name != "hydra"}}


def _suggest(name: str, choices: Mapping[str, str] | Sequence[str]) -> str:
    """Return `Did you mean …?`, or the choices if none is similar.

    Args:
        name: the unknown name.
        choices: known names; a mapping has the dotted name of each.
    """
    known = sorted(choice for choice in choices if not choice.startswith("_"))
    if close := difflib.get_close_matches(name, known, 1):
        return f"Did you mean `{choices[close[0]] if isinstance(choices, Mapping) else close[0]}`?"
    return f"Choose from {', '.join(known[:30])}{', …' * (len(known) > 30)}." if known else ""
