"""Whatever is typed or pointed at: a run, or one line before anything is trained or written."""

import gc
import os
import time

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from nas_lightning.errors import InputError
from nas_lightning.utils.files import MOST_BYTES, check_file
from tests.cli.conftest import TINY_SEARCH
from tests.weather import bad_input
from tests.weather.bad_input import (
    COMMANDS,
    READERS,
    Answer,
    AtWork,
    Case,
    Clock,
    Hang,
    answer,
    cases,
    complaint,
    damaged_files,
)
from tests.weather.bad_runs import PIPE, TRAINING, Damage

FEW = settings(
    max_examples=20,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def complain(tmp_path_factory):
    """`complain(case)`: fails where the answer is neither a run nor one line."""

    def run(case):
        wrong = complaint(case, answer(case, tmp_path_factory.mktemp("case")))
        assert wrong is None, f"{case}\n{wrong}"

    return run


@FEW
@given(case=cases())
def test_a_setting(complain, case):
    complain(case)


@FEW
@given(case=damaged_files())
def test_a_file(complain, case):
    complain(case)


PIPES = [
    ("nas-table", ("broken",), "summary.json"),
    ("nas-table", ("broken",), ".hydra/overrides.yaml"),
    ("nas-report", ("broken",), "metrics.csv"),
    ("nas-export", ("broken", "out.pt2"), "genotype.json"),
    ("nas-export", ("broken", "out.pt2"), "model.safetensors"),
    ("nas-train", ("resume=broken",), "metrics.csv"),
    ("nas-train", (*TRAINING, "init=broken"), "genotype.json"),
]


@pytest.mark.parametrize(("entry", "words", "file"), PIPES)
def test_nobody_waits_for_a_pipe_in_a_run(entry, words, file, complain):
    complain(Case(entry, words, run=Damage("training", file, PIPE)))


@pytest.mark.parametrize("file", ["genotype", "table", "yaml", "image"])
def test_nobody_waits_for_a_pipe_that_is_typed(file, complain):
    script, *words = READERS[file][0]
    data = TINY_SEARCH if script == "search" else TRAINING
    complain(Case(script, (*data, *words), file, PIPE))


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/random"])
def test_what_has_no_end_is_not_read(path, complain):
    complain(Case("train", (*TRAINING, "genotype=file", f"genotype.path={path}")))


def test_a_file_of_gigabytes_is_not_read(tmp_path):
    file = tmp_path / "genotype.json"
    file.touch()
    os.truncate(file, MOST_BYTES + 1)  # which takes no place
    with pytest.raises(InputError, match="of at most 1,073,741,824 bytes, got '1,073,741,825'"):
        check_file(file)


@pytest.mark.slow
def test_a_thousand(capsys):
    assert bad_input.main(["--cases", "1000"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("1000 cases")


def wait(counted):
    time.sleep(2)


def compute(counted):
    while True:
        sum(range(1000))


def train(counted):
    while True:
        counted.append(sum(range(1000)))


@pytest.mark.parametrize(("work", "end"), [(wait, Hang), (compute, Hang), (train, AtWork)])
def test_a_command_that_waits_or_computes_for_long_is_ended(work, end, monkeypatch):
    monkeypatch.setattr(bad_input, "SECONDS", 0.3)
    monkeypatch.setattr(bad_input, "TICK", 0.03)
    counted = []
    with pytest.raises(end), Clock(lambda: len(counted)):
        work(counted)
    with Clock(lambda: 0):
        time.sleep(0.1)


GOOD = Answer(1, "", "error: expected a number, got 'a' (in seed)\n", 0, 1.0, (), (), "")
WRONG = {
    "a traceback": GOOD._replace(code=None, reason="Traceback"),
    "two lines": GOOD._replace(err=GOOD.err + "and more\n"),
    "a line that expects nothing": GOOD._replace(err="error: no\n"),
    "a line of pages": GOOD._replace(err="error: expected " + "x" * 1000),
    "another code": GOOD._replace(code=3),
    "found after training": GOOD._replace(steps=2),
    "a file that stays": GOOD._replace(changed=("run/metrics.csv",)),
    "nan in JSON": GOOD._replace(code=0, err="", summaries=('{"loss": NaN}',)),
    "nan accepted": GOOD._replace(code=0, err=""),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_a_command_must_not_answer(wrong):
    case = Case("training", ("retrain.lr=nan",))
    assert complaint(case, GOOD) is None
    assert complaint(case, wrong) is not None


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_run_as_they_stand(tmp_path, command):
    given_answer = answer(Case(command, ()), tmp_path)
    assert (given_answer.code, given_answer.err) == (0, "")


def test_what_generates_the_cases_has_settings_of_all_parts():
    names = bad_input.setting_names("training")
    assert {"seed", "retrain.lr", "callbacks.best", "logger.csv", "network.channels"} <= {*names}


@pytest.mark.parametrize("words", ["root.handlers=[]", "root.level=abc", "root.handlers=[abc]"])
def test_a_log_that_no_logger_writes_to_is_not_left_open(words, complain, recwarn):
    complain(Case("training", (f"hydra.job_logging.{words}",)))
    gc.collect()
    assert not [str(warning.message) for warning in recwarn if "train.log" in str(warning.message)]
