"""The job of `train.py`: the architecture that is configured, its training, what the screen says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nas_lightning.callbacks.progress import Stopwatch
from nas_lightning.cli.ending import announce, show_run
from nas_lightning.cli.factories import (
    build,
    build_data,
    build_trainer,
    checkpoint,
    network_sizes,
    own_parts,
    recipe_of,
    sizes_of,
)
from nas_lightning.cli.job_context import JobContext
from nas_lightning.cli.refusals import refuse_in_a_line
from nas_lightning.data import ExternalData, ImageData
from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import FILE_NAME as GENOTYPE
from nas_lightning.genotype import Genotype, read_genotypes
from nas_lightning.jobs.next_commands import uses_of_model
from nas_lightning.jobs.parts import Parts
from nas_lightning.jobs.train import Training, fit, prepare_training
from nas_lightning.models.file import check_file, describe
from nas_lightning.options import option_file
from nas_lightning.runs.facts import RunFacts, read_facts
from nas_lightning.runs.trackers import published
from nas_lightning.spaces import SearchSpace, make_space
from nas_lightning.spaces.fixed import FixedNetwork
from nas_lightning.utils.text import short_path

_NAMED = ("space", "data", "folder", "seed")
"""The parts that callbacks of a training may name: the network is the module's."""
KNEE = "knee"
"""In the place of an index: of a front."""
Folders = tuple[Path, ...]


def run_training(
    job: JobContext, show: Callable[[JobContext, RunFacts, Mapping[str, str]], None] = show_run
) -> RunFacts:
    """Train as it is configured."""
    cfg, stopwatch = job.cfg, Stopwatch()
    with refuse_in_a_line():
        _check_genotype(job)
        genotype, space, sizes = configured_architecture(cfg, job.command.folders)
        sizes = sizes_of(space.network, sizes, "network")
        data = build_data(cfg)
        parts = Parts(space, data, Path(cfg.run), cfg.seed, network_sizes=sizes, recipe=recipe_of(cfg))
        training = prepare_training(genotype, parts, cfg.init)
        trainer = build_trainer(cfg, parts, [stopwatch], _NAMED)
    which = (
        f"{space.notation(genotype)} of {space.name}"
        if isinstance(space, FixedNetwork)
        else f"a network of {space.name}"
    )
    what = f"Training {which} on {data.name}: {training.size}"
    with published(trainer.loggers, parts.folder):
        with refuse_in_a_line():
            start = checkpoint(cfg, training.module)
        announce(what + _origin(cfg, training, data), cfg)
        facts = fit(training, parts, trainer, start, job.words)
        if trainer.is_global_zero:
            show(job, facts, uses_of_model(job.command, parts.folder, job.own))
    return facts


def _origin(cfg: DictConfig, training: Training, data: ImageData | ExternalData) -> str:
    if cfg.init is None:
        return ""
    classifier = f" with a new classifier of {data.num_classes} classes" if training.new_classifier else ""
    return f", from {short_path(cfg.init)}{classifier}"


def _check_genotype(job: JobContext) -> None:
    """Raise for what the chosen genotype's yaml does not have."""
    choice = job.choices.get("genotype")
    if job.cfg.get("genotype") is None or choice in (None, "null"):
        return
    known = {*OmegaConf.load(option_file("genotype", choice, job.command.folders))}
    for key in job.cfg.genotype:
        if key not in known:
            expected = f"expected a setting of the genotype ({near_match(str(key), map(str, known))})"
            raise InputError(expected, got=key, where="genotype")


def configured_architecture(
    cfg: DictConfig, folders: Folders
) -> tuple[Genotype, SearchSpace, dict[str, Any]]:
    """The genotype, its space, and the sizes of the network: the space's own, then the user's."""
    sources = {"init": cfg.init, "genotype": cfg.get("genotype"), "network": given_network(cfg)}
    named = [f"{name}=…" for name, source in sources.items() if source is not None]
    if len(named) > 1:
        expected = "expected one architecture (a sweep takes each by itself)"
        raise InputError(expected, got=" and ".join(named), where="the command line")
    if sources["network"] is not None:
        given: FixedNetwork = build(cfg.network)
        return given.genotype, given, {}
    own: Any = OmegaConf.to_container(cfg.network, resolve=True)
    if cfg.init is not None:
        check_file(cfg.init, **own_parts(cfg, folders))
        described = describe(cfg.init, **own_parts(cfg, folders))
        return described.genotype, described.make_space(), {**described.sizes, **own}
    if cfg.get("genotype") is None:
        raise InputError(
            "expected an architecture: genotype=file genotype.path=<run of search.py>, a published one such "
            "as genotype=darts_v2, or a network: network=timm network.name=resnet18 (--help lists them)"
        )
    chosen: Any = OmegaConf.to_container(cfg.genotype, resolve=True)
    if "path" in chosen:
        genotype, space = _architecture_of_file(chosen["path"], chosen.get("index"), own_parts(cfg, folders))
    else:
        if not isinstance(chosen.get("space"), str):
            raise InputError("expected the name of a space", got=chosen.get("space"), where="genotype.space")
        space = make_space(chosen["space"], folders=folders)
        genotype = space.parse(chosen)
    return genotype, space, {**network_sizes(space, folders), **own}


def given_network(cfg: DictConfig) -> DictConfig | None:
    """What was chosen with `network=`; None where there are sizes of a space's networks at most."""
    return cfg.network if "_target_" in cfg.network else None


def _architecture_of_file(path: str, index: Any, own: dict[str, Any]) -> tuple[Genotype, SearchSpace]:
    genotypes = read_genotypes(path)
    if index == KNEE:
        index = _knee_of(Path(path))
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(genotypes):
        raise InputError(f"expected an index below {len(genotypes)}", got=index, where="genotype.index")
    genotype = genotypes[index]
    try:
        space = make_space(genotype.space, genotype.settings.to_dict(), **own)
        space.check(genotype)
    except InputError as error:
        raise InputError(str(error), where=path) from None
    return genotype, space


def _knee_of(path: Path) -> int:
    """Which architecture of a front is its knee."""
    knee = read_facts(path / GENOTYPE if path.is_dir() else path).knee
    if knee is None:
        expected = "expected a number: only a search with objectives=[…] has a knee"
        raise InputError(expected, got=KNEE, where="genotype.index")
    return knee
