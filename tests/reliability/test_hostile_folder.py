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
def stranger(runs, monkeypatch):
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


def test_a_strangers_configuration_builds_nothing_and_writes_nowhere(stranger, command, monkeypatch):
    file = stranger / "searched" / ".hydra" / "config.yaml"
    config = file.read_text()
    for key, value in HOSTILE.items():
        content = node = yaml.safe_load(config)
        *parents, last = key.strip().split(".")
        for name in parents:
            node = node[name]
        node[last] = value
        file.write_text(yaml.safe_dump(content))
        before = outside(stranger)
        check_refused(command("search", "resume=searched"), stranger, before)
    file.write_text(config + "hydra: {searchpath: [file://evil], callbacks: {evil: {_target_: evil.Evil}}}\n")
    monkeypatch.chdir(stranger / "searched")
    before = outside(stranger)
    assert command("search", "resume=.").code == 0  # Hydra's part is not read
    assert not (stranger / MARKER).exists()
    assert outside(stranger) == before


@pytest.mark.parametrize("link", ["metrics.csv", "checkpoints", "figures", "history.jsonl", "searched.log"])
def test_a_link_out_of_the_folder_is_not_followed(stranger, command, link):
    run, elsewhere = stranger / "searched", stranger / "elsewhere"
    (run / link).rename(elsewhere) if (run / link).exists() else elsewhere.write_text("mine")
    (run / link).symlink_to(elsewhere)
    before = outside(stranger)
    outcome = command("search", "resume=searched")
    check_refused(outcome, stranger, before)
    assert "without links to elsewhere" in outcome.err


def start(name, *argv, cwd):
    """Run in a new process, which has not imported Hydra's plugins."""
    words = [sys.executable, str(REPOSITORY / f"{name}.py"), *argv]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("argv", [("--help",), ("resume=.", "trainer.max_epochs=1")], ids=" ".join)
def test_no_command_imports_from_the_folder_where_it_is_typed(stranger, argv):
    run = stranger / "searched"
    (run / "hydra_plugins").mkdir()
    for name in ("hydra_plugins/evil", "tensorboardX", "nas_201_api", "cupy", "hydra_plugins/__init__"):
        (run / f"{name}.py").write_text(EVIL.format(stranger))
    outcome = start("search", *argv, cwd=run)
    assert outcome.returncode == 0, outcome.stderr
    assert not (stranger / MARKER).exists()


def test_a_run_with_parts_of_ones_own_goes_on_with_their_folder_typed(command, tmp_path):
    module = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / "mine" / "strategy").mkdir(parents=True)
    code = "from nas_lightning.strategies import RandomSearch\nclass Own(RandomSearch): ...\n"
    (tmp_path / "mine" / f"{module}.py").write_text(code)
    (tmp_path / "mine" / "strategy" / "own.yaml").write_text(f"# Own\n_target_: {module}.Own\ncount: 1\n")
    words = (*TINY_SEARCH, "trainer.max_epochs=0", "strategy=own", "run=a", "--config-dir", "mine")
    assert command("search", *words).code == 0
    sys.modules.pop(module)
    outcome = command("search", "resume=a")
    assert outcome.code == 1
    assert "--config-dir" in outcome.err
    assert module not in sys.modules
    for how in (("--config-dir", "mine"), ("trust=true",)):
        outcome = command("search", "resume=a", *how)
        assert outcome.code == 0, outcome.err


def test_what_a_user_types_may_be_his_own(stranger, command):
    (stranger / "evil.py").write_text(
        f"{EVIL.format(stranger)}import pytorch_lightning\nclass Evil(pytorch_lightning.Callback): ...\n"
    )
    own = "+callbacks.own._target_=evil.Evil"
    outcome = command("search", *TINY_SEARCH, "trainer.max_epochs=1", "strategy=random", "run=a", own)
    assert outcome.code == 0, outcome.err
    (stranger / MARKER).unlink()
    sys.modules.pop("evil")
    outcome = command("search", "resume=a")
    assert "trust=true if the folder is yours" in outcome.err
    assert not (stranger / MARKER).exists()
    assert command("search", "resume=a", "trust=true").code == 0
    sys.modules.pop("evil")
    assert command("search", "resume=a", own.removeprefix("+")).code == 0
    assert (stranger / MARKER).exists()
