"""`resume=` of a folder that a stranger made: nothing in it runs, and nothing outside of it is written.

What a stranger would run leaves the file `MARKER` behind, what he would write goes to the folder `elsewhere`.
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
    """What touches the marker when it is unpickled."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return Path.touch, (Path(self.marker),)


@pytest.fixture
def stranger(runs, monkeypatch):
    """A folder with a search of somebody's, a pickle and modules beside it; the marker is not yet there."""
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    (runs / "payload.pkl").write_bytes(pickle.dumps(Payload(runs / MARKER)))
    (runs / "searched" / "evil.py").write_text(EVIL.format(runs))
    (runs / "evil.py").write_text(EVIL.format(runs))
    (runs / "searched" / "summary.json").unlink()
    return runs


def add_words(run, *words, replaced=()):
    """Write words into a record."""
    file = run / ".hydra" / "overrides.yaml"
    kept = [word for word in yaml.safe_load(file.read_text()) if not word.startswith(replaced or ("\0",))]
    file.write_text(yaml.safe_dump([*kept, *words]))


def outside(folder):
    """All that is not in the run, with its bytes."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {p: p.read_bytes() for p in files if "searched" not in p.relative_to(folder).parts[:1]}


def check_refused(outcome, folder, before):
    assert not (folder / MARKER).exists()
    assert outside(folder) == before
    assert outcome.code == 1
    assert len(outcome.err.splitlines()) == 1, outcome.err
    assert outcome.err.startswith("error: expected")


def pickled(target, argument):
    return f"{{_target_:{target},{argument}:payload.pkl"


CLASSES = [
    "+callbacks.evil=" + pickled("torch.load", "f") + ",weights_only:false}",
    "+callbacks.evil=" + pickled("numpy.load", "file") + ",allow_pickle:true}",
    "+callbacks.evil=" + pickled("joblib.load", "filename") + "}",
    "+callbacks.evil._target_=evil.Evil",
    f"+callbacks.evil={{_target_:os.system,command:'touch {MARKER}'}}",
    f"+callbacks.evil={{_target_:pathlib.Path.write_text,self:{MARKER},data:x}}",
    f"logger.csv={{_target_:os.mkdir,path:{MARKER}}}",
    f"++logger.evil={{_target_:os.mkdir,path:{MARKER}}}",
    "strategy._target_=evil.Evil",
    "derivation._target_=evil.Evil",
    "search_data._target_=evil.Evil",
    "dataset._target_=evil.Evil",
    "trainer._target_=evil.Evil",
    "++trainer.plugins=[{_target_:evil.Evil}]",
    "+hydra.callbacks.evil._target_=evil.Evil",
    "hydra.callbacks.table._target_=evil.Evil",
    "space.ops=[none,skip_connect,evil.Evil]",
    "+space.ops=[none,skip_connect,evil.Evil]",
]
PLACES = [
    "run=elsewhere",
    "++run=elsewhere",
    "hydra.run.dir=elsewhere",
    "hydra.sweep.dir=elsewhere",
    "hydra.job_logging.handlers.file.filename=elsewhere.log",
    "logger.csv.folder=elsewhere",
    "logger.csv={folder: elsewhere}",
    "callbacks.history.folder=elsewhere",
    "callbacks.checkpoint.dirpath=elsewhere",
    "callbacks.checkpoint.filename=../../elsewhere",
    "callbacks.within_epochs={path: elsewhere.ckpt, every_n_steps: 1}",
    "callbacks.signals.path=elsewhere.ckpt",
    "trainer.default_root_dir=elsewhere",
    "++trainer.default_root_dir=elsewhere",
    "~trainer.default_root_dir",
    "+callbacks.more.dirpath=elsewhere",
    "++trainer.profiler=simple",
]
REFERENCES = [
    "dataset.seed=${oc.env:SEED}",
    "dataset.seed=${oc.decode:${oc.env:SEED}}",
    "dataset.seed='\\${oc.env:SEED}'",
    "+dataset.more=${oc.env:SEED}",
    "dataset.seed=${hydra:runtime.cwd}",
    "dataset.seed=${hydra.runtime.cwd}",
    "dataset.seed=${now:%H}",
    "strategy=../../evil",
    "strategy=../../../searched/evil",
    "+strategy@evil=../../evil",
    "+hydra/launcher=../../evil",
    "strategy=missing",
    "dataset.seed=range(3)",
    "dataset.seed=glob(*)",
    "[" * 5000,
    "dataset.seed=" + "[" * 500 + "]" * 500,
    "dataset.seed=" + "9" * 20_000,
    "",
    "=",
    "+resume=/",
    "++resume=elsewhere",
]


@pytest.mark.parametrize("word", [*CLASSES, *PLACES, *REFERENCES], ids=lambda word: word[:50])
def test_a_stored_word_builds_nothing_writes_nowhere_and_refers_to_nothing(stranger, command, word):
    add_words(stranger / "searched", word, replaced=word.split("=")[0] + "=")
    before = outside(stranger)
    check_refused(command("search", "resume=searched"), stranger, before)


@pytest.mark.parametrize("where", [".", "beside"])
def test_a_stored_operation_is_not_imported(stranger, command, monkeypatch, where):
    monkeypatch.chdir(stranger / "searched" if where == "." else stranger)
    add_words(stranger / "searched", "operations=[evil.Evil]")
    before = outside(stranger)
    run = "." if where == "." else "searched"
    check_refused(command("search", f"resume={run}"), stranger, before)


def test_folders_of_configuration_that_a_record_names_are_not_used(stranger, command):
    folder = stranger / "conf of his"
    (folder / "strategy").mkdir(parents=True)
    (folder / "evil.py").write_text(EVIL.format(stranger))
    (folder / "strategy" / "evil.yaml").write_text("_target_: evil.Evil\n")
    (stranger / "evil.py").unlink()
    file = stranger / "searched" / ".hydra" / "hydra.yaml"
    content = yaml.safe_load(file.read_text())
    content["hydra"]["runtime"]["config_sources"].append(
        {"path": str(folder), "schema": "file", "provider": "command-line"}
    )
    file.write_text(yaml.safe_dump(content))
    add_words(stranger / "searched", "strategy=evil", replaced="strategy=")
    before = outside(stranger)
    outcome = command("search", "resume=searched")
    check_refused(outcome, stranger, before)
    assert f"--config-dir '{folder}'" in outcome.err


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
    """A process of its own, which has not found Hydra's plugins yet."""
    words = [sys.executable, str(REPOSITORY / f"{name}.py"), *argv]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    "argv", [("--help",), ("--cfg", "job"), ("--info",), ("resume=.", "trainer.max_epochs=1")], ids=" ".join
)
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
    assert "expected --config-dir" in outcome.err
    assert module not in sys.modules
    for how in (("--config-dir", "mine"), ("--trust",)):
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
    assert "type it again, or --trust" in outcome.err
    assert not (stranger / MARKER).exists()
    assert command("search", "resume=a", "--trust").code == 0
    sys.modules.pop("evil")
    assert command("search", "resume=a", own).code == 0
    assert (stranger / MARKER).exists()
