"""Jobs of a sweep that fail or die: rows with reasons, run again by typing it again, or if asked.

Seen red on version 0.1: jobs in folders of other names than their numbers were no jobs for the table.
"""

import subprocess

import pytest
from nas_lightning.cli.sweep_attempts import run_attempts
from omegaconf import OmegaConf

from nas_lightning.errors import InputError
from nas_lightning.report.comparison import read_jobs
from nas_lightning.runs.folder import RunFolder
from nas_lightning.runs.record import Record
from tests.cli.conftest import TINY_SEARCH, run_process
from tests.cli.test_sweep import WORDS, fail_once

QUICK = ("-m", *TINY_SEARCH, "strategy=random", "callbacks.history.figures=false", "run=sweep")
POISON = '''
import os, signal
from pathlib import Path
import pytorch_lightning as pl

class Poison(pl.Callback):
    """Its process is killed while the job of seed 1 trains for the first time, as the system does."""
    def on_train_batch_end(self, trainer, module, *rest):
        mark = Path({mark!r})
        if trainer.default_root_dir.endswith("1"):
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
'''


def test_what_has_failed_runs_again_if_asked(command, tmp_path, monkeypatch):
    monkeypatch.setattr("nas_lightning.cli.job.check_targets", fail_once())
    code, out, err = command("search", *QUICK, "seed=0,1", "sweep.retries=1")
    assert code == 0
    assert err.count("RuntimeError: weather") == 1
    assert "What has failed runs again, 1 of 1" in out
    table = (tmp_path / "sweep" / "table.md").read_text()
    assert "weather" not in table
    assert table.count("| seed=") == 2


def test_what_fails_always_is_tried_as_often_as_is_asked(command, monkeypatch):
    def fail(cfg):
        raise RuntimeError("weather")

    monkeypatch.setattr("nas_lightning.cli.job.check_targets", fail)
    code, out, err = command("search", *QUICK, "seed=0", "sweep.retries=2")
    assert code == 1
    assert out.count("What has failed runs again") == 2
    assert err.count("RuntimeError: weather") == 3


@pytest.mark.parametrize("retries", ["-1", "many", "1.5"])
def test_retries_are_a_number(retries, command):
    code, _, err = command("search", *QUICK, "seed=0,1", f"sweep.retries={retries}")
    assert code == 1
    assert "in sweep.retries" in err
    assert len(err.splitlines()) == 1


def test_jobs_are_called_as_their_folders_are(command, tmp_path):
    code, *_ = command("search", *QUICK, "seed=0,1", "hydra.sweep.subdir=of_seed_${seed}")
    assert code == 0
    rows = [
        line.split("|")[1].strip()
        for line in (tmp_path / "sweep" / "table.md").read_text().splitlines()
        if "|" in line
    ]
    assert {"of_seed_0", "of_seed_1"} <= {*rows}


def test_a_job_that_has_begun_and_not_ended_is_a_row(command, tmp_path):
    assert command("search", *QUICK, "seed=0,1").code == 0
    RunFolder(tmp_path / "sweep" / "1").summary.unlink()
    first, second = read_jobs(tmp_path / "sweep")
    assert "error" not in first
    assert second["error"] == "not finished: stopped or killed"
    assert "seed=1" in second["overrides"]
    with RunFolder(tmp_path / "sweep" / "1").lock():
        assert read_jobs(tmp_path / "sweep")[1]["error"] == "running"


@pytest.mark.parametrize(
    "end", [SystemExit("error: expected workers that live"), InputError("expected workers that live")]
)
def test_a_launcher_that_ends_before_its_jobs_leaves_the_table(end, tmp_path, capsys):
    config = OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path)}}, "sweep": {"retries": 1}})
    launches = []

    def launch():
        launches.append(end)
        RunFolder(tmp_path / "0").create(Record(("seed=1",), {}, {}))
        raise end

    with pytest.raises(SystemExit) as left:
        run_attempts(config, launch)
    assert left.value.code == 1
    assert len(launches) == 2
    err = capsys.readouterr().err
    assert err == "error: expected workers that live\n" * 2
    assert "not finished: stopped or killed" in (tmp_path / "table.md").read_text()


def test_what_is_refused_before_there_is_a_job_is_not_tried_again(tmp_path):
    config = OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path)}}, "sweep": {"retries": 3}})
    launches = []

    def launch():
        launches.append(1)
        raise InputError("expected settings")

    with pytest.raises(InputError):
        run_attempts(config, launch)
    assert launches == [1]


@pytest.mark.slow
@pytest.mark.parametrize("retries", [0, 1])
def test_a_job_that_the_system_kills_ends_no_sweep(retries, tmp_path, command):
    """joblib's other processes end with the one that is killed; what they have done is kept."""
    own = ("launcher=joblib", "hydra.launcher.n_jobs=2", f"sweep.retries={retries}", "run=sweep")
    (tmp_path / "poison.py").write_text(POISON.format(mark=str(tmp_path / "mark")))
    poison = "+callbacks.poison._target_=poison.Poison"
    assert command("search", *WORDS, "seed=0,1,2", "run=whole").code == 0
    code, out = finish(*WORDS, "seed=0,1,2", poison, *own, cwd=tmp_path)
    assert (tmp_path / "mark").exists()
    assert "Traceback" not in out
    if retries:
        assert code == 0, out
    else:
        assert code == 1
        assert "not finished: stopped or killed" in (tmp_path / "sweep" / "table.md").read_text()
        code, out = finish(*WORDS, "seed=0,1,2", poison, *own, cwd=tmp_path)
        assert code == 0, out
    for job in "012":
        assert_same_results(tmp_path / "whole" / job, tmp_path / "sweep" / job)


def finish(*words, cwd):
    process = run_process("search", *words, cwd=cwd, stderr=subprocess.STDOUT)
    out, _ = process.communicate(timeout=900)
    return process.returncode, out


def assert_same_results(one, other):
    """Whatever has run them."""
    for name in ("metrics.csv", "history.jsonl"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    assert RunFolder(one).genotypes == RunFolder(other).genotypes
