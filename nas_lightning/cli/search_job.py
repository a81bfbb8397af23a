"""The job of `search.py`: the parts that are configured, the search, what the screen says of it."""

from __future__ import annotations

from nas_lightning.callbacks.stopwatch import Stopwatch
from nas_lightning.cli.ending import announce, show_run
from nas_lightning.cli.factories import build_trainer, checkpoint, factory_of, searched_parts
from nas_lightning.cli.job_context import JobContext
from nas_lightning.cli.refusals import refuse_in_a_line
from nas_lightning.jobs.next_commands import command_to_train
from nas_lightning.jobs.search import build_strategy, search
from nas_lightning.runs.facts import RunFacts
from nas_lightning.runs.tracking import publish


def run_search(job: JobContext) -> RunFacts:
    """Search as it is configured."""
    cfg, stopwatch = job.cfg, Stopwatch()
    with refuse_in_a_line():
        parts = searched_parts(cfg)
        parts.check_network()
        strategy = build_strategy(factory_of(cfg.strategy), parts)
        derivation = parts.build(factory_of(cfg.derivation)) if cfg.derivation else None
        if derivation is not None:
            derivation.check(strategy)
        parts.data.setup()  # finds what is wrong with the images before the run is announced
        trainer = build_trainer(cfg, parts, [stopwatch])
        start = checkpoint(cfg, strategy)
    announce(f"Searching {parts.space.name} with {strategy.label} on {parts.data.name}", cfg)
    facts = search(strategy, parts, trainer, derivation=derivation, checkpoint=start, words=job.words)
    if trainer.is_global_zero:
        show_run(job, facts, {"Train it": command_to_train(job.command, parts.folder, facts, job.images)})
    publish(trainer.loggers, parts.folder)
    return facts
