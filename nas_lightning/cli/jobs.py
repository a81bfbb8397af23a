"""Run a search, a training, an ensemble, or a study from its configuration, and print the results."""

from __future__ import annotations

import copy
import csv
import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from omegaconf import DictConfig, OmegaConf, open_dict

from nas_lightning.callbacks.progress import Stopwatch
from nas_lightning.cli.build import (
    build,
    build_data,
    build_trainer,
    building,
    checkpoint,
    factory_of,
    network_sizes,
    own_parts,
    recipe_of,
    searched_parts,
    sizes_of,
)
from nas_lightning.cli.commands import command_to_repeat, command_to_train, uses_of_ensemble, uses_of_model
from nas_lightning.cli.job import Job, is_first_process, record_of_config
from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import FILE_NAME as GENOTYPE
from nas_lightning.genotype import Genotype, read_genotypes, write_genotypes
from nas_lightning.jobs.ensemble import FOLDER as ENSEMBLE
from nas_lightning.jobs.ensemble import conclude, train_members
from nas_lightning.jobs.parts import Parts
from nas_lightning.jobs.search import build_strategy, search
from nas_lightning.jobs.study import named_parts, write_findings
from nas_lightning.jobs.train import fit, prepare_training
from nas_lightning.models.ensemble_plans import Member, Plan
from nas_lightning.models.evaluation import check_held_out
from nas_lightning.models.file import FILE_NAME as MODEL
from nas_lightning.models.file import check_file, describe
from nas_lightning.options import groups, option_file
from nas_lightning.report.sections import short_number
from nas_lightning.runs.facts import RunFacts, read_facts
from nas_lightning.runs.folder import RunFolder
from nas_lightning.runs.trackers import published
from nas_lightning.spaces import SearchSpace, make_space
from nas_lightning.spaces.fixed import FixedNetwork
from nas_lightning.spaces.topology import topology_text
from nas_lightning.studies.base import Study
from nas_lightning.tasks import check_classes
from nas_lightning.training.run_length import Deadline
from nas_lightning.utils.files import read_text
from nas_lightning.utils.tables import align
from nas_lightning.utils.text import duration, quote, short_path, split_score

REPEAT = "Repeat it with another seed"
MOST_ROWS = 20
"""Rows of a front that are printed."""
KNEE = "knee"
"""Value of `genotype.index` for the knee of a front."""
_OF_TRAININGS = ("space", "data", "folder", "seed")
"""Parts that callbacks of a training can take as arguments; the network is in the module."""
Show = Callable[[Job, RunFacts, Mapping[str, str]], None]


def run(job: Job) -> RunFacts:
    """Seed all random number generators and run the configured job."""
    pl.seed_everything(job.cfg.seed, workers=True, verbose=False)
    if job.record.script == "search":
        return run_search(job)
    if job.record.script == "analyze":
        return run_study(job)
    return run_training(job) if job.cfg.get("ensemble") is None else run_ensemble(job)


# Search


def run_search(job: Job) -> RunFacts:
    """Run a search."""
    cfg = job.cfg
    timed: list[pl.Callback] = [Stopwatch(), *_deadlines(cfg)]
    parts = searched_parts(cfg)
    with building():
        parts.check_network()
    with building("strategy"):
        strategy = build_strategy(factory_of(cfg.strategy), parts)
    derivation = None
    if cfg.derivation:
        with building("derivation"):
            derivation = parts.build(factory_of(cfg.derivation))
            derivation.check(strategy)
    parts.data.setup()  # raises for invalid images before the first line is printed
    strategy.check_data(parts.data)
    trainer = build_trainer(cfg, parts, timed)
    with published(trainer.loggers, parts.folder):
        start = checkpoint(cfg, strategy)
        _announce(f"Searching {parts.space.name} with {strategy.label} on {parts.data.name}", cfg)
        facts = search(
            strategy, parts, trainer, derivation=derivation, checkpoint=start, overrides=job.overrides
        )
        if trainer.is_global_zero:
            if cfg.limits.minutes is not None and facts.seconds is not None:
                print(f"took {duration(facts.seconds)} of {duration(60 * cfg.limits.minutes)}")
            command = command_to_train(job.record, parts.folder, facts, job.images)
            show_run(job, facts, {"Train it": command})
    return facts


def _deadlines(cfg: DictConfig) -> list[Deadline]:
    """Return the callback that ends a search after `limits.minutes`, which then replaces `max_epochs`.

    A search with `max_epochs=0` has no rounds to end.
    """
    if cfg.limits.minutes is None:
        return []
    if cfg.trainer.max_epochs != 0:
        cfg.trainer.max_epochs = -1
    return [Deadline(cfg.limits.minutes)]


# Training


def show_run(job: Job, facts: RunFacts, following: Mapping[str, str]) -> None:
    """Write the report and print the results and the next commands.

    Args:
        job: the job.
        facts: its results.
        following: the next commands, by purpose.
    """
    from nas_lightning.report.page import link_sources, write_report

    folder, genotypes = job.folder, job.folder.genotypes
    report = write_report(
        folder.path, facts.seconds, {**following, REPEAT: command_to_repeat(job.record, facts)}
    )
    if job.cfg.resume is None:  # never write to folders that an untrusted record names
        link_sources(folder.path)
    first = "the first architecture" if facts.knee is None else "the knee"
    of_first = f" ({first})" if len(genotypes) > 1 else ""
    shown = _architectures(genotypes, facts.metrics) if facts.knee is None else _front(folder, facts.knee)
    size = f"{facts.params:,} parameters, {facts.macs:,} multiply-adds{of_first}"
    lines = ["", *shown, "", size]
    if topology := topology_text(genotypes[facts.knee or 0]):
        lines.append(f"{topology}{of_first}")
    if numbers := select_headline(facts.metrics):
        lines.append(", ".join(f"{name} {_format(value)}" for name, value in numbers.items()))
    lines += [f"{name} {text}" for name, text in facts.costs.items()]
    if facts.note is not None:
        lines.append(facts.note)
    if job.in_sweep:  # the sweep prints a table at the end
        lines.append("")
    else:
        lines += ["", f"genotype  {short_path(folder.genotype)}"]
        pictures = sorted((folder.path / "figures").glob("genotype*.png"))
        if folder.front.is_file():
            lines.append(f"front     {short_path(folder.front)}")
            pictures = [folder.path / "figures" / "front.png", *pictures]
        lines += [f"picture   {short_path(path)}" for path in pictures]
        lines.append(f"report    {short_path(report)}")
        if (folder.path / MODEL).is_file():
            lines.append(f"model     {short_path(folder.path / MODEL)}")
        lines += _next_lines(following)
    print("\n".join(lines), flush=True)


def run_training(job: Job, show: Show = show_run) -> RunFacts:
    """Run a training."""
    cfg = job.cfg
    _check_genotype(job)
    genotype, space, sizes = configured_architecture(cfg, job.record.folders)
    sizes = sizes_of(space.network, sizes, "network")
    data = build_data(cfg)
    parts = Parts(space, data, Path(cfg.run), cfg.seed, network_sizes=sizes, recipe=recipe_of(cfg))
    with building():
        training = prepare_training(genotype, parts, cfg.pretrained)
    trainer = build_trainer(cfg, parts, [Stopwatch()], _OF_TRAININGS)
    given = isinstance(space, FixedNetwork)
    what = f"{space.notation(genotype)} of {space.name}" if given else f"a network of {space.name}"
    origin = ""
    if cfg.pretrained is not None:
        origin = f", from {short_path(cfg.pretrained)}"
        if training.new_classifier:
            origin += f" with a new classifier of {data.num_classes} classes"
    with published(trainer.loggers, parts.folder):
        start = checkpoint(cfg, training.module)
        _announce(f"Training {what} on {data.name}: {training.size}{origin}", cfg)
        facts = fit(training, parts, trainer, start, job.overrides)
        if trainer.is_global_zero:
            show(job, facts, uses_of_model(job.record, parts.folder, job.own))
    return facts


def _check_genotype(job: Job) -> None:
    """Raise for settings that the yaml of the chosen genotype does not have."""
    choice = job.choices.get("genotype")
    if job.cfg.get("genotype") is None or choice in (None, "null"):
        return
    known = {str(key) for key in OmegaConf.load(option_file("genotype", str(choice), job.record.folders))}
    for key in job.cfg.genotype:
        if key not in known:
            raise InputError(f"`genotype` has no setting `{key}` ({near_match(str(key), known)}).")


def configured_architecture(
    cfg: DictConfig, folders: tuple[Path, ...]
) -> tuple[Genotype, SearchSpace, dict[str, Any]]:
    """Return the configured genotype, its space, and the sizes of the network.

    The user's sizes take precedence over those of the space's yaml.
    """
    given = cfg.network if "_target_" in cfg.network else None
    sources = {"pretrained": cfg.pretrained, "genotype": cfg.get("genotype"), "network": given}
    named = [f"{name}=…" for name, source in sources.items() if source is not None]
    if len(named) > 1:
        raise InputError(f"Choose one architecture, got {' and '.join(named)}.")
    own = {str(k): v for k, v in OmegaConf.to_container(cfg.network, resolve=True).items() if v is not None}  # type: ignore[union-attr]
    if given is not None:
        network: FixedNetwork = build(OmegaConf.create(own), "network")
        return network.genotype, network, {}
    if cfg.pretrained is not None:
        check_file(cfg.pretrained, **own_parts(cfg, folders))
        described = describe(cfg.pretrained, **own_parts(cfg, folders))
        return described.genotype, described.make_space(), {**described.sizes, **own}
    if cfg.get("genotype") is None:
        raise InputError(
            "Choose an architecture: genotype=file genotype.path=<run of nas-search>, a published one such as"
            " genotype=darts_v2, or a network: network=timm network.name=resnet18. `--help` lists them."
        )
    chosen: Any = OmegaConf.to_container(cfg.genotype, resolve=True)
    if "path" in chosen:
        genotype, space = _architecture_of_file(chosen["path"], chosen.get("index"), own_parts(cfg, folders))
    else:
        if not isinstance(chosen.get("space"), str):
            raise InputError(f"`genotype.space` must be the name of a space, got {chosen.get('space')}.")
        space = make_space(chosen["space"], folders=folders)
        genotype = space.parse(chosen)
    return genotype, space, {**network_sizes(space, folders), **own}


def _architecture_of_file(path: str, index: Any, own: dict[str, Any]) -> tuple[Genotype, SearchSpace]:
    genotypes = read_genotypes(path)
    if index == KNEE:
        index = _knee_of(Path(path))
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(genotypes):
        expected = (
            f"`genotype.index` must be an integer from 0 to {len(genotypes) - 1}, or {KNEE} for a front"
        )
        raise InputError(expected, got=index)
    genotype = genotypes[index]
    try:
        space = make_space(genotype.space, genotype.settings.to_dict(), **own)
        space.check(genotype)
    except InputError as error:
        raise InputError(str(error), where=path) from None
    return genotype, space


def _knee_of(path: Path) -> int:
    """Return the index of the knee in a front's architectures."""
    knee = read_facts(path / GENOTYPE if path.is_dir() else path).knee
    if knee is None:
        raise InputError("`genotype.index=knee` needs a search with objectives=[…]; pass a number.")
    return knee


# Ensemble


def run_ensemble(job: Job) -> RunFacts:
    """Train the missing members of an ensemble, then evaluate it."""
    plan: Plan = build(job.cfg.ensemble, "ensemble")
    data = build_data(job.cfg)
    if plan.selects is not None:
        check_classes(data, "members are selected by probabilities of")
        check_held_out(data)
    if plan.space is not None:
        job = _with_pool(job, plan, plan.space)
    members = plan.members(*_choice(job.cfg, plan))
    runs = train_members(plan, members, job.folder.path, partial(_train_member, job, plan))
    if not is_first_process():
        return RunFacts("ensemble")
    own = own_parts(job.cfg, job.record.folders)
    device = build(job.cfg.trainer, logger=False).strategy.root_device
    end = conclude(plan, runs, build_data(job.cfg), job.folder.path, job.cfg.seed, device, job.overrides, own)
    following = uses_of_ensemble(job.record, job.folder.path, end.networks, job.images, job.own)
    _show_ensemble(job, end, following)
    return end.facts


def _show_ensemble(job: Job, end: Any, following: Mapping[str, str]) -> None:
    from nas_lightning.report.page import link_sources, refresh_all, write_report

    folder = job.folder.path
    further = {**following, REPEAT: command_to_repeat(job.record, end.facts)}
    report = write_report(folder, end.facts.seconds, further, end.findings)
    if job.cfg.resume is None:
        link_sources(folder)
    refresh_all(folder.glob("member_*"))
    lines = [table.markdown() + "\n" for table in end.findings.tables]
    lines += [short_path(path) for path in end.files]
    lines += [f"ensemble  {short_path(folder / ENSEMBLE)}", f"report    {short_path(report)}"]
    print("\n".join([*lines, *_next_lines(following)]), flush=True)


def _with_pool(job: Job, plan: Plan, space: str) -> Job:
    """Return the job with the sampled architectures of the plan, written to a file in the run's folder."""
    cfg, folders = copy.deepcopy(job.cfg), job.record.folders
    if cfg.get("genotype") is not None or cfg.pretrained is not None:
        raise InputError("Leave out genotype= and pretrained=: this ensemble draws its architectures.")
    options = groups(folders)["space"]
    if space not in options:
        raise InputError(f"`ensemble.space` has no option `{space}` ({near_match(space, options)}).")
    pool = job.folder.pool
    if cfg.resume is None or not pool.is_file():  # several processes may write: they draw the same
        own = pool.with_suffix(f".{os.getpid()}")
        os.replace(write_genotypes(own, plan.draw(make_space(space, folders=folders))), pool)
    with open_dict(cfg):
        cfg.genotype = {"path": str(pool), "index": 0}
    return Job(cfg, job.record)


def _choice(cfg: DictConfig, plan: Plan) -> tuple[int, int]:
    """Return the index of the chosen architecture and the number of architectures."""
    if not plan.trains:
        if cfg.get("genotype") is not None or cfg.pretrained is not None:
            raise InputError("Leave out genotype= and pretrained=: this ensemble trains nothing.")
        return 0, 0
    if cfg.get("genotype") is None or "path" not in cfg.genotype:
        return 0, 1
    return cfg.genotype.index, len(read_genotypes(cfg.genotype.path))


def _train_member(job: Job, plan: Plan, member: Member, folder: Path, name: str) -> None:
    cfg = _config_of_member(job.cfg, plan, member, folder)
    record = record_of_config(cfg, _member_overrides(job, plan, cfg), job.record.hydra)
    own = Job(cfg, record)
    with own.locked_folder():
        own.write_record()  # so that a member can be resumed alone
        pl.seed_everything(cfg.seed, workers=True, verbose=False)
        run_training(own, partial(_show_member, name))


def _config_of_member(cfg: DictConfig, plan: Plan, member: Member, folder: Path) -> DictConfig:
    """Return the configuration of a member's run."""
    own = copy.deepcopy(cfg)
    with open_dict(own):
        own.run = str(folder)
        own.seed = cfg.seed + member.further_seed
        own.resume = None if cfg.resume is None else own.run
        own.ensemble = None
        if own.get("genotype") is not None and "path" in own.genotype:
            own.genotype.index = member.architecture
        if plan.selects is not None and "seed" in cfg.dataset:  # all hold out the same images
            own.dataset.seed = cfg.dataset.seed
    return own


def _member_overrides(job: Job, plan: Plan, own: DictConfig) -> list[str]:
    """Return the overrides that would train the member alone."""
    given = [f"seed={own.seed}"]
    if plan.space is not None:
        given += ["genotype=file", f"genotype.path={quote(own.genotype.path)}"]
    if own.get("genotype") is not None and "path" in own.genotype:
        given.append(f"genotype.index={own.genotype.index}")
    if plan.selects is not None and "seed" in own.dataset:
        given.append(f"dataset.seed={own.dataset.seed}")
    replaced = ("ensemble", "genotype.index=", "seed=", "resume=", "run=", "trust=")
    return [*job.record.without(*replaced, *(f"{word.split('=')[0]}=" for word in given)), *given]


def _show_member(name: str, job: Job, facts: RunFacts, following: Mapping[str, str]) -> None:
    from nas_lightning.report.page import write_report

    numbers = ", ".join(f"{key} {value:.4g}" for key, value in select_headline(facts.metrics).items())
    report = write_report(job.folder.path, following=following)
    print(f"{name}: {numbers}; report {short_path(report)}\n", flush=True)


# Study


def run_study(job: Job) -> RunFacts:
    """Run a study."""
    from nas_lightning.report.page import link_sources, write_report

    cfg, start = job.cfg, time.monotonic()
    if cfg.get("study") is None:
        options = ", ".join(groups(job.record.folders)["study"])
        raise InputError(f"Choose a study: study=<one of {options}>. `--help` says what each is.")
    name = job.choices["study"]
    parts = searched_parts(cfg)
    with building("study"):
        question = parts.build(factory_of(cfg.study), ("seed",))  # options may have the names of other parts
        if not isinstance(question, Study):
            raise InputError(f"`study._target_` must be a subclass of Study, got {type(question).__name__}.")
        named = named_parts(question, parts)
    print(f"Study {name}, seed {cfg.seed} → {short_path(cfg.run)}", flush=True)
    findings = question.run(**named)
    facts = write_findings(findings, parts, name, time.monotonic() - start, job.overrides)
    report = write_report(parts.folder, findings=findings)
    if cfg.resume is None:
        link_sources(parts.folder)
    tables = [table.markdown() for table in findings.tables if not table.long]
    files = [*(parts.folder / file for file in facts.files), report]
    print("\n" + "\n\n".join([*tables, "\n".join(map(short_path, files))]), flush=True)
    return facts


# Output on the screen


def _announce(what: str, cfg: DictConfig) -> None:
    """Print one line before the work starts."""
    if is_first_process():
        count = cfg.trainer.max_epochs
        length = f"{count} epoch{'s' * (count != 1)}" if count >= 0 else duration(60 * cfg.limits.minutes)
        print(f"{what}, {length}, seed {cfg.seed} → {short_path(cfg.run)}", flush=True)


def _next_lines(following: Mapping[str, str]) -> list[str]:
    """Return the lines of the next commands, each under its purpose."""
    return [line for purpose, typed in following.items() for line in ("", f"{purpose}:", f"  {typed}")]


def _architectures(genotypes: list[Genotype], metrics: Mapping[str, float]) -> Iterable[str]:
    """Yield the lines of each architecture; several are numbered, with metrics `members/<number>/…`."""
    for number, genotype in enumerate(genotypes, 1):
        if len(genotypes) > 1:
            own = {name: value for name, value in metrics.items() if name.startswith(f"members/{number}/")}
            said = [f"{name.rpartition('/')[2]} {value:.4g}" for name, value in sorted(own.items())]
            yield f"{number}.  {', '.join(said)}".rstrip()
        yield str(genotype)


def _front(folder: RunFolder, knee: int) -> list[str]:
    """Return the table of a front, with at most `MOST_ROWS` rows around the knee."""
    header, *rows = csv.reader(read_text(folder.front).splitlines())
    start = max(0, min(knee - MOST_ROWS // 2, len(rows) - MOST_ROWS))
    shown = [[short_number(cell) for cell in row[:-1]] for row in rows[start : start + MOST_ROWS]]
    left_out = [f"… of {len(rows)} architectures"] if len(rows) > MOST_ROWS else []
    return [align([header[:-1], *shown]), *left_out]


def select_headline(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the losses, accuracies, ranks, and scores of the task."""
    ends = ("_loss", "_accuracy", "_rank", "hypervolume")
    return {
        name: value for name, value in sorted(metrics.items()) if name.endswith(ends) or split_score(name)
    }


def _format(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
