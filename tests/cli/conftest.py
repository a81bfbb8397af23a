"""Fixtures that call the entry scripts in this process, on runs of a second."""

import configparser
import logging
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.utils import get_object
from PIL import Image

from nas_lightning import cli

REPOSITORY = Path(__file__).parents[2]
TINY_DATA = (
    "dataset=fake",
    "dataset.shape=[1,8,8]",
    "dataset.train_size=32",
    "dataset.test_size=16",
    "dataset.batch_size=8",
)
TINY_SEARCH = (
    *TINY_DATA,
    "space=nasbench201",
    "supernet.channels=4",
    "supernet.cells=1",
    "network.channels=4",
    "network.cells=1",
)
TINY_NETWORK = ("network.channels=4", "network.cells=1")
CELL = "|nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|none~1|skip_connect~2|"


class Outcome(NamedTuple):
    """The exit code and output of a command."""

    code: int
    out: str
    err: str


@contextmanager
def process_state() -> Iterator[None]:
    """Restore global state that a separate process would start with."""
    argv, path, handlers = sys.argv[:], sys.path[:], logging.root.handlers[:]
    try:
        with warnings.catch_warnings():
            yield
    finally:
        for handler in {*logging.root.handlers} - {*handlers}:
            handler.close()
        sys.argv[:], sys.path[:], logging.root.handlers[:] = argv, path, handlers
        GlobalHydra.instance().clear()


def run_script(name: str, *argv: str) -> int:
    """Return the exit code of `python <name>.py <argv>`; print its message to stderr, as Python does."""
    return run_main(getattr(cli, name), str(REPOSITORY / f"{name}.py"), *argv)


def run_entry_point(name: str, *argv: str) -> int:
    """Return the exit code of an installed command such as `nas-report`."""
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    scripts = setup["options.entry_points"]["console_scripts"].split("\n")
    target = dict(re.split(r"\s*=\s*", line) for line in scripts if line)[name]
    return run_main(get_object(target.replace(":", ".")), name, *argv)


def run_main(main: Callable[[], object], *argv: str) -> int:
    """Return the exit code of a command's main function."""
    with process_state():
        sys.argv[:] = argv
        try:
            main()
        except SystemExit as end:
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
                return 1
            return end.code or 0
        return 0


def run_process(name: str, *argv: str, **options) -> subprocess.Popen:
    """Run the command in a separate process with one thread, which the last bits of results depend on."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(REPOSITORY / f"{name}.py"), *argv]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, **{**pipes, **options})


@pytest.fixture
def command(tmp_path, monkeypatch, capsys) -> Callable[..., Outcome]:
    """`command("search", "strategy=darts", …)` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *argv: str) -> Outcome:
        capsys.readouterr()
        code = run_script(name, *argv)
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """A folder with a finished search in `searched` and a finished training run in `trained`."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        quick = ("trainer.max_epochs=1", "callbacks.history.figures=false")
        assert run_script("search", *TINY_SEARCH, *quick, "strategy=darts", "run=searched") == 0
        train = ("genotype=file", "genotype.path=searched", *TINY_DATA, *TINY_NETWORK)
        assert run_script("train", *train, "trainer.max_epochs=1", "run=trained") == 0
    return folder


@pytest.fixture
def runs(finished, command, tmp_path) -> Path:
    """A copy of `finished` that the commands find under `searched` and `trained`."""
    for name in ("searched", "trained"):
        shutil.copytree(finished / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def images(tmp_path) -> Path:
    """Nine images in three folders."""
    for number, name in enumerate(("cat", "dog", "owl")):
        for index in range(3):
            path = tmp_path / "images" / name / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (80 * number, 20 * index, 0)).save(path)
    return tmp_path / "images"
