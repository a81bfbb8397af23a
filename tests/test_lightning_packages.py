"""The scripts of the library's page with either package of Lightning, in processes of their own."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "library.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.S)
CLI = re.findall(r"```py\n(.*?)```", PAGE, re.S)
OTHER = {"pytorch_lightning": "lightning.pytorch", "lightning_fabric": "lightning.fabric"}
needs_other = pytest.mark.skipif(find_spec("lightning") is None, reason="lightning is not installed")
needs_cli = pytest.mark.skipif(find_spec("jsonargparse") is None, reason="jsonargparse is not installed")
PACKAGES = ["pytorch_lightning", pytest.param("lightning", marks=needs_other)]


def run(code: str, package: str, folder: Path, *words: str) -> str:
    """What a script prints; with the other package it imports that one first, as its user does."""
    if package == "lightning":
        for name, other in OTHER.items():
            code = re.sub(rf"\b{name}\b", other, code)
        same = "sys.modules['pytorch_lightning'] is lightning.pytorch"
        code = f"import lightning.pytorch\n{code}\nimport sys\nassert {same}\n"
    (folder / "script.py").write_text(code, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "script.py", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_scripts_are_short():
    assert len(PYTHON) >= 7
    assert max(len(code.splitlines()) for code in [*PYTHON, *CLI]) <= 30


@pytest.mark.slow
@needs_other
@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_every_script_runs_with_the_other_package(number, tmp_path):
    run(PYTHON[number], "lightning", tmp_path)


@pytest.mark.slow
@needs_cli
@pytest.mark.parametrize("package", PACKAGES)
def test_lightnings_command_line_runs(package, tmp_path):
    words = ["fit", "--model.space", "nas_lightning.spaces.NasBench201", "--model.lr", "0.1"]
    run(CLI[0], package, tmp_path, *words, "--trainer.max_epochs", "1", "--trainer.limit_train_batches", "2")
    assert [*tmp_path.rglob("*.ckpt")]


@needs_other
def test_whichever_is_loaded_decides(tmp_path):
    code = "from nas_lightning.strategies import Darts\nprint(Darts.__mro__)"
    assert "lightning.pytorch.core.module.LightningModule" in run(code, "lightning", tmp_path)
