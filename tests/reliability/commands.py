"""Small commands of every kind, and bitwise comparison of their results."""

import csv
import json
from pathlib import Path

import torch

from tests.cli.conftest import TINY_DATA, TINY_NETWORK, TINY_SEARCH
from tests.cli.test_kill import CHECKPOINT_KEYS, assert_same
from tests.reliability.faults import command_in_child
from tests.yamls import options, small

QUIET = ("callbacks.history.figures=false", "trainer.max_epochs=2")
MEMBER = (*TINY_DATA, *TINY_NETWORK, "trainer.max_epochs=1", "genotype=nasbench201_best")
COMMANDS = {
    "search": ("search", *TINY_SEARCH, *QUIET, "strategy=pr_darts"),
    "train": ("train", *TINY_DATA, *TINY_NETWORK, "trainer.max_epochs=2", "genotype=nasbench201_best"),
    "ensemble": ("train", *MEMBER, "ensemble=deep", "ensemble.count=2"),
    "study": ("analyze", "study=short_trainings", *small("study", "short_trainings")),
    "sweep": ("search", "-m", *TINY_SEARCH, *QUIET[:1], "trainer.max_epochs=1", "strategy=darts,random"),
}
LONG = {
    **{f"study {name}": ("analyze", f"study={name}", *small("study", name)) for name in options("study")},
    "selection": (
        "train",
        *MEMBER[:-1],
        "ensemble=nes_rs",
        "ensemble.space=nasbench201",
        "dataset.val_fraction=0.25",
        "ensemble.pool=3",
        "ensemble.size=2",
    ),
}
"""Commands for which killing at every change takes minutes."""
LOGS = {"search.log", "train.log", "analyze.log"}
TIMED = {*LOGS, "report.html", "table.md", "multirun.yaml", "hydra.yaml", "seconds.json"}
"""Files that contain times or paths."""
LATENCIES = "times.csv"
MEASURED = {"device", "times", "latencies", "foretold"}
"""In runs with the file LATENCIES, these files and the metrics contain measured milliseconds."""


def commands_to_finish(folder: Path, argv: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the arguments after a kill: `resume=`, or the same again if there is nothing to resume."""
    sweep = ("-m",) if "-m" in argv else ()
    return {"resume": (argv[0], *sweep, f"resume={folder.name}"), "again": argv}


def finish(folder: Path, argv: tuple[str, ...]) -> str:
    """Finish the run with one command; return which."""
    for name, command in commands_to_finish(folder, argv).items():
        if command_in_child(folder, *command) == 0:
            return name
    return "dead end"


def assert_same_folder(expected: Path, other: Path) -> None:
    """Compare all files of two folders, except for times."""
    names = [{str(path.relative_to(run)) for path in files_of(run)} for run in (expected, other)]
    assert names[0] == names[1], names[0] ^ names[1]
    for name in sorted(names[0]):
        if name.endswith(".ckpt"):
            assert_same(*(saved(run / name) for run in (expected, other)), name)
        else:
            assert content(expected, name) == content(other, name), name


def files_of(run: Path) -> list[Path]:
    return [path for path in run.rglob("*") if path.is_file()]


def saved(file: Path) -> dict[str, object]:
    """Return the parts of a checkpoint that affect resuming."""
    checkpoint = torch.load(file, weights_only=True)
    return {key: checkpoint[key] for key in CHECKPOINT_KEYS if key in checkpoint}


def content(run: Path, name: str) -> object:
    """Return the content of a file that is equal in two equal runs."""
    file = run / name
    measures = (run / LATENCIES).exists()
    if file.name in TIMED or (measures and file.stem in MEASURED):
        return file.stat().st_size > 0 or file.suffix == ".log"
    if file.name == "summary.json":
        timed = {"seconds", "metrics"} if measures else {"seconds"}
        return {key: value for key, value in json.loads(file.read_text()).items() if key not in timed}
    if "seconds" in columns_of(file.with_suffix(".csv")):
        return rows_without_seconds(file) if file.suffix == ".csv" else file.stat().st_size > 0
    return file.read_bytes().replace(str(run).encode(), b"run")


def columns_of(table: Path) -> list[str]:
    """Return the header of a CSV file, or of the CSV version of a table."""
    return table.read_text().partition("\n")[0].split(",") if table.is_file() else []


def rows_without_seconds(table: Path) -> list[dict[str, str]]:
    with table.open(newline="") as file:
        return [{key: cell for key, cell in row.items() if key != "seconds"} for row in csv.DictReader(file)]
