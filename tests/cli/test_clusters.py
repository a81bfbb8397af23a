"""Sweeps on clusters whose processes and nodes die: rerun or requeued, they give the same results."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nas_lightning.runs.folder import RunFolder
from tests.cli.conftest import REPOSITORY
from tests.cli.test_launchers import LAUNCHERS, SEEDS, complete  # noqa: F401
from tests.cli.test_sweep import assert_same_results, finish

DEATH = '''
import os, signal, time
from pathlib import Path
import pytorch_lightning as pl

class Death(pl.Callback):
    """Send a signal to a process of the launcher the first time that the job of seed 1 trains.

    A job that should fail must have failed before, since joblib ends all processes if one is killed.
    """
    def on_train_batch_end(self, trainer, module, *rest):
        mark = Path({mark!r})
        if trainer.default_root_dir.endswith("1") and not mark.exists():
            other = Path(trainer.default_root_dir, "../2/summary.json")
            while Path({poison!r}).exists() and not other.exists():
                time.sleep(0.1)
            mark.touch()
            os.kill({process}, signal.{name})

class Poison(pl.Callback):
    """Fail the job of seed 2 while the file exists."""
    def on_train_batch_end(self, trainer, module, *rest):
        if trainer.default_root_dir.endswith("2") and Path({poison!r}).exists():
            raise RuntimeError("poison")
'''
BOTH = ("+callbacks.death._target_=death.Death", "+callbacks.poison._target_=death.Poison")


@pytest.fixture
def death(tmp_path):
    """`death("SIGKILL")`: overrides for callbacks that send a process the signal and fail a job."""

    def write(name: str, process: str = "os.getpid()", *, poison: bool = False) -> tuple[str, ...]:
        files = {"mark": str(tmp_path / "mark"), "poison": str(tmp_path / "poisonous")}
        if poison:
            Path(files["poison"]).touch()
        (tmp_path / "death.py").write_text(DEATH.format(process=process, name=name, **files))
        return BOTH

    return write


def assert_same_sweep(complete, sweep):  # noqa: F811
    assert (sweep.parent / "mark").exists()
    for job in "0123":
        assert_same_results(complete / job, sweep / job)


@pytest.mark.slow
def test_submitit_requeues_a_preempted_job(complete, death, tmp_path):  # noqa: F811
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    code, out = finish(*SEEDS, *LAUNCHERS["submitit"][1], *death("SIGUSR2"), "run=sweep", cwd=tmp_path)
    assert code == 0, out
    assert_same_sweep(complete, tmp_path / "sweep")
    logs = [path.read_text() for path in (tmp_path / "sweep" / ".submitit").glob("*/*_log.err")]
    assert sum("this job is preempted" in log for log in logs) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", LAUNCHERS)
def test_sweep_resumes_after_failed_and_killed_jobs_in_a_renamed_folder(name, complete, death, tmp_path):  # noqa: F811
    module, argv = LAUNCHERS[name]
    pytest.importorskip(module)
    command = (*SEEDS, *argv, *death("SIGKILL", poison=True))
    code, out = finish(*command, "run=sweep", cwd=tmp_path)
    assert code == 1, out
    assert "Traceback" not in out
    assert "RuntimeError: poison" in RunFolder(tmp_path / "sweep" / "2").facts.error
    assert "poison" in (tmp_path / "sweep" / "table.md").read_text()
    (tmp_path / "poisonous").unlink()
    (tmp_path / "sweep").rename(tmp_path / "renamed")
    code, out = finish(*command, "run=renamed", cwd=tmp_path)
    assert code == 0, out
    assert_same_sweep(complete, tmp_path / "renamed")


@pytest.mark.slow
def test_dask_reruns_the_job_of_a_killed_worker(complete, death, tmp_path):  # noqa: F811
    pytest.importorskip("distributed")
    code, out = finish(*SEEDS, *LAUNCHERS["dask"][1], *death("SIGKILL"), "run=sweep", cwd=tmp_path)
    assert code == 0, out
    assert_same_sweep(complete, tmp_path / "sweep")


@pytest.mark.slow
def test_ray_reruns_the_jobs_of_a_dead_node(complete, death, tmp_path, monkeypatch):  # noqa: F811
    """The parent process of the workers is the node."""
    pytest.importorskip("hydra_plugins.hydra_ray_launcher")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        launcher = ("launcher=ray", f"hydra.launcher.ray.init.address={cluster.address}")
        code, out = finish(*SEEDS, *launcher, *death("SIGKILL", "os.getppid()"), "run=sweep", cwd=tmp_path)
        assert code == 0, out
        assert_same_sweep(complete, tmp_path / "sweep")
        assert sum(node.any_processes_alive() for node in nodes) == 1
    finally:
        cluster.shutdown()


@pytest.mark.slow
def test_population_based_training_example(tmp_path):
    pytest.importorskip("ray.tune")
    script = REPOSITORY / "docs" / "population_based.py"
    argv = [
        sys.executable,
        str(script),
        "--folder",
        "here",
        "--members",
        "2",
        "--epochs",
        "3",
        "--images",
        "64",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    members = [line for line in done.stdout.splitlines() if line.startswith("valid_accuracy ")]
    assert len(members) == 2
    epochs = [json.loads(line)["epoch"] for line in results(tmp_path / "here")]
    assert sorted({*epochs}) == [0, 1, 2]
    assert [*(tmp_path / "here").rglob("pbt_policy_*.txt")]  # a worse member continued from a better one


def results(folder: Path) -> list[str]:
    return [line for file in folder.rglob("result.json") for line in file.read_text().splitlines()]
