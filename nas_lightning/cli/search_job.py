"""The job of `search.py`: the parts that are configured, the search, what the screen says of it."""

from __future__ import annotations

from omegaconf import DictConfig

from nas_lightning.callbacks.progress import Stopwatch
from nas_lightning.cli.ending import announce, show_run
from nas_lightning.cli.factories import build_trainer, checkpoint, factory_of, searched_parts
from nas_lightning.cli.job_context import JobContext
from nas_lightning.cli.refusals import refuse_in_a_line
from nas_lightning.jobs.next_commands import command_to_train
from nas_lightning.jobs.search import build_strategy, search
from nas_lightning.runs.facts import RunFacts
from nas_lightning.runs.trackers import published
from nas_lightning.training.run_length import Deadline
from nas_lightning.utils.text import duration


def run_search(job: JobContext) -> RunFacts:
    """Search as it is configured."""
    cfg, timed = job.cfg, [Stopwatch(), *deadlines(job.cfg)]
    with refuse_in_a_line():
        parts = searched_parts(cfg)
        parts.check_network()
        strategy = build_strategy(factory_of(cfg.strategy), parts)
        derivation = parts.build(factory_of(cfg.derivation)) if cfg.derivation else None
        if derivation is not None:
            derivation.check(strategy)
        parts.data.setup()  # finds what is wrong with the images before the run is announced
        trainer = build_trainer(cfg, parts, timed)
    with published(trainer.loggers, parts.folder):
        with refuse_in_a_line():
            start = checkpoint(cfg, strategy)
        announce(f"Searching {parts.space.name} with {strategy.label} on {parts.data.name}", cfg)
        facts = search(strategy, parts, trainer, derivation=derivation, checkpoint=start, words=job.words)
        if trainer.is_global_zero:
            print(said_of_time(facts, cfg), end="")
            command = command_to_train(job.command, parts.folder, facts, job.images)
            show_run(job, facts, {"Train it": command})
    return facts


def deadlines(cfg: DictConfig) -> list[Deadline]:
    """What ends a search by `limits.minutes`, where nothing else does; one without rounds has none to end."""
    if cfg.limits.minutes is None:
        return []
    if cfg.trainer.max_epochs != 0:
        cfg.trainer.max_epochs = -1
    return [Deadline(cfg.limits.minutes)]


def said_of_time(facts: RunFacts, cfg: DictConfig) -> str:
    """A line on the time that was limited; nothing where none was."""
    if cfg.limits.minutes is None or facts.seconds is None:
        return ""
    return f"took {duration(facts.seconds)} of {duration(60 * cfg.limits.minutes)}\n"
