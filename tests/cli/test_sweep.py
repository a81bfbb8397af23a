"""Sweeps: failed jobs, resuming, and runs of earlier sweeps as values."""

import shutil
import subprocess

import pytest

from nas_lightning.cli.sweep import expand_sweeps
from nas_lightning.errors import InputError
from nas_lightning.report.comparison import read_jobs
from nas_lightning.runs.folder import RunFolder
from nas_lightning.runs.record import Record
from tests.cli.conftest import TINY_DATA, TINY_NETWORK, TINY_SEARCH, process_state, run_process, run_script
from tests.reliability.commands import assert_same_folder

SWEEP = ("-m", *TINY_SEARCH, "callbacks.history.figures=false", "trainer.max_epochs=1", "strategy=darts")
SEEDS = (*SWEEP, "seed=0,1")
QUICK = ("-m", *TINY_SEARCH, "strategy=random", "callbacks.history.figures=false", "run=sweep")
RECORD = Record(("seed=0,1",), {}, {"mode": "MULTIRUN", "job": {"config_name": "search"}})
POISON = '''
import os, signal
from pathlib import Path
import pytorch_lightning as pl

class Poison(pl.Callback):
    """Kill the process the first time that the job of seed 1 trains."""
    def on_train_batch_end(self, trainer, module, *rest):
        mark = Path({mark!r})
        if trainer.default_root_dir.endswith("1"):
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
'''


@pytest.fixture(scope="module")
def finished_sweep(tmp_path_factory):
    """A finished sweep of two seeds."""
    folder = tmp_path_factory.mktemp("swept")
    with pytest.MonkeyPatch.context() as patch, process_state():
        patch.chdir(folder)
        assert run_script("search", *SEEDS, "run=sweep") == 0
    return folder / "sweep"


@pytest.fixture
def sweep(finished_sweep, tmp_path):
    shutil.copytree(finished_sweep, tmp_path / "sweep")
    return tmp_path / "sweep"


def test_resumed_sweep_runs_only_missing_jobs(sweep, finished_sweep, command):
    for argv in ((*SEEDS, "run=sweep"), ("-m", "resume=sweep")):
        shutil.rmtree(sweep / "0")
        (sweep / "table.md").unlink()
        before = (sweep / "1" / "summary.json").stat().st_mtime_ns
        code, out, err = command("search", *argv)
        assert (code, err) == (0, "")
        assert out.count("epoch 1/1") == 1
        assert (sweep / "1" / "summary.json").stat().st_mtime_ns == before
        assert_same_folder(finished_sweep, sweep)


def test_folder_of_another_sweep_is_rejected(sweep, finished_sweep, command):
    for argv, message in (
        ((*SWEEP, "seed=0,1,2", "run=sweep"), "varies ['seed=0,1'"),
        ((*SEEDS, "strategy.lr=0.5", "run=sweep"), "`strategy.lr` cannot change"),
        (("-m", "resume=sweep", "seed=1,0"), "varies ['seed=0,1'"),
        (("resume=sweep",), "is a sweep. Add -m"),
        (("-m", "resume=sweep/0"), "is a single run. Leave out -m"),
    ):
        code, _, err = command("search", *argv)
        assert code == 1
        assert message in err
        assert len(err.splitlines()) == 1
    assert_same_folder(finished_sweep, sweep)
    assert "is a run of search, not of train" in command("train", "-m", "resume=sweep").err


def test_resumed_sweep_reruns_failed_jobs(command, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("nas_lightning.cli.build.check_config", fail_once())
        code, _, err = command("search", *QUICK, "seed=0,1")
    assert code == 1
    assert "RuntimeError: broken" in err
    assert (tmp_path / "sweep" / "0" / "error.txt").is_file()
    assert "error" not in read_jobs(tmp_path / "sweep")[1]
    code, _, err = command("search", "-m", "resume=sweep")
    assert (code, err) == (0, "")
    assert "broken" not in (tmp_path / "sweep" / "table.md").read_text()
    assert not (tmp_path / "sweep" / "0" / "error.txt").exists()


def fail_once():
    calls = []

    def call(cfg):
        calls.append(cfg)
        if len(calls) == 1:
            raise RuntimeError("broken")

    return call


def test_retries(command, tmp_path, monkeypatch):
    monkeypatch.setattr("nas_lightning.cli.build.check_config", fail_once())
    code, out, err = command("search", *QUICK, "seed=0,1", "sweep.retries=1")
    assert code == 0
    assert err.count("RuntimeError: broken") == 1
    assert "Trying again" in out
    assert "broken" not in (tmp_path / "sweep" / "table.md").read_text()


def test_invalid_job_does_not_stop_the_others(command, tmp_path):
    code, _, err = command("search", *QUICK, "space.ops=[none,nor_conv_3x3,skip_connect],[none,nonsense]")
    assert code == 1
    assert len(err.splitlines()) == 1
    first, second = read_jobs(tmp_path / "sweep")
    assert "error" not in first
    assert "nonsense" in second["error"]


def test_table_has_the_folders_of_the_jobs(command, tmp_path):
    assert command("search", *QUICK, "seed=0,1", "hydra.sweep.subdir=of_seed_${seed}").code == 0
    table = (tmp_path / "sweep" / "table.md").read_text()
    assert "| of_seed_0 " in table
    assert "| of_seed_1 " in table


def test_jobs_cannot_share_a_folder(command, tmp_path):
    code, _, err = command("search", *SEEDS, "run=sweep", "hydra.sweep.subdir=same")
    assert code == 1
    assert "`seed` cannot change in a resumed run: 0" in err


def test_table_has_interrupted_jobs(sweep):
    RunFolder(sweep / "1").summary.unlink()
    first, second = read_jobs(sweep)
    assert "error" not in first
    assert second["error"] == "not finished: stopped or killed"
    assert "seed=1" in second["overrides"]
    with RunFolder(sweep / "1").lock():
        assert read_jobs(sweep)[1]["error"] == "running"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A sweep of twelve jobs, of which the fourth has no architecture, and a single run."""
    monkeypatch.chdir(tmp_path)
    RunFolder(tmp_path / "a_sweep").create(RECORD)
    for run in [*(f"a_sweep/{job}" for job in range(12)), "alone"]:
        (tmp_path / run).mkdir()
        if not run.endswith("/3"):
            (tmp_path / run / "genotype.json").touch()
    return tmp_path


def test_expand_sweeps(folder):
    runs = ",".join(f'"a_sweep/{job}"' for job in range(12) if job != 3)
    assert expand_sweeps("genotype.path=a_sweep") == f"genotype.path={runs}"
    assert expand_sweeps("genotype.path=a_sweep,alone") == f'genotype.path={runs},"alone"'
    assert expand_sweeps("genotype.path=glob(al*)") == 'genotype.path="alone"'
    for override in ("genotype.path=alone", "genotype.path=x,y", "seed=0,1", "~genotype.path", "+a"):
        assert expand_sweeps(override) == override
    with pytest.raises(InputError, match="No run fits"):
        expand_sweeps("genotype.path=glob(nothing*)")
    RunFolder(folder / "empty").create(RECORD)
    with pytest.raises(InputError, match="has no architectures"):
        expand_sweeps("genotype.path=empty")


@pytest.mark.slow
def test_train_all_genotypes_of_a_sweep(command, tmp_path):
    search = ("strategy=random", "trainer.max_epochs=1", "callbacks.history.figures=false")
    assert command("search", "-m", *TINY_SEARCH, *search, "seed=0,1", "run=searched").code == 0
    train = (*TINY_DATA, *TINY_NETWORK, "trainer.max_epochs=1", "genotype=file", "genotype.path=searched")
    assert command("train", "-m", *train, "run=trained").code == 0
    found = [RunFolder(tmp_path / f"searched/{job}").genotypes for job in "01"]
    assert [RunFolder(tmp_path / f"trained/{job}").genotypes for job in "01"] == found


@pytest.mark.slow
def test_sweep_resumes_after_a_killed_joblib_worker(tmp_path, command):
    """joblib ends all processes if one is killed; finished jobs are kept."""
    launcher = ("launcher=joblib", "hydra.launcher.n_jobs=2", "run=sweep")
    (tmp_path / "poison.py").write_text(POISON.format(mark=str(tmp_path / "mark")))
    poison = "+callbacks.poison._target_=poison.Poison"
    assert command("search", *SWEEP, "seed=0,1,2", "run=complete").code == 0
    code, out = finish(*SWEEP, "seed=0,1,2", poison, *launcher, cwd=tmp_path)
    assert (tmp_path / "mark").exists()
    assert "Traceback" not in out
    assert code == 1
    code, out = finish(*SWEEP, "seed=0,1,2", poison, *launcher, cwd=tmp_path)
    assert code == 0, out
    for job in "012":
        assert_same_results(tmp_path / "complete" / job, tmp_path / "sweep" / job)


def finish(*argv, cwd):
    process = run_process("search", *argv, cwd=cwd, stderr=subprocess.STDOUT)
    out, _ = process.communicate(timeout=900)
    return process.returncode, out


def assert_same_results(one, other):
    """Compare the metrics, histories, and genotypes of two runs."""
    for name in ("metrics.csv", "history.jsonl"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    assert RunFolder(one).genotypes == RunFolder(other).genotypes
