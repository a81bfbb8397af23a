"""What is written is read again by anybody: JSON has no numbers that are not finite."""

import json
import logging
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nas_lightning
from nas_lightning.errors import InputError
from nas_lightning.report.record import read_summary
from nas_lightning.runs import RunFacts, RunFolder, read_history
from nas_lightning.runs.facts import history_line
from nas_lightning.utils.files import json_text, read_records, replacing

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=10,
)


def refuse(name):
    raise AssertionError(f"{name} is not JSON")


def as_json_says(value):
    if isinstance(value, dict):
        return {key: as_json_says(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [as_json_says(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@given(PLAIN)
def test_json_has_all_but_what_is_not_finite(value):
    assert json.loads(json_text(value), parse_constant=refuse) == as_json_says(value)


def test_what_is_not_finite_is_said(caplog):
    with caplog.at_level(logging.WARNING):
        json_text({"metrics": {"loss": math.nan, "scores": [1.0, -math.inf]}, "seed": 1})
    assert caplog.messages == ["not finite, and null in the file: metrics.loss nan, metrics.scores -inf"]
    caplog.clear()
    json_text({"metrics": {"loss": 1e300}})
    assert not caplog.messages


def test_a_run_with_a_metric_that_is_not_finite_is_read_again(tmp_path):
    metrics = {"test_error": 0.5, "zero_cost": -math.inf}
    RunFolder(tmp_path).finish(RunFacts("training", metrics=metrics, seconds=1.0))
    json.loads((tmp_path / "summary.json").read_text(), parse_constant=refuse)
    for read in (RunFolder(tmp_path).facts.metrics, read_summary(tmp_path)["metrics"]):
        assert read["test_error"] == 0.5
        assert math.isnan(read["zero_cost"])


def test_one_function_writes_all_json():
    """Elsewhere `json.dumps` would write NaN, which JSON has not; what only measures is left out."""
    package = Path(nas_lightning.__file__).parent
    callers = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"json\.dumps?\(", path.read_text()) and "measure" not in path.parts
    }
    assert callers == {
        "files.py",
        "jobs/next_commands.py",
    }  # the latter writes the words true, false and null


DAMAGED = {
    "a list": "[]",
    "a number": "3",
    "cut off": '{"a": [1, ',
    "deeply nested": "[" * 100_000,
    "no text": "\udcff",
    "a number of thousands of digits": '{"epoch": ' + "9" * 5000 + "}",
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_damaged_records_are_one_line(tmp_path, refusal, text):
    path = tmp_path / "records.json"
    path.write_text(text + "\n", errors="surrogateescape")
    assert str(path) in refusal(read_records, path)
    assert str(path) in refusal(read_history, path)


def test_a_history_keeps_what_is_finite(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text(history_line({"epoch": 0, "scores": [0.5, math.nan]}))
    assert read_history(path) == [{"epoch": 0, "scores": [0.5, None]}]
    path.write_text('{"epoch": Infinity}\n')
    with pytest.raises(InputError, match="expected an epoch"):
        read_history(path)


def stop_writing(path: Path, end: type[BaseException]) -> None:
    with replacing(path) as partial:
        partial.write_text("1 2")
        raise end


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, ValueError])
def test_what_is_not_complete_goes_whatever_ends_it(end, tmp_path):
    """Ctrl-C and SIGTERM, too."""
    with pytest.raises(end):
        stop_writing(tmp_path / "numbers.txt", end)
    assert not [*tmp_path.iterdir()]
