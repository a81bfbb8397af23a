"""The scripts of the library's page with either package of Lightning, in processes of their own."""

import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from nas_lightning.lightning_packages import OtherName

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
    return run_code(code, folder, *words)


def run_code(code: str, folder: Path, *words: str) -> str:
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


LATE = """
import nas_lightning{loaded}
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import EarlyStopping
import pytorch_lightning.callbacks
from nas_lightning.data import Digits, SearchData
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import Darts

assert EarlyStopping is pytorch_lightning.callbacks.EarlyStopping
strategy = Darts.from_space(NasBench201(), in_channels=1, num_classes=10, channels=4, cells=1)
trainer = Trainer(max_epochs=1, limit_train_batches=1, callbacks=[EarlyStopping("valid_loss")], logger=False)
trainer.fit(strategy, SearchData(Digits(batch_size=64)))
print("first:", Trainer.__module__)
"""


@needs_other
@pytest.mark.parametrize(
    ("loaded", "package"),
    [(".strategies", "pytorch_lightning"), pytest.param("", "lightning.pytorch", marks=pytest.mark.slow)],
)
def test_the_user_may_import_lightning_after_us(loaded, package, tmp_path):
    assert f"first: {package}.trainer.trainer" in run_code(LATE.format(loaded=loaded), tmp_path)


@needs_other
@pytest.mark.slow
def test_two_lightnings_that_are_loaded_already_are_told_of(tmp_path):
    code = """
import warnings, lightning.pytorch, pytorch_lightning
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    import nas_lightning
print([str(one.message) for one in seen])
"""
    assert "take its Trainer, or import nas_lightning before either" in run_code(code, tmp_path)


@pytest.fixture
def twins(tmp_path, monkeypatch):
    """Two packages of the same modules, each of which may be imported by the names of the other."""
    for name in ("twin_a", "twins/b"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "__init__.py").write_text("from . import part\n", encoding="utf-8")
        (tmp_path / name / "part.py").write_text("class Part: ...\n", encoding="utf-8")
    (tmp_path / "twins" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    finder = OtherName({"twin_a": "twins.b", "twins.b": "twin_a"})
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    yield
    for name in [name for name in sys.modules if name.startswith("twin")]:
        del sys.modules[name]


@pytest.mark.parametrize(("first", "second"), [("twin_a", "twins.b"), ("twins.b", "twin_a")])
def test_the_package_that_is_loaded_first_has_both_names(first, second, twins):
    part = import_module(f"{first}.part").Part
    assert import_module(f"{second}.part").Part is part
    assert import_module(second) is import_module(first)
    assert import_module(second).__spec__.name == part.__module__.removesuffix(".part") == first


def test_a_module_that_neither_has_is_not_found_by_either_name(twins):
    import_module("twin_a")
    with pytest.raises(ModuleNotFoundError, match=r"twins\.b\.nothing"):
        import_module("twins.b.nothing")
