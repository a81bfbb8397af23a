"""A run killed before any change of its folder, once each: one command finishes it, to the same bits."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import TINY_DATA, TINY_NETWORK, TINY_SEARCH, run_script
from tests.cli.test_kill import assert_same_run
from tests.weather.faults import changes_of, command_in_child

QUIET = ("callbacks.history.figures=false", "trainer.max_epochs=2")
SEARCH = ("search", *TINY_SEARCH, *QUIET, "strategy=pr_darts")
TRAIN = ("train", *TINY_DATA, *TINY_NETWORK, "trainer.max_epochs=2", "genotype=nasbench201_best")
COMMANDS = {
    "search": (SEARCH, ("metrics.csv", "history.jsonl", "genotype.json")),
    "train": (TRAIN, ("metrics.csv", "genotype.json", "model.safetensors")),
}
KILLED = -9


def finish(folder: Path, words: tuple[str, ...]) -> str:
    """What a user types after a kill: `resume=`, or, where there is nothing to resume, the same again."""
    for name, again in (("resume", (words[0], f"resume={folder.name}")), ("again", words)):
        if command_in_child(folder, *again) == 0:
            return name
    return "dead end"


def same(whole: Path, run: Path, files: tuple[str, ...]) -> None:
    assert_same_run(whole, run, files)
    facts = [json.loads((folder / "summary.json").read_text()) for folder in (whole, run)]
    for one in facts:
        del one["seconds"]
    assert facts[0] == facts[1]
    assert not [path.name for path in run.rglob("*.partial")]
    assert (run / "report.html").stat().st_size > 1000


@pytest.fixture(scope="module", params=COMMANDS)
def whole(request, tmp_path_factory):
    """The run that nothing kills, its command, and what it changes in its folder."""
    words, files = COMMANDS[request.param]
    folder = tmp_path_factory.mktemp(request.param).resolve() / "run"
    assert run_script(*words, f"run={folder.with_name('warm')}") == 0  # children import nothing then
    names = changes_of(folder, *words, "run=run")
    assert len(names) > 20
    return folder, (*words, "run=run"), files, names


def killed_at(number: int, whole, tmp_path: Path) -> str:
    reference, words, files, _ = whole
    folder = tmp_path.resolve() / "run"
    assert command_in_child(folder, *words, at=number) == KILLED
    how = finish(folder, words)
    assert how != "dead end"
    same(reference, folder, files)
    return how


def test_some_of_them(whole, tmp_path):
    """At the record of the start, at a checkpoint, at the genotype, at the summary."""
    names = whole[3]
    for part in (
        ".hydra.partial/overrides.yaml",
        "checkpoints/last.ckpt",
        "genotype.json.partial",
        "summary.json",
    ):
        number = max(place for place, name in enumerate(names) if part in name)
        killed_at(number, whole, tmp_path)
        shutil.rmtree(tmp_path / "run")


@pytest.mark.slow
def test_each_of_them(whole, tmp_path):
    dead_ends = {}
    for number, name in enumerate(whole[3]):
        try:
            killed_at(number, whole, tmp_path)
        except AssertionError as error:
            dead_ends[f"{number} {name}"] = str(error).splitlines()[0]
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
    assert not dead_ends
