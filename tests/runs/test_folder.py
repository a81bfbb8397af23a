"""A run's folder, record, and facts."""

import errno
import json
import os
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

import nas_lightning
from nas_lightning.cli.help import run_folder
from nas_lightning.errors import InputError
from nas_lightning.genotype import read_genotypes
from nas_lightning.runs.facts import RunFacts
from nas_lightning.runs.folder import RunFolder
from nas_lightning.runs.record import Record, read_record
from nas_lightning.spaces import NasBench201

PACKAGE = Path(nas_lightning.__file__).parent
CELL = "|nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|none~1|skip_connect~2|"
RECORD = Record(("seed=1",), {"seed": 1, "run": "${hydra:x}"}, {"job": {"config_name": "search"}})


def test_what_is_written_is_read(tmp_path):
    run, genotype = RunFolder(tmp_path / "a"), NasBench201().parse(CELL)
    run.create(RECORD)
    assert run.has_record
    assert not run.is_finished
    assert run.record == RECORD
    facts = RunFacts("search", 1, {"valid_loss": 0.5}, 2.5, ("seed=1",), "nasbench201", strategy="Darts")
    run.finish(facts, [genotype])
    assert run.facts == facts
    assert run.genotypes == read_genotypes(tmp_path / "a") == [genotype]
    beside = json.loads(run.genotype.read_text())
    assert {"kind", "space", "metrics", "strategy"} <= set(beside)
    assert not {"seconds", "overrides"} & set(beside)  # in which two equal runs differ


@pytest.mark.parametrize(
    ("script", "config", "kind"),
    [
        ("search", {}, "search"),
        ("train", {"ensemble": None}, "training"),
        ("train", {"ensemble": {"count": 3}}, "ensemble"),
        ("analyze", {}, "study"),
        ([], {}, None),
    ],
)
def test_a_record_says_what_kind_of_run_it_starts(script, config, kind):
    assert Record((), config, {"job": {"config_name": script}}).kind == kind


@pytest.mark.parametrize("hydra", [{"job": [], "runtime": 3}, {"runtime": {"choices": "all"}}, {}])
def test_malformed_record_has_no_script_and_choices(hydra):
    record = Record((), {}, hydra)
    assert (record.script, record.choices, record.kind) == ("", {}, None)


def test_a_first_record_stays(tmp_path):
    run = RunFolder(tmp_path)
    run.create(RECORD)
    run.create(Record((), {"seed": 2}, {}))
    assert run.record == RECORD


@pytest.mark.parametrize("text", ["", "[]", "{", "\0"])
def test_damaged_facts_raise(tmp_path, text):
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(InputError, match="must"):
        _ = RunFolder(tmp_path).facts


@pytest.mark.parametrize("text", ["[", "- 1\n", "!!python/object:os.system {}", "a: b\n"])
def test_damaged_record_raises(tmp_path, text):
    """And nothing of a stranger's is executed."""
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "overrides.yaml").write_text(text)
    with pytest.raises(InputError, match=r" \(in .*overrides.yaml\)"):
        read_record(tmp_path)


@pytest.mark.parametrize("name", ["metrics.csv", "member_1/metrics.csv"])
def test_work_is_detected_when_the_clock_is_set_back(tmp_path, name):
    """What was there before is none, however old."""
    (tmp_path / "notes.txt").write_text("mine")
    run, year_ago = RunFolder(tmp_path), time.time() - 3e7
    os.utime(tmp_path / "notes.txt", (year_ago - 10, year_ago - 10))
    with run.lock():
        run.create(RECORD)
        work = tmp_path / name
        if work.parent != tmp_path:
            RunFolder(work.parent).create(RECORD)
        assert not run.has_work
        work.write_text("step\n")
        os.utime(work, (year_ago, year_ago))
        assert run.has_work


def test_a_folder_is_withdrawn_unless_there_is_work(tmp_path):
    for name, withdrawn in (("search.log", True), ("checkpoints", False)):
        run = RunFolder(tmp_path / name)
        run.create(RECORD)
        (run.path / name).touch()
        run.withdraw()
        assert run.path.exists() is not withdrawn


def test_killed_withdrawal_leaves_no_record(tmp_path, monkeypatch):
    run = RunFolder(tmp_path / "run")
    run.create(RECORD)
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run.withdraw()
    assert [*run.path.glob(".hydra/*")]
    run.create(RECORD)
    assert run.record == RECORD


def test_a_record_that_cannot_be_taken_back_stays_whole(tmp_path, monkeypatch):
    run = RunFolder(tmp_path / "run")
    run.create(RECORD)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", Mock(side_effect=OSError(errno.EROFS, "Read-only file system")))
        run.withdraw()
    assert run.record == RECORD


def test_default_folder_gets_a_number(tmp_path):
    for name in ("a", "a-2", "a-3"):
        folder = Path(run_folder(None, None, str(tmp_path / "a")))
        folder.mkdir()
        assert folder.name == name
