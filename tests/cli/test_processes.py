"""Commands whose runs are of several processes: none waits for another that does something else."""

import json
import subprocess

import pytest

from tests.cli.conftest import TINY_DATA, TINY_NETWORK, TINY_SEARCH, run_process

TWO = ("trainer=ddp", "trainer.devices=2", "dataset.batch_size=4")
PATIENCE = 300  # seconds, on a machine with other work


def finish(*argv, **options) -> tuple[int, str, str]:
    process = run_process(*argv, **options)
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out, err


@pytest.mark.slow
def test_lightning_s_own_bar_does_not_part_two_processes(tmp_path):
    bar = "callbacks.progress=null"  # in place of ours
    words = (*TINY_DATA, *TINY_NETWORK, *TWO, bar, "trainer.max_epochs=3", "run=trained")
    code, _, err = finish("train", "genotype=nasbench201_best", *words, cwd=tmp_path)
    assert code == 0, err
    assert "test_accuracy" in json.loads((tmp_path / "trained" / "summary.json").read_text())["metrics"]


LOGGERS = ("csv", "none", "tensorboard", "wandb")
BARS = (("callbacks.progress=null",), ())
STRATEGIES = ("darts", "gdas", "pr_darts", "random_ws", "fair_darts")
COMBINATIONS = [  # each strategy with each logger, and with either bar in turn
    (strategy, logger, BARS[(place + other) % 2])
    for place, strategy in enumerate(STRATEGIES)
    for other, logger in enumerate(LOGGERS)
]


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "logger", "bar"), COMBINATIONS)
def test_two_processes_search_to_the_end_whatever_accompanies_them(
    strategy, logger, bar, tmp_path, monkeypatch
):
    monkeypatch.setenv("WANDB_MODE", "offline")
    words = (*TINY_SEARCH, *TWO, *bar, f"strategy={strategy}", f"logger={logger}", "trainer.max_epochs=2")
    code, _, err = finish("search", *words, "callbacks.history.figures=false", "run=searched", cwd=tmp_path)
    assert code == 0, err
    assert (tmp_path / "searched" / "genotype.json").is_file()
    assert len([*tmp_path.glob("searched/wandb/offline-run-*")]) == (logger == "wandb")


@pytest.mark.slow
def test_each_job_of_a_sweep_has_processes_of_its_own(tmp_path):
    words = (*TINY_SEARCH, *TWO, "strategy=darts", "trainer.max_epochs=1", "callbacks.history.figures=false")
    code, out, err = finish("search", "-m", *words, "seed=0,1", "run=sweep", cwd=tmp_path)
    assert code == 0, err
    for job in "01":
        assert json.loads((tmp_path / "sweep" / job / "summary.json").read_text())["seed"] == int(job)
    assert sorted(path.name for path in (tmp_path / "sweep").iterdir() if path.is_dir()) == [
        ".hydra",
        "0",
        "1",
    ]
    assert out.count("epoch 1/1") == 2  # the first processes say it, and no sweep is begun again
    assert [path.name for path in tmp_path.iterdir()] == ["sweep"]


def test_a_launcher_whose_jobs_have_no_command_says_what_does(command, tmp_path):
    words = (*TINY_SEARCH, *TWO, "strategy=darts", "hydra/launcher=joblib", "hydra.launcher.n_jobs=1")
    code, out, err = command("search", "-m", *words, "seed=0", "run=sweep")
    assert code == 1
    assert "expected trainer.strategy=ddp_fork beside hydra/launcher=joblib, got 'ddp'" in err + out
