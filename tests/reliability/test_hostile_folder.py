"""`resume=` of a malicious folder: its code does not run, and no file outside of it is written.

Malicious code would create the file `MARKER`, and malicious paths would write to the folder `elsewhere`.
"""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import REPOSITORY, TINY_SEARCH

MARKER = "marker"
EVIL = f'from pathlib import Path\nPath("{{}}/{MARKER}").touch()\n'


class Payload:
    """Creates the marker when it is unpickled."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return Path.touch, (Path(self.marker),)


@pytest.fixture
def hostile_folder(runs, monkeypatch):
    """A folder with a search, a malicious pickle, and malicious modules; the marker does not exist yet."""
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    (runs / "payload.pkl").write_bytes(pickle.dumps(Payload(runs / MARKER)))
    (runs / "searched" / "evil.py").write_text(EVIL.format(runs))
    (runs / "evil.py").write_text(EVIL.format(runs))
    (runs / "searched" / "summary.json").unlink()
    return runs


def outside(folder):
    """Return the contents of all files outside of the run."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {p: p.read_bytes() for p in files if "searched" not in p.relative_to(folder).parts[:1]}


def check_refused(outcome, folder, before):
    assert not (folder / MARKER).exists()
    assert outside(folder) == before
    assert outcome.code == 1
    assert len(outcome.err.splitlines()) == 1, outcome.err
    assert outcome.err.startswith("error: ")


HOSTILE = {
    "callbacks.evil": {"_target_": "torch.load", "f": "payload.pkl", "weights_only": False},
    "callbacks.evil ": {"_target_": "evil.Evil"},
    "logger.evil": {"_target_": "os.mkdir", "path": MARKER},
    "strategy._target_": "evil.Evil",
    "trainer.plugins": [{"_target_": "evil.Evil"}],
    "space.ops": ["none", "skip_connect", "evil.Evil"],
    "operations": ["evil.Evil"],
    "logger.csv.folder": "elsewhere",
    "callbacks.checkpoint.filename": "../../elsewhere",
    "callbacks.within_epochs.path": "elsewhere.ckpt",
    "dataset.seed": "${oc.env:SEED}",
    "strategy": {"a": "${oc.decode:${oc.env:SEED}}"},
}


def test_a_malicious_configuration_builds_nothing_and_writes_nowhere_else(
    hostile_folder, command, monkeypatch
):
    file = hostile_folder / "searched" / ".hydra" / "config.yaml"
    config = file.read_text()
    for key, value in HOSTILE.items():
        content = node = yaml.safe_load(config)
        *parents, last = key.strip().split(".")
        for name in parents:
            node = node[name]
        node[last] = value
        file.write_text(yaml.safe_dump(content))
        before = outside(hostile_folder)
        check_refused(command("search", "resume=searched"), hostile_folder, before)
    file.write_text(config + "hydra: {searchpath: [file://evil], callbacks: {evil: {_target_: evil.Evil}}}\n")
    monkeypatch.chdir(hostile_folder / "searched")
    before = outside(hostile_folder)
    assert command("search", "resume=.").code == 0  # Hydra's part is not read
    assert not (hostile_folder / MARKER).exists()
    assert outside(hostile_folder) == before


@pytest.mark.parametrize("link", ["metrics.csv", "checkpoints", "figures", "history.jsonl", "searched.log"])
def test_a_link_out_of_the_folder_is_not_followed(hostile_folder, command, link):
    run, elsewhere = hostile_folder / "searched", hostile_folder / "elsewhere"
    (run / link).rename(elsewhere) if (run / link).exists() else elsewhere.write_text("mine")
    (run / link).symlink_to(elsewhere)
    before = outside(hostile_folder)
    outcome = command("search", "resume=searched")
    check_refused(outcome, hostile_folder, before)
    assert "must not have links to elsewhere" in outcome.err


def start(name, *argv, cwd):
    """Run in a new process, which has not imported Hydra's plugins."""
    command = [sys.executable, str(REPOSITORY / f"{name}.py"), *argv]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


def test_no_import_from_the_current_folder(hostile_folder):
    run = hostile_folder / "searched"
    (run / "hydra_plugins").mkdir()
    for name in ("hydra_plugins/evil", "tensorboardX", "nas_201_api", "cupy", "hydra_plugins/__init__"):
        (run / f"{name}.py").write_text(EVIL.format(hostile_folder))
    outcome = start("search", "resume=.", "trainer.max_epochs=1", cwd=run)
    assert outcome.returncode == 0, outcome.stderr
    assert not (hostile_folder / MARKER).exists()


def test_resume_with_custom_classes_needs_their_config_dir(command, tmp_path):
    module = f"custom_{tmp_path.name.replace('-', '_')}"
    (tmp_path / "mine" / "strategy").mkdir(parents=True)
    code = "from nas_lightning.strategies import RandomSearch\nclass Custom(RandomSearch): ...\n"
    (tmp_path / "mine" / f"{module}.py").write_text(code)
    (tmp_path / "mine" / "strategy" / "custom.yaml").write_text(
        f"# Custom\n_target_: {module}.Custom\ncount: 1\n"
    )
    argv = (*TINY_SEARCH, "trainer.max_epochs=0", "strategy=custom", "run=a", "--config-dir", "mine")
    assert command("search", *argv).code == 0
    sys.modules.pop(module)
    outcome = command("search", "resume=a")
    assert outcome.code == 1
    assert "--config-dir" in outcome.err
    assert module not in sys.modules
    for how in (("--config-dir", "mine"), ("trust=true",)):
        outcome = command("search", "resume=a", *how)
        assert outcome.code == 0, outcome.err


def test_classes_named_on_the_command_line_are_trusted(hostile_folder, command):
    evil = EVIL.format(hostile_folder)
    code = f"{evil}import pytorch_lightning\nclass Evil(pytorch_lightning.Callback): ...\n"
    (hostile_folder / "evil.py").write_text(code)
    callback = "+callbacks.custom._target_=evil.Evil"
    outcome = command("search", *TINY_SEARCH, "trainer.max_epochs=1", "strategy=random", "run=a", callback)
    assert outcome.code == 0, outcome.err
    (hostile_folder / MARKER).unlink()
    sys.modules.pop("evil")
    outcome = command("search", "resume=a")
    assert "trust=true if the folder is yours" in outcome.err
    assert not (hostile_folder / MARKER).exists()
    assert command("search", "resume=a", "trust=true").code == 0
    sys.modules.pop("evil")
    assert command("search", "resume=a", callback.removeprefix("+")).code == 0
    assert (hostile_folder / MARKER).exists()
