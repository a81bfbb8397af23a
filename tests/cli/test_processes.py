"""Runs with several processes: no deadlocks, and the results of a single run folder."""

import json
import os
import socket
import subprocess
import sys

import pytest

from tests.cli.conftest import REPOSITORY, TINY_DATA, TINY_NETWORK, TINY_SEARCH, run_process

TWO = ("trainer=ddp", "trainer.devices=2", "dataset.batch_size=4")
TIMEOUT = 300  # seconds, on a machine with other work


def finish(*argv, **options) -> tuple[int, str, str]:
    process = run_process(*argv, **options)
    try:
        out, err = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out, err


@pytest.mark.slow
def test_two_processes_with_lightnings_progress_bar(tmp_path):
    bar = "callbacks.progress=null"  # in place of ours
    argv = (*TINY_DATA, *TINY_NETWORK, *TWO, bar, "trainer.max_epochs=3", "run=trained")
    code, _, err = finish("train", "genotype=nasbench201_best", *argv, cwd=tmp_path)
    assert code == 0, err
    assert "test_accuracy" in json.loads((tmp_path / "trained" / "summary.json").read_text())["metrics"]


LOGGERS = ("csv", "none", "tensorboard", "wandb")
BARS = (("callbacks.progress=null",), ())
STRATEGIES = ("darts", "gdas", "pr_darts", "random_ws", "fair_darts")
CALLS = """
import pathlib, pytorch_lightning as pl, torch.distributed

NAMES = (
    "all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "barrier",
    "all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list",
)

class Calls(pl.Callback):
    def __init__(self, folder: str) -> None:
        self.folder, self.calls = pathlib.Path(folder), []
        for name in NAMES:
            setattr(torch.distributed, name, self.note(name, getattr(torch.distributed, name)))

    def note(self, name, function):
        def noted(*args, **kwargs):
            shapes = [tuple(part.shape) for part in args if isinstance(part, torch.Tensor)]
            self.calls.append(f"{name} {shapes}")
            return function(*args, **kwargs)
        return noted

    def teardown(self, trainer, module, stage):
        (self.folder / f"calls_{trainer.global_rank}").write_text("\\n".join(self.calls))
"""
COMBINATIONS = [  # each strategy with each logger, and with either bar in turn
    (strategy, logger, BARS[(place + other) % 2])
    for place, strategy in enumerate(STRATEGIES)
    for other, logger in enumerate(LOGGERS)
]


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "logger", "bar"), COMBINATIONS)
def test_two_processes_make_the_same_collective_calls(strategy, logger, bar, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    (tmp_path / "custom").mkdir()
    (tmp_path / "custom" / "calling.py").write_text(CALLS)
    calls = ("--config-dir", "custom", f"+callbacks.calls={{_target_:calling.Calls,folder:{tmp_path}}}")
    argv = (*TINY_SEARCH, *TWO, *bar, f"strategy={strategy}", f"logger={logger}", "trainer.max_epochs=2")
    argv = (*argv, *calls, "callbacks.history.figures=false", "run=searched")
    code, _, err = finish("search", *argv, cwd=tmp_path)
    assert code == 0, err
    first, second = ((tmp_path / f"calls_{rank}").read_text().splitlines() for rank in range(2))
    assert len(first) > 10
    assert first == second
    assert (tmp_path / "searched" / "genotype.json").is_file()
    assert len([*tmp_path.glob("searched/wandb/offline-run-*")]) == (logger == "wandb")


@pytest.mark.slow
def test_sweep_of_jobs_with_two_processes(tmp_path):
    """The second process of a job must not run the whole sweep again."""
    argv = (*TINY_SEARCH, *TWO, "strategy=darts", "trainer.max_epochs=1", "callbacks.history.figures=false")
    code, out, err = finish("search", "-m", *argv, "seed=0,1", "run=swept", cwd=tmp_path)
    assert code == 0, err
    assert out.count("| job |") == 1
    assert finish("search", *argv, "seed=1", "run=alone", cwd=tmp_path)[0] == 0
    for file in ("metrics.csv", "genotype.json"):
        assert (tmp_path / "swept" / "1" / file).read_bytes() == (tmp_path / "alone" / file).read_bytes()


NODE = ("-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--master-addr=127.0.0.1")


def run_nodes(port: int, *argv: str, cwd) -> list[str]:
    """Return the output of two single-process nodes that torchrun starts on this machine."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    script = str(REPOSITORY / f"{argv[0]}.py")
    launch = [*NODE, f"--master-port={port}"]
    nodes = [
        subprocess.Popen(
            [sys.executable, *launch, f"--node-rank={rank}", script, *argv[1:]],
            **{"cwd": cwd, "env": environment, "text": True},
            **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT},
        )
        for rank in range(2)
    ]
    try:
        output = [node.communicate(timeout=TIMEOUT)[0] for node in nodes]
    finally:
        [node.kill() for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], output
    return output


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "argv", "files"),
    [
        ("search", (*TINY_SEARCH, "strategy=darts", "callbacks.history.figures=false"), ("genotype.json",)),
        ("train", (*TINY_DATA, *TINY_NETWORK, "genotype=nasbench201_best"), ()),
    ],
)
def test_two_nodes_equal_two_processes(script, argv, files, tmp_path):
    shared = (*argv, *TWO, "trainer.max_epochs=1")
    code, _, err = finish(script, *shared, "run=one", cwd=tmp_path)
    assert code == 0, err
    nodes = ("trainer.devices=1", "trainer.num_nodes=2")
    output = run_nodes(free_port(), script, *shared, *nodes, "run=two", cwd=tmp_path)
    assert sum("epoch 1/1" in text for text in output) == 1
    for file in ("metrics.csv", *files):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two"}


@pytest.fixture
def torchrun(monkeypatch):
    """Set the environment of the second of two processes of torchrun."""
    for name, value in {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "Pass run=DIR, which the processes of torchrun share."),
        (("-m", "seed=0,1", "run=sweep"), "The processes of torchrun share no sweep. Leave out -m."),
    ],
)
def test_torchrun_needs_a_run_folder(argv, message, torchrun, command, tmp_path):
    code, _, err = command("search", *TINY_SEARCH, "strategy=random", *argv)
    assert (code, err) == (1, f"error: {message}\n")
    assert not [*tmp_path.rglob(".hydra")]


@pytest.mark.slow
def test_each_job_of_a_sweep_starts_its_processes(tmp_path):
    argv = (*TINY_SEARCH, *TWO, "strategy=darts", "trainer.max_epochs=1", "callbacks.history.figures=false")
    code, out, err = finish("search", "-m", *argv, "seed=0,1", "run=sweep", cwd=tmp_path)
    assert code == 0, err
    for job in "01":
        assert json.loads((tmp_path / "sweep" / job / "summary.json").read_text())["seed"] == int(job)
    assert sorted(path.name for path in (tmp_path / "sweep").iterdir() if path.is_dir()) == [
        ".hydra",
        "0",
        "1",
    ]
    assert out.count("epoch 1/1") == 2  # only rank 0 prints, and no sweep is started again
    assert [path.name for path in tmp_path.iterdir()] == ["sweep"]


def test_joblib_with_ddp_is_rejected(command, tmp_path):
    argv = (*TINY_SEARCH, *TWO, "strategy=darts", "hydra/launcher=joblib", "hydra.launcher.n_jobs=1")
    code, out, err = command("search", "-m", *argv, "seed=0", "run=sweep")
    assert code == 1
    assert "With hydra/launcher=joblib pass trainer.strategy=ddp_fork, not ddp." in err + out
