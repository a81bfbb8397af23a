"""A search that is killed at any step and resumed writes the same files, for every strategy."""

import os
import random
import signal
from functools import cache
from pathlib import Path

import pytest

from nas_lightning.callbacks import StepCheckpoint
from tests.cli.conftest import TINY_SEARCH, run_script
from tests.reliability.commands import assert_same_folder, finish
from tests.reliability.faults import in_child, output_file
from tests.yamls import options, small_form

LOGGING = (1, 3, 50)
"""Log every step, every few steps, or only at the end of epochs."""
SAMPLE = (("pr_darts", 1), ("evolution", 3))
KILLED = -signal.SIGKILL


def arguments(strategy: str, every: int) -> tuple[str, ...]:
    within = ("callbacks.within_epochs.every_n_steps=2", f"trainer.log_every_n_steps={every}")
    quiet = ("callbacks.history.figures=false", "trainer.max_epochs=3")
    return ("search", *TINY_SEARCH, *quiet, *small_form(strategy=strategy), *within, "run=run")


def run_in_child(folder: Path, argv: tuple[str, ...], kill_after: int | None = None) -> tuple[int, int]:
    """Return the exit code and the number of trained batches; kill the command after that many."""
    folder.mkdir(parents=True, exist_ok=True)
    steps = folder / "steps.txt"

    def work() -> int:
        os.chdir(folder)
        end, count = StepCheckpoint.on_train_batch_end, 0

        def note(self, trainer, *args):
            nonlocal count
            end(self, trainer, *args)
            count += 1
            steps.write_text(str(count))
            if count == kill_after:
                os.kill(os.getpid(), signal.SIGKILL)

        StepCheckpoint.on_train_batch_end = note
        return run_script(*argv)

    code = in_child(work, output_file(folder / "run"))
    return code, int(steps.read_text())


@pytest.fixture(scope="module")
def complete_run(tmp_path_factory):
    """An undisturbed run and its number of steps."""

    @cache
    def run(strategy: str, every: int) -> tuple[Path, int]:
        folder = tmp_path_factory.mktemp("complete").resolve()
        code, steps = run_in_child(folder, arguments(strategy, every))
        assert code == 0, output_file(folder / "run").read_text()
        return folder / "run", steps

    return run


def check(strategy: str, every: int, complete_run, tmp_path: Path) -> None:
    reference, steps = complete_run(strategy, every)
    argv, step = arguments(strategy, every), random.SystemRandom().randint(1, steps)
    code, _ = run_in_child(tmp_path.resolve(), argv, step)
    assert code == KILLED, f"at step {step} of {steps}"
    run = tmp_path.resolve() / "run"
    assert finish(run, argv) == "resume", f"killed after step {step} of {steps}"
    try:
        assert_same_folder(reference, run)
    except AssertionError as error:
        raise AssertionError(f"killed after step {step} of {steps}") from error


@pytest.mark.parametrize(("strategy", "every"), SAMPLE)
def test_resume_after_kill_at_a_random_step(strategy, every, complete_run, tmp_path):
    check(strategy, every, complete_run, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("every", LOGGING)
@pytest.mark.parametrize("strategy", [name for name in options("strategy") if name != "random"])
def test_resume_of_every_strategy(strategy, every, complete_run, tmp_path):
    check(strategy, every, complete_run, tmp_path)
