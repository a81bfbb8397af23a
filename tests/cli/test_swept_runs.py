"""A sweep of searches is what a sweep of trainings goes over."""

import pytest
from nas_lightning.cli.composition import parse
from nas_lightning.cli.swept_runs import expand_runs
from nas_lightning.cli.swept_values import swept_values

from nas_lightning.errors import InputError
from nas_lightning.runs.folder import RunFolder
from nas_lightning.runs.record import Record
from tests.cli.conftest import TINY_DATA, TINY_NETWORK, TINY_SEARCH

SWEEP = Record(("seed=0,1",), {}, {"mode": "MULTIRUN", "job": {"config_name": "search"}})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A sweep of twelve jobs, of which the fourth has no architecture, and a run beside it."""
    monkeypatch.chdir(tmp_path)
    RunFolder(tmp_path / "a, sweep").create(SWEEP)
    for run in [*(f"a, sweep/{job}" for job in range(12)), "alone"]:
        (tmp_path / run).mkdir()
        if not run.endswith("/3"):
            (tmp_path / run / "genotype.json").touch()
    return tmp_path


def paths(word):
    (override,) = parse([expand_runs(word)])
    return swept_values(override) if override.is_sweep_override() else override.value()


def test_a_sweep_stands_for_its_runs_in_their_order(folder):
    runs = [f'"a, sweep/{job}"' for job in range(12) if job != 3]
    assert paths('genotype.path="a, sweep"') == runs
    assert paths('genotype.path="a, sweep",alone') == [*runs, '"alone"']


def test_a_pattern_stands_for_the_folders_that_it_fits(folder):
    assert paths("genotype.path=glob(al*)") == "alone"
    assert paths("genotype.path=glob(*sweep/1*,exclude=*1)") == "a, sweep/10"


@pytest.mark.parametrize(
    "word", ["genotype.path=alone", "genotype.path=x,y", "seed=0,1", "~genotype.path", "+a"]
)
def test_other_words_stay_as_they_are(folder, word):
    assert expand_runs(word) == word


def test_what_there_is_not_is_one_line(folder):
    with pytest.raises(InputError, match="expected a pattern of runs that are there"):
        expand_runs("genotype.path=glob(nothing*)")
    RunFolder(folder / "empty").create(SWEEP)
    with pytest.raises(InputError, match="expected a sweep with architectures, got 'empty'"):
        expand_runs("genotype.path=empty")


@pytest.mark.slow
def test_two_lines_search_and_train_all(command, tmp_path):
    search = ("strategy=random", "trainer.max_epochs=1", "callbacks.history.figures=false")
    assert command("search", "-m", *TINY_SEARCH, *search, "seed=0,1", "run=searched").code == 0
    train = (*TINY_DATA, *TINY_NETWORK, "trainer.max_epochs=1", "genotype=file", "genotype.path=searched")
    code, _, err = command("train", *train)
    assert code == 1
    assert "expected one value, or -m for a sweep" in err
    assert command("train", "-m", *train, "run=trained").code == 0
    found = [RunFolder(tmp_path / f"searched/{job}").genotypes for job in "01"]
    assert [RunFolder(tmp_path / f"trained/{job}").genotypes for job in "01"] == found
