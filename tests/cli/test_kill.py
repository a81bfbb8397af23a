"""A run that is killed at a random moment and resumed gives the results of an uninterrupted run."""

import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from tests.cli.conftest import TINY_DATA, TINY_NETWORK, TINY_SEARCH, run_process

EPOCHS = 8
SEARCH = (*TINY_SEARCH, f"trainer.max_epochs={EPOCHS}", "callbacks.history.figures=false")
TRAIN = (*TINY_DATA, *TINY_NETWORK, f"trainer.max_epochs={EPOCHS}", "genotype=nasbench201_best")
CHECKPOINT_KEYS = (
    *("epoch", "global_step", "state_dict", "optimizer_states", "lr_schedulers"),
    *("nas_lightning", "nas_lightning_rng"),  # the generators of the strategy and of the process
)


def killed(name: str, *argv: str, folder: Path, run: str) -> bool:
    """Kill the command at a random moment after its first checkpoint; return False if it has ended before."""
    process = run_process(name, *argv, f"run={run}", cwd=folder)
    checkpoint = folder / run / "checkpoints" / "last.ckpt"
    while not checkpoint.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    time.sleep(random.SystemRandom().uniform(0, 1))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def assert_same(a, b, where="checkpoint"):
    """Compare nested values bit for bit."""
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b), where
    elif isinstance(a, dict):
        assert list(a) == list(b), where
        for key in a:
            assert_same(a[key], b[key], f"{where}[{key!r}]")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for number, pair in enumerate(zip(a, b, strict=True)):
            assert_same(*pair, f"{where}[{number}]")
    else:
        assert a == b, where


def assert_same_run(one: Path, other: Path, files: tuple[str, ...]) -> None:
    first, second = (torch.load(run / "checkpoints" / "last.ckpt", weights_only=True) for run in (one, other))
    for key in CHECKPOINT_KEYS:
        assert (key in first) == (key in second)
        if key in first:
            assert_same(first[key], second[key], key)
    for file in files:
        assert (one / file).read_bytes() == (other / file).read_bytes(), file


def check(command, folder: Path, name: str, argv: tuple[str, ...], files: tuple[str, ...]) -> None:
    assert command(name, *argv, "run=complete").code == 0
    was_killed = killed(name, *argv, folder=folder, run="stopped")
    rows = (folder / "stopped" / "metrics.csv").read_text().splitlines()
    code, out, err = command(name, "resume=stopped")
    assert (code, err) == (0, "")
    if was_killed and len(rows) < EPOCHS:
        assert f"epoch {EPOCHS}/{EPOCHS}" in out  # epochs were left
        assert f"epoch  1/{EPOCHS}" not in out  # and the run did not start anew
    assert_same_run(folder / "complete", folder / "stopped", files)


RESULTS = ("metrics.csv", "history.jsonl", "genotype.json")


def test_search_resumes_after_kill(command, tmp_path):
    check(command, tmp_path, "search", (*SEARCH, "strategy=pr_darts"), RESULTS)


@pytest.mark.slow
def test_training_resumes_after_kill(command, tmp_path):
    check(command, tmp_path, "train", TRAIN, ("metrics.csv", "genotype.json"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    ["darts", "gdas", "pc_darts", "gaea", "fair_darts", "random_ws", "hnas", "evolution", "metric_search"],
)
def test_strategies_resume_after_kill(command, tmp_path, strategy):
    check(command, tmp_path, "search", (*SEARCH, f"strategy={strategy}"), RESULTS)


@pytest.mark.slow
def test_second_order_resumes_after_kill(command, tmp_path):
    check(command, tmp_path, "search", (*SEARCH, "strategy=darts", "arch_step=second_order"), RESULTS)


@pytest.mark.slow
def test_sweep_resumes_after_ten_kills(command, tmp_path):
    """Kill at seeded random moments; a sweep that ends before is compared, and another one starts."""
    moments, kills, sweeps = random.Random(17), 0, 1
    argv = ("-m", *SEARCH, "strategy=darts", "seed=0,1")
    assert command("search", *argv, "run=complete").code == 0
    while kills < 10:
        process = run_process("search", *argv, f"run=sweep{sweeps}", cwd=tmp_path)
        assert process.stdout.readline()  # it has begun, or goes on
        try:
            _, err = process.communicate(timeout=moments.uniform(0, 4))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
        else:
            assert process.returncode == 0, err
            sweeps += 1
    assert command("search", *argv, f"run=sweep{sweeps}").code == 0
    for number in range(1, sweeps + 1):
        for job in "01":
            assert_same_run(tmp_path / "complete" / job, tmp_path / f"sweep{number}" / job, RESULTS)


@pytest.mark.slow
def test_search_resumes_after_several_kills(command, tmp_path):
    argv = (*SEARCH, "strategy=gdas")
    assert command("search", *argv, "run=complete").code == 0
    killed("search", *argv, folder=tmp_path, run="stopped")
    for _ in range(3):
        process = run_process("search", "resume=stopped", cwd=tmp_path)
        time.sleep(random.SystemRandom().uniform(4, 9))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert command("search", "resume=stopped").code == 0
    assert_same_run(tmp_path / "complete", tmp_path / "stopped", RESULTS)
