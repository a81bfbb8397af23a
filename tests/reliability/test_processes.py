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
from tests.cli.conftest import TINY_NETWORK, TINY_SEARCH, run_entry_point, run_process, run_script

SIZES = ("supernet.channels=4", "supernet.cells=1", *TINY_NETWORK)
IMAGE_FOLDER = (
    "dataset=image_folder",
    "dataset.root=images",
    "dataset.in_memory=false",
    "dataset.batch_size=2",
)
SEARCH = (
    "space=nasbench201",
    *SIZES,
    "strategy=darts",
    "callbacks.history.figures=false",
    "trainer.max_epochs=3",
)


def error_line(outcome) -> str:
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


def test_images_are_moved_during_a_run(images, command, monkeypatch):
    with monkeypatch.context() as patch:
        after_one_epoch(patch, lambda: images.rename("elsewhere"))
        line = error_line(command("search", *SEARCH, *IMAGE_FOLDER, "dataset.num_workers=1", "run=run"))
    assert "No such file or directory" in line
    assert "images/" in line
    Path("elsewhere").rename(images)
    assert command("search", "resume=run").code == 0


def test_killed_data_loader_worker(images, command, monkeypatch):
    decode = files.decode

    def die(*args):
        if Path("armed").exists() and torch.utils.data.get_worker_info() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return decode(*args)

    with monkeypatch.context() as patch:
        patch.setattr(files, "decode", die)
        after_one_epoch(patch, Path("armed").touch)
        line = error_line(command("search", *SEARCH, *IMAGE_FOLDER, "dataset.num_workers=1", "run=run"))
    assert "A worker process was killed" in line
    assert command("search", "resume=run").code == 0


def test_killed_scoring_worker(command, monkeypatch):
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


def test_logger_loses_its_connection(command, tmp_path, monkeypatch):
    """The screen has one line; the log has the traceback."""

    def refuse(*args, **named):
        raise ConnectionRefusedError(111, "Connection refused")

    with monkeypatch.context() as patch:
        after_one_epoch(patch, lambda: patch.setattr(MetricsCSV, "log_metrics", refuse))
        outcome = command("search", *SEARCH, *TINY_SEARCH, "run=run")
    assert "The connection failed: [Errno 111] Connection refused" in error_line(outcome)
    log = (tmp_path / "run" / "search.log").read_text()
    assert log.startswith(outcome.out)
    assert "Traceback" in log
    assert "ConnectionRefusedError" in log
    assert log.rstrip().endswith(outcome.err.rstrip())
    assert command("search", "resume=run").code == 0


@pytest.mark.parametrize(
    "argv", [("resume=run",), (*SEARCH, *TINY_SEARCH, "run=run")], ids=["resume", "start"]
)
def test_second_start_in_a_running_folder(argv, command, finished, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    if argv[0] == "resume=run":
        shutil.copytree(finished / "searched", run, dirs_exist_ok=True)
        (run / "summary.json").unlink()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with hold(run):
        outcome = command("search", *argv)
        (run / ".lock").rename(tmp_path / "lock")
        after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert outcome.code == 1
    (line,) = outcome.err.splitlines()
    assert line.endswith(f"another process is writing here, wait until it has ended (in {run})")
    assert before == after


WITH_LOADERS = (*SEARCH, *IMAGE_FOLDER, "dataset.num_workers=2")


@pytest.mark.slow
@pytest.mark.parametrize("argv", [WITH_LOADERS, (*SEARCH, *TINY_SEARCH)], ids=["loaders", "alone"])
def test_sigterm_to_a_process_group(argv, images, tmp_path):
    """The signal of a closed terminal or a scheduler: the run saves, and its loaders end."""
    long = ("trainer.max_epochs=200", "run=run")
    process = run_process("search", *argv, *long, cwd=tmp_path, start_new_session=True)
    while not (tmp_path / "run" / "checkpoints" / "last.ckpt").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    out, err = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, err
    assert "Traceback" not in err
    assert out.splitlines()[-1].endswith("nas-search resume=run")


def test_log_file_equals_the_output(command, tmp_path):
    outcome = command("search", *SEARCH, *TINY_SEARCH, "run=run")
    log = (tmp_path / "run" / "search.log").read_text()
    assert log == outcome.out
    assert "epoch 3/3" in log


def test_rejected_start_writes_no_log(command, tmp_path):
    assert command("search", *SEARCH, *TINY_SEARCH, "strategy.lr=-1", "run=run").code == 1
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "search.log").write_text("mine\n")
    assert command("search", *SEARCH, *TINY_SEARCH, "strategy.lr=-1", "run=run").code == 1
    assert (tmp_path / "run" / "search.log").read_text() == "mine\n"


@pytest.mark.parametrize("script", [("search", "--help"), ("search", *SEARCH, *TINY_SEARCH, "run=run")])
def test_output_to_an_ascii_terminal(script, command, tmp_path, monkeypatch):
    screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", screen)
    assert run_script(*script) == 0
    assert screen.buffer.getvalue().isascii()
    assert len(screen.buffer.getvalue()) > 300


def test_folder_name_that_is_not_utf8(runs, command, monkeypatch):
    """The page escapes the name, and a new run rejects it."""
    folder = Path(os.fsdecode(b"caf\xe9"))
    (runs / "trained").rename(runs / folder)
    assert run_entry_point("nas-report", str(folder)) == 0
    assert "caf\\udce9" in (runs / folder / "report.html").read_text(encoding="utf-8")
    outcome = command("search", *TINY_SEARCH, f"run={folder}")
    assert outcome.code == 1
    assert outcome.err == "error: Arguments must be UTF-8, got 'run=caf\\\\xe9'\n"
