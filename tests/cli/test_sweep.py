"""A sweep that stopped goes on by one command, and ends as one that did not.

Seen red on version 0.1: the same words were refused for their folder, and `-m resume=` as no single run.
"""

import shutil

import pytest
from nas_lightning.cli.stored_words import sweep_words

from nas_lightning.runs.record import Record
from tests.cli.conftest import TINY_SEARCH, process_state, run_script
from tests.weather.commands import assert_same_folder

WORDS = ("-m", *TINY_SEARCH, "callbacks.history.figures=false", "trainer.max_epochs=1", "strategy=darts")
SEEDS = (*WORDS, "seed=0,1")


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A finished sweep of two seeds."""
    folder = tmp_path_factory.mktemp("swept")
    with pytest.MonkeyPatch.context() as patch, process_state():
        patch.chdir(folder)
        assert run_script("search", *SEEDS, "run=sweep") == 0
    return folder / "sweep"


@pytest.fixture
def sweep(swept, tmp_path):
    shutil.copytree(swept, tmp_path / "sweep")
    return tmp_path / "sweep"


@pytest.mark.parametrize("typed", [(*SEEDS, "run=sweep"), ("-m", "resume=sweep")])
def test_what_is_missing_runs_and_what_is_done_is_read(typed, sweep, swept, command):
    shutil.rmtree(sweep / "0")
    (sweep / "table.md").unlink()
    before = (sweep / "1" / "summary.json").stat().st_mtime_ns
    code, out, err = command("search", *typed)
    assert (code, err) == (0, "")
    assert out.count("epoch 1/1") == 1
    assert (sweep / "1" / "summary.json").stat().st_mtime_ns == before
    assert_same_folder(swept, sweep)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ((*WORDS, "seed=0,1,2", "run=sweep"), "expected seed=0,1, as the sweep that is there has it"),
        ((*SEEDS, "strategy.lr=0.5", "run=sweep"), "expected strategy.lr=0.025"),
        (("-m", "resume=sweep", "seed=1,0"), "expected seed=0,1, as the sweep"),
        (("-m", "resume=sweep", "hydra.sweep.subdir=a"), "expected hydra.sweep.subdir="),
        (("resume=sweep",), "expected the folder of a run, or -m before resume="),
        (("-m", "resume=sweep/0"), "expected the folder of a sweep, or resume= without -m"),
    ],
)
def test_another_sweep_in_its_folder_is_refused(typed, message, sweep, swept, command):
    code, _, err = command("search", *typed)
    assert code == 1
    assert message in err
    assert len(err.splitlines()) == 1
    assert_same_folder(swept, sweep)


def test_one_of_another_script_is_refused(sweep, command):
    assert "expected the folder of a run of train.py" in command("train", "-m", "resume=sweep").err


def test_a_job_that_failed_is_tried_again(command, tmp_path, monkeypatch):
    argv = ("-m", *TINY_SEARCH, "strategy=random", "seed=0,1", "run=sweep", "callbacks.history.figures=false")
    with monkeypatch.context() as patch:
        patch.setattr("nas_lightning.cli.job.check_targets", fail_once())
        code, out, err = command("search", *argv)
    assert code == 1
    assert "RuntimeError: weather" in err
    assert "-m resume=sweep" in out.splitlines()[-1]
    assert (tmp_path / "sweep" / "0" / "error.txt").is_file()
    code, out, err = command("search", "-m", "resume=sweep")
    assert (code, err) == (0, "")
    assert "weather" not in (tmp_path / "sweep" / "table.md").read_text()
    assert not (tmp_path / "sweep" / "0" / "error.txt").exists()


def fail_once():
    calls = []

    def call(cfg):
        calls.append(cfg)
        if len(calls) == 1:
            raise RuntimeError("weather")

    return call


def test_jobs_that_share_a_folder_are_refused(command, tmp_path):
    code, _, err = command("search", *SEEDS, "run=sweep", "hydra.sweep.subdir=same")
    assert code == 1
    assert "expected seed=0, as the run that goes on has it, got 1" in err


NUMBERS = ["hydra.launcher.n_jobs=2", "hydra.sweeper.objectives=[valid_accuracy,params]"]
OTHERS = ["hydra.launcher.setup=[rm]", "hydra.sweeper._target_=os.system", "hydra/launcher=joblib"]
FOLDER = ["hydra.sweep.dir=elsewhere", "hydra.mode=MULTIRUN"]


@pytest.mark.parametrize(
    ("stored", "typed", "trust", "words"),
    [
        (NUMBERS, [], False, NUMBERS),
        ([*NUMBERS, *OTHERS[:2], *FOLDER, "hydra.sweeper.x=${oc.env:HOME}", 3], [], False, NUMBERS),
        ([*NUMBERS, *OTHERS], [], False, NUMBERS[1:]),  # a launcher's settings go with it
        (NUMBERS, ["launcher=ray"], False, NUMBERS[1:]),
        ([*NUMBERS, *OTHERS, *FOLDER], [], True, [*NUMBERS, *OTHERS]),
        ([*NUMBERS, *OTHERS], ["hydra/launcher=submitit_local"], True, [NUMBERS[1], OTHERS[1]]),
        (NUMBERS, ["hydra.launcher.n_jobs=3"], True, NUMBERS[1:]),
        ("n_jobs=2", [], True, []),
    ],
)
def test_a_sweep_goes_on_with_its_launchers_and_sweepers_numbers(stored, typed, trust, words):
    record = Record((), {}, {"overrides": {"hydra": stored}})
    assert sweep_words(record, typed, trust=trust) == words


def test_a_strangers_sweep_types_nothing_of_hydras(sweep, command):
    record = sweep / ".hydra" / "overrides.yaml"
    record.write_text(record.read_text() + "- hydra.sweep.dir=/elsewhere,/there\n")
    code, _, err = command("search", "-m", "resume=sweep")
    assert code == 1
    assert "expected a setting that is not Hydra's" in err
