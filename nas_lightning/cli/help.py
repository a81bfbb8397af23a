"""`--help`, read off the configurations themselves: a yaml's first comment is its line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nas_lightning.options import groups

_INTRODUCTION = {
    "search": """Search an architecture.

  python search.py                                        {default} on handwritten digits, minutes on a laptop
  python search.py strategy=darts dataset=cifar10 dataset.root=~/data
  python search.py dataset=image_folder dataset.root=~/my_images
  python search.py -m strategy=darts seed=0,1,2           a sweep: a folder a job, a table at the end
  python search.py resume=outputs/search/<run>            go on with a run that was stopped
""",
    "train": """Train an architecture that a search found, or a published one.

  python train.py genotype=file genotype.path=outputs/search/<run>
  python train.py genotype=darts_v2 dataset=cifar10 dataset.root=~/data
  python train.py network=timm network.name=resnet18      a network of others, or network=custom: your own
  python train.py -m genotype=darts_v1,darts_v2 seed=0,1  a sweep: a folder a job, a table at the end
  python train.py resume=outputs/train/<run>              go on with a run that was stopped
  python train.py init=outputs/train/<run> retrain=finetune dataset=image_folder dataset.root=~/my_images
""",
    "analyze": """Ask a question of many architectures: a study, which ends in tables and figures.

  python analyze.py study=correlation benchmark.path=test_accuracy.csv
  python analyze.py study=correlation benchmark.path=… dataset=cifar10 dataset.root=~/data study.cells=1000
  python analyze.py resume=outputs/analyze/<run>          go on with a study that was stopped
""",
}
_GROUPS = {
    "search": ("strategy", "space", "dataset", "experiment", "derivation", "benchmark"),
    "train": ("genotype", "network", "ensemble", "dataset", "retrain", "experiment"),
    "analyze": ("study", "space", "dataset", "benchmark"),
}
_FITTED = ("callbacks", "logger", "trainer", "launcher")
_SHARED = {"search": _FITTED, "train": _FITTED, "analyze": ("retrain", "trainer", "launcher")}
_OFTEN = {
    "trainer.max_epochs=50": "length of the run",
    "logger=wandb": "track with Weights & Biases (WANDB_MODE=offline works)",
}
_ENDING = """Every setting can be given as key=value; --cfg job prints them all with their values. Often used:

  seed=1                       random seed
{often}  dataset.batch_size=64        images per step
  run=DIR                      the folder that everything is written to
  --config-dir DIR             add your own configurations
  --trust                      resume=DIR: obey all that the folder says, as in runs of your own
"""


def help_text(name: str, folders: Iterable[Path] = ()) -> str:
    """The whole help of an entry script."""
    available = groups(folders)
    default = available["strategy"]["pr_darts"].split(":")[0]
    parts = [_INTRODUCTION[name].format(default=default)]
    for group in (*_GROUPS[name], *_SHARED[name]):
        options = available.get(group, {})
        if options:
            width = max(len(option) for option in options)
            rows = [f"  {option:<{width}}  {line}" for option, line in options.items()]
            parts.append("\n".join([f"{group}=", *rows, ""]))
    often = "" if name == "analyze" else "".join(f"  {key:<28} {what}\n" for key, what in _OFTEN.items())
    return "\n".join([*parts, _ENDING.format(often=often)])
