"""Killed and concurrent processes and missing files: a one-line error, and the run can be resumed."""

import io
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

from nas_lightning.callbacks import GenotypeHistory
from nas_lightning.data import files
from nas_lightning.metrics import pool as scoring
from nas_lightning.runs.metrics_csv import MetricsCSV
from nas_lightning.utils.files import hold
from tests.cli.conftest import TINY_NETWORK, TINY_SEARCH, run_process, run_script
from tests.reliability.bad_runs import run_entry

SIZES = ("supernet.channels=4", "supernet.cells=1", *TINY_NETWORK)
OF_FOLDER = ("dataset=image_folder", "dataset.root=images", "dataset.in_memory=false", "dataset.batch_size=2")
SEARCH = (
    "space=nasbench201",
    *SIZES,
    "strategy=darts",
    "callbacks.history.figures=false",
    "trainer.max_epochs=3",
)


def one_line(outcome) -> str:
    """Return the error of a run that prints how to resume."""
    assert outcome.code == 1
    assert "Traceback" not in outcome.err
    (line,) = outcome.err.splitlines()
    assert line.startswith("error: ")
    assert outcome.out.splitlines()[-1].endswith("nas-search resume=run")
    return line


def after_one_epoch(monkeypatch, call) -> None:
    """Call a function at the start of the second epoch."""
    begin = GenotypeHistory.on_train_epoch_end

    def append(self, trainer, pl_module):
        begin(self, trainer, pl_module)
        if trainer.current_epoch == 1:
            call()

    monkeypatch.setattr(GenotypeHistory, "on_train_epoch_end", append)


@pytest.mark.parametrize("workers", [0, 1])
def test_images_that_are_gone_in_the_middle_of_a_run(workers, images, command, monkeypatch):
    with monkeypatch.context() as patch:
        after_one_epoch(patch, lambda: images.rename("elsewhere"))
        line = one_line(command("search", *SEARCH, *OF_FOLDER, f"dataset.num_workers={workers}", "run=run"))
    assert "No such file or directory" in line
    assert "images/" in line
    Path("elsewhere").rename(images)
    assert command("search", "resume=run").code == 0


def test_a_loader_that_is_killed_in_mid_pass(images, command, monkeypatch):
    decode = files.decode

    def die(*args):
        if Path("armed").exists() and torch.utils.data.get_worker_info() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return decode(*args)

    with monkeypatch.context() as patch:
        patch.setattr(files, "decode", die)
        after_one_epoch(patch, Path("armed").touch)
        line = one_line(command("search", *SEARCH, *OF_FOLDER, "dataset.num_workers=1", "run=run"))
    assert "A worker process was killed" in line
    assert command("search", "resume=run").code == 0


def test_a_pools_worker_that_is_killed(command, monkeypatch):
    run = scoring.spread
    pool = ("strategy=metric_search", *TINY_SEARCH, "strategy.workers=2", "trainer.max_epochs=1")

    def die(work, *args, **options):
        return run(lambda *item: os.kill(os.getpid(), signal.SIGKILL), *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(scoring, "spread", die)
        outcome = command("search", *pool, "callbacks.history.figures=false", "run=run")
    assert outcome.code == 1
    assert "A worker process was killed" in outcome.err
    assert "Traceback" not in outcome.err


def test_a_logger_that_cannot_connect(command, tmp_path, monkeypatch):
    """The screen has one line; the log has the traceback."""

    def refuse(*args, **named):
        raise ConnectionRefusedError(111, "Connection refused")

    with monkeypatch.context() as patch:
        after_one_epoch(patch, lambda: patch.setattr(MetricsCSV, "log_metrics", refuse))
        outcome = command("search", *SEARCH, *TINY_SEARCH, "run=run")
    assert "The connection failed: [Errno 111] Connection refused" in one_line(outcome)
    log = (tmp_path / "run" / "search.log").read_text()
    assert log.startswith(outcome.out)
    assert "Traceback" in log
    assert "ConnectionRefusedError" in log
    assert log.rstrip().endswith(outcome.err.rstrip())
    assert command("search", "resume=run").code == 0


@pytest.mark.parametrize(
    "words", [("resume=run",), (*SEARCH, *TINY_SEARCH, "run=run")], ids=["resume", "start"]
)
def test_a_folder_that_a_run_is_at_work_in(words, command, finished, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    if words[0] == "resume=run":
        shutil.copytree(finished / "searched", run, dirs_exist_ok=True)
        (run / "summary.json").unlink()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with hold(run):
        outcome = command("search", *words)
        (run / ".lock").rename(tmp_path / "lock")
        after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert outcome.code == 1
    (line,) = outcome.err.splitlines()
    assert line.endswith(f"another process is writing here, wait until it has ended (in {run})")
    assert before == after


LOADED = (*SEARCH, *OF_FOLDER, "dataset.num_workers=2")


@pytest.mark.slow
@pytest.mark.parametrize("words", [LOADED, (*SEARCH, *TINY_SEARCH)], ids=["loaders", "alone"])
def test_a_group_of_processes_that_is_told_to_end(words, images, tmp_path):
    """The signal of a closed terminal or a scheduler: the run saves, and its loaders end."""
    argv = (*words, "trainer.max_epochs=200", "run=run")
    process = run_process("search", *argv, cwd=tmp_path, start_new_session=True)
    while not (tmp_path / "run" / "checkpoints" / "last.ckpt").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    out, err = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, err
    assert "Traceback" not in err
    assert out.splitlines()[-1].endswith("nas-search resume=run")


def test_a_log_has_what_the_screen_had(command, tmp_path):
    outcome = command("search", *SEARCH, *TINY_SEARCH, "run=run")
    log = (tmp_path / "run" / "search.log").read_text()
    assert log == outcome.out
    assert "epoch 3/3" in log


def test_a_refused_start_leaves_no_log(command, tmp_path):
    assert command("search", *SEARCH, *TINY_SEARCH, "strategy.lr=-1", "run=run").code == 1
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "search.log").write_text("mine\n")
    assert command("search", *SEARCH, *TINY_SEARCH, "strategy.lr=-1", "run=run").code == 1
    assert (tmp_path / "run" / "search.log").read_text() == "mine\n"


@pytest.mark.parametrize("script", [("search", "--help"), ("search", *SEARCH, *TINY_SEARCH, "run=run")])
def test_a_screen_of_few_letters_is_no_error(script, command, tmp_path, monkeypatch):
    screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", screen)
    assert run_script(*script) == 0
    assert screen.buffer.getvalue().isascii()
    assert len(screen.buffer.getvalue()) > 300


def test_a_run_in_a_folder_whose_name_is_no_text(runs, command, monkeypatch):
    """Bytes of an older system: the page says which, and a new run refuses them."""
    folder = Path(os.fsdecode(b"caf\xe9"))
    (runs / "trained").rename(runs / folder)
    assert run_entry("nas-report", str(folder)) == 0
    assert "caf\\udce9" in (runs / folder / "report.html").read_text(encoding="utf-8")
    outcome = command("search", *TINY_SEARCH, f"run={folder}")
    assert outcome.code == 1
    assert outcome.err == "error: Arguments must be UTF-8, got 'run=caf\\\\xe9'\n"
