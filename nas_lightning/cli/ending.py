"""What a run says on the screen: where it writes, what it found, and what to type next."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping

from omegaconf import DictConfig
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.cli.job_context import JobContext
from nas_lightning.genotype import Genotype
from nas_lightning.jobs.next_commands import command_to_repeat
from nas_lightning.models.file import FILE_NAME as MODEL
from nas_lightning.report.sections import short_number
from nas_lightning.runs.facts import RunFacts
from nas_lightning.runs.folder import RunFolder
from nas_lightning.utils.files import read_text
from nas_lightning.utils.tables import align
from nas_lightning.utils.text import duration, short_path, split_score

MOST_ROWS = 20
"""Of a front, on the screen."""
REPEAT = "The same from another start"


@rank_zero_only
def announce(what: str, cfg: DictConfig) -> None:
    """One line before the work starts."""
    count = cfg.trainer.max_epochs
    length = f"{count} epoch{'s' * (count != 1)}" if count >= 0 else duration(60 * cfg.limits.minutes)
    print(f"{what}, {length}, seed {cfg.seed} → {short_path(cfg.run)}", flush=True)


def show_run(job: JobContext, facts: RunFacts, following: Mapping[str, str]) -> None:
    """Write the report and print the end of the run, with what to type next by what it is for."""
    from nas_lightning.report.page import (
        link_sources,
        write_report,  # and with it matplotlib, which no step needs
    )

    run, genotypes = job.folder, job.folder.genotypes
    report = write_report(
        run.path, facts.seconds, {**following, REPEAT: command_to_repeat(job.command, facts)}
    )
    if job.cfg.resume is None:  # what a stranger's record names is not written to
        link_sources(run.path)
    first = "the first architecture" if facts.knee is None else "the knee"
    of_first = f" ({first})" if len(genotypes) > 1 else ""
    size = f"{facts.params:,} parameters, {facts.macs:,} multiply-adds{of_first}"
    shown = _architectures(genotypes, facts.metrics) if facts.knee is None else _front_lines(run, facts.knee)
    lines = ["", *shown, "", size]
    if numbers := select_headline(facts.metrics):
        lines.append(", ".join(f"{name} {_format(value)}" for name, value in numbers.items()))
    if facts.note is not None:
        lines.append(facts.note)
    if job.command.sweep:  # whose table comes at the end
        lines.append("")
    else:
        lines += ["", f"genotype  {short_path(run.genotype)}"]
        pictures = sorted((run.path / "figures").glob("genotype*.png"))
        if run.front.is_file():
            lines.append(f"front     {short_path(run.front)}")
            pictures = [run.path / "figures" / "front.png", *pictures]
        lines += [f"picture   {short_path(path)}" for path in pictures]
        lines.append(f"report    {short_path(report)}")
        if (run.path / MODEL).is_file():
            lines.append(f"model     {short_path(run.path / MODEL)}")
        lines += next_lines(following)
    print("\n".join(lines), flush=True)


def next_lines(following: Mapping[str, str]) -> list[str]:
    """What to type next, each by what it is for."""
    return [line for purpose, typed in following.items() for line in ("", f"{purpose}:", f"  {typed}")]


def _architectures(genotypes: list[Genotype], metrics: Mapping[str, float]) -> Iterable[str]:
    """Each architecture; several have numbers, and what was logged of them as `members/<number>/…`."""
    for number, genotype in enumerate(genotypes, 1):
        if len(genotypes) > 1:
            own = {name: value for name, value in metrics.items() if name.startswith(f"members/{number}/")}
            said = [f"{name.rpartition('/')[2]} {value:.4g}" for name, value in sorted(own.items())]
            yield f"{number}.  {', '.join(said)}".rstrip()
        yield str(genotype)


def _front_lines(run: RunFolder, knee: int) -> list[str]:
    """The table of a front, at most so many of its rows around the knee."""
    header, *rows = csv.reader(read_text(run.front).splitlines())
    start = max(0, min(knee - MOST_ROWS // 2, len(rows) - MOST_ROWS))
    shown = [[short_number(cell) for cell in row[:-1]] for row in rows[start : start + MOST_ROWS]]
    left_out = [f"… of {len(rows)} architectures"] if len(rows) > MOST_ROWS else []
    return [align([header[:-1], *shown]), *left_out]


def select_headline(metrics: Mapping[str, float]) -> dict[str, float]:
    """Losses, accuracies, ranks and the task's scores, which is what a reader looks for first."""
    ends = ("_loss", "_accuracy", "_rank", "hypervolume")
    return {
        name: value for name, value in sorted(metrics.items()) if name.endswith(ends) or split_score(name)
    }


def _format(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
