"""Atomic writes, JSON, and locks."""

import errno
import json
import logging
import math
import os
import signal
import time
from pathlib import Path

import filelock
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nas_lightning.errors import InputError
from nas_lightning.report.record import read_summary
from nas_lightning.runs import RunFacts, RunFolder, read_history
from nas_lightning.runs.facts import history_line
from nas_lightning.utils.files import FILE_NAME, hold, json_text, read_records, replacing, turn

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=10,
)


def refuse(name):
    raise AssertionError(f"{name} is not JSON")


def with_null(value):
    if isinstance(value, dict):
        return {key: with_null(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [with_null(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@settings(max_examples=25, deadline=None)
@given(PLAIN)
def test_json_writes_null_for_numbers_that_are_not_finite(value):
    assert json.loads(json_text(value), parse_constant=refuse) == with_null(value)


def test_json_warns_of_numbers_that_are_not_finite(caplog):
    with caplog.at_level(logging.WARNING):
        json_text({"metrics": {"loss": math.nan, "scores": [1.0, -math.inf]}, "seed": 1})
    assert caplog.messages == ["not finite, and null in the file: metrics.loss nan, metrics.scores -inf"]
    caplog.clear()
    json_text({"metrics": {"loss": 1e300}})
    assert not caplog.messages


def test_summary_with_infinite_metric_is_valid_json(tmp_path):
    metrics = {"test_error": 0.5, "zero_cost": -math.inf}
    RunFolder(tmp_path).finish(RunFacts("training", metrics=metrics, seconds=1.0))
    json.loads((tmp_path / "summary.json").read_text(), parse_constant=refuse)
    for read in (RunFolder(tmp_path).facts.metrics, read_summary(tmp_path)["metrics"]):
        assert read["test_error"] == 0.5
        assert math.isnan(read["zero_cost"])


def test_damaged_records_raise_one_line(tmp_path, refusal):
    path = tmp_path / "records.json"
    damaged = {
        "a list": "[]",
        "a number": "3",
        "truncated": '{"a": [1, ',
        "deeply nested": "[" * 100_000,
        "not text": "\udcff",
        "a number of thousands of digits": '{"epoch": ' + "9" * 5000 + "}",
    }
    for name, text in damaged.items():
        path.write_text(text + "\n", errors="surrogateescape")
        assert str(path) in refusal(read_records, path), name
        assert str(path) in refusal(read_history, path), name


def test_history_keeps_finite_numbers(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text(history_line({"epoch": 0, "scores": [0.5, math.nan]}))
    assert read_history(path) == [{"epoch": 0, "scores": [0.5, None]}]
    path.write_text('{"epoch": Infinity}\n')
    with pytest.raises(InputError, match="Each line must be an epoch in JSON"):
        read_history(path)


def test_interrupted_write_leaves_nothing(tmp_path):
    def interrupt(path: Path, error: type[BaseException]) -> None:
        with replacing(path) as partial:
            partial.write_text("1 2")
            raise error

    for error in (KeyboardInterrupt, SystemExit, ValueError):
        with pytest.raises(error):
            interrupt(tmp_path / "numbers.txt", error)
        assert not [*tmp_path.iterdir()]


# Locks


@pytest.fixture
def holder(tmp_path):
    """The id of a process that holds the lock of `tmp_path` until it is killed."""
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with hold(tmp_path):
                os.write(tell, b"1")
                time.sleep(600)
        finally:
            os._exit(1)
    assert os.read(ready, 1) == b"1"
    yield child
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_second_process_is_refused(holder, tmp_path):
    for attempt in (hold(tmp_path), turn(tmp_path, seconds=0.1)):
        with pytest.raises(InputError, match="another process is writing here"):
            attempt.__enter__()


def test_lock_of_a_killed_process_is_free(holder, tmp_path):
    os.kill(holder, signal.SIGKILL)
    with turn(tmp_path):  # the system releases it at some moment after the signal
        assert (tmp_path / FILE_NAME).is_file()
    assert not (tmp_path / FILE_NAME).exists()


def test_one_process_at_a_time(tmp_path):
    """Four processes take twenty turns each; none is in the folder while another is."""
    inside = tmp_path / "inside"

    def work() -> None:
        taken = 0
        while taken < 20:
            try:
                with hold(tmp_path):
                    inside.mkdir()  # fails if another process is in the folder
                    inside.rmdir()
                    taken += 1
            except InputError:
                pass

    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work()
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4


def test_file_system_without_locks_warns(tmp_path, monkeypatch, caplog):
    def raise_error(*args, **kwargs):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(filelock.FileLock, "acquire", raise_error)
    with hold(tmp_path):
        pass
    assert "No locks available" in caplog.text


def test_link_in_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / FILE_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="The lock file must not be a link"):
        hold(tmp_path).__enter__()
    assert (tmp_path / "elsewhere").read_text() == "mine"


def test_locking_a_run_removes_incomplete_files(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt.partial").write_text("half")
    (tmp_path / ".hydra.partial").mkdir()
    (tmp_path / "metrics.csv").write_text("step,epoch\n")
    with RunFolder(tmp_path).lock():
        names = {path.name for path in tmp_path.rglob("*")}
    assert names == {"checkpoints", "metrics.csv", FILE_NAME}
