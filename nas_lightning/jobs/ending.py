"""What a run says on the screen: where it writes, what it found, and what to type next."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.genotype import FILE_NAME
from nas_lightning.jobs.configured import own_folders
from nas_lightning.models.file import FILE_NAME as MODEL
from nas_lightning.options import option_file
from nas_lightning.report.page import write_report
from nas_lightning.spaces.ops import own_targets
from nas_lightning.text import quote, short_path

_TRAINING_ONLY = ("batch_size", "eval_batch_size", "seed", "subset", "val_fraction", "augment", "cutout")


@rank_zero_only
def announce(what: str, cfg: DictConfig) -> None:
    """One line before the work starts."""
    count = cfg.trainer.max_epochs
    print(f"{what}, {count} epoch{'s' * (count != 1)}, seed {cfg.seed} → {short_path(cfg.run)}", flush=True)


def finish(run: Path, facts: dict[str, Any], genotypes: Sequence[str], following: Mapping[str, str]) -> None:
    """Write the report and print the end of the run, with what to type next by what it is for."""
    report = write_report(run, facts["seconds"], {**following, "The same from another start": again(facts)})
    numbers = headline(facts["metrics"])
    of_first = " (the first architecture)" if len(genotypes) > 1 else ""
    size = f"{facts['params']:,} parameters, {facts['macs']:,} multiply-adds{of_first}"
    lines = ["", *_architectures(genotypes, facts["metrics"]), "", size]
    if numbers:
        lines.append(
            ", ".join(
                f"{name} {value:{',' if isinstance(value, int) else '.4g'}}"
                for name, value in numbers.items()
            )
        )
    if HydraConfig.get().mode == RunMode.MULTIRUN:  # whose table comes at the end
        lines.append("")
    else:
        lines += ["", f"genotype  {short_path(run / FILE_NAME)}"]
        lines += [f"picture   {short_path(path)}" for path in sorted((run / "figures").glob("genotype*.png"))]
        lines.append(f"report    {short_path(report)}")
        if (run / MODEL).is_file():
            lines.append(f"model     {short_path(run / MODEL)}")
        for purpose, command in following.items():
            lines += ["", f"{purpose}:", f"  {command}"]
    print("\n".join(lines), flush=True)


def _architectures(genotypes: Sequence[str], metrics: dict[str, float]) -> Iterable[str]:
    """Each architecture; several have numbers, and what was logged of them as `members/<number>/…`."""
    for number, genotype in enumerate(genotypes, 1):
        if len(genotypes) > 1:
            own = {name: value for name, value in metrics.items() if name.startswith(f"members/{number}/")}
            said = [f"{name.rpartition('/')[2]} {value:.4g}" for name, value in sorted(own.items())]
            yield f"{number}.  {', '.join(said)}".rstrip()
        yield genotype


def headline(metrics: dict[str, float]) -> dict[str, float]:
    """Losses, accuracies and ranks, which is what a reader looks for first."""
    return {
        name: value
        for name, value in sorted(metrics.items())
        if name.endswith(("_loss", "_accuracy", "_rank"))
    }


def training_command(cfg: DictConfig, count: int) -> str:
    """What trains the architectures of this search at their size on the same images, ready to be typed."""
    path = short_path(cfg.run)
    words = [*_program("train"), *_config_dir(), "genotype=file", f"genotype.path={_value(path)}"]
    several = ["ensemble=all"] if count > 1 else []
    sizes = [line for line in HydraConfig.get().overrides.task if line.startswith("network.")]
    own = _operations(own_targets(cfg.space.get("ops") or ()))
    return shlex.join([*words, *own, *several, *_dataset(cfg), *sizes])


def again(facts: Mapping[str, Any]) -> str:
    """What was typed, with the next seed."""
    words = [*_program("search" if "strategy" in facts else "train"), *_config_dir()]
    left_out = ("seed=", "resume=")
    typed = [line for line in HydraConfig.get().overrides.task if not line.startswith(left_out)]
    return shlex.join([*words, *typed, f"seed={facts['seed'] + 1}"])


def uses(cfg: DictConfig) -> dict[str, str]:
    """What is done with a trained network, ready to be typed."""
    run, own = short_path(cfg.run), [*cfg.operations]
    further = [
        *_program("train"),
        *_config_dir(),
        f"init={_value(run)}",
        "retrain=finetune",
        *_operations(own),
    ]
    export = [_python(), "-m", "nas_lightning.models.export", run, f"{run}/model.onnx", *_config_dir()]
    allowed = [word for name in own for word in ("--operation", name)]
    return {
        "Use it in Python": f"network = nas_lightning.load({_arguments(cfg)})",
        "Export it": shlex.join([*export, *allowed]),
        "Train it further on your own images": f"{shlex.join(further)} dataset=image_folder dataset.root=…",
    }


def ensemble_uses(cfg: DictConfig, members: int) -> dict[str, str]:
    """What is done with a trained ensemble of so many networks, ready to be typed."""
    run = short_path(cfg.run)
    attack = [*_program("analyze"), *_config_dir(), "study=defence", f"study.ensemble={_value(run)}"]
    load = f"ensemble = Ensemble.load({_arguments(cfg)})"
    use = {"Use it in Python": f"from nas_lightning.ensembles import Ensemble; {load}"}
    return {**use, "Attack it": shlex.join([*attack, *_dataset(cfg)])} if members > 1 else use


def resume_command(script: str, cfg: DictConfig) -> str:
    """What goes on with this run, ready to be typed."""
    return shlex.join([*_program(script), f"resume={_value(short_path(cfg.run))}"])


def _operations(own: Sequence[str]) -> list[str]:
    """What allows a file to name operations of a user's own."""
    return [f"operations=[{','.join(own)}]"] if own else []


def _arguments(cfg: DictConfig) -> str:
    """Those of `nas_lightning.load` for this run, in Python."""
    own = {"folders": [short_path(folder) for folder in own_folders()], "operations": [*cfg.operations]}
    return ", ".join(
        [repr(short_path(cfg.run)), *(f"{name}={value}" for name, value in own.items() if value)]
    )


def _program(name: str) -> list[str]:
    """How this program was started, with the name of its sister."""
    script = Path(sys.argv[0])
    if script.suffix != ".py":
        sister = script.with_name(f"nas-{name}")
        return [f"nas-{name}" if shutil.which(f"nas-{name}") == str(sister) else short_path(sister)]
    return [_python(), short_path(script.with_name(f"{name}.py"))]


def _python() -> str:
    found = shutil.which("python")
    same = found is not None and Path(found).absolute() == Path(sys.executable).absolute()
    return "python" if same else short_path(sys.executable)


def _config_dir() -> Iterable[str]:
    for folder in own_folders():
        yield from ("--config-dir", short_path(folder))


def _dataset(cfg: DictConfig) -> Iterable[str]:
    """The option, what was typed for it, and what else in its settings says which images it has."""
    typed = [line for line in HydraConfig.get().overrides.task if line.lstrip("+").startswith("dataset.")]
    keys = {line.lstrip("+").split("=")[0] for line in typed}
    choice = HydraConfig.get().runtime.choices["dataset"]
    file = option_file("dataset", choice, own_folders())
    own: Any = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    yield f"dataset={choice}"
    for name, value in OmegaConf.to_container(cfg.dataset, resolve=False).items():  # type: ignore[union-attr]
        key = str(name)
        changed = key not in own or own[key] != value
        if changed and key not in _TRAINING_ONLY and f"dataset.{key}" not in keys:
            yield f"dataset.{key}={_value(value)}"
    yield from typed


def _value(value: Any) -> str:
    """A value in Hydra's notation."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    text = str(value)
    return quote(text) if isinstance(value, str) and set(text) - _PLAIN else text


_PLAIN = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./%@?|~")
