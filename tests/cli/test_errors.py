"""User errors: one line on stderr, exit code 1, no training, and no change of existing files."""

import json
import signal
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from nas_lightning.cli.build import locate
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies.black_box.base import BlackBox
from tests.cli.conftest import CELL, TINY_DATA, TINY_NETWORK, TINY_SEARCH

SEARCH = (*TINY_SEARCH, "trainer.max_epochs=1")
TRAIN = (*TINY_DATA, *TINY_NETWORK, "trainer.max_epochs=1")


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def error_of(command, tmp_path):
    """`error_of("search", …)`: the error message of a command, which must be one line and change no file."""

    def run(name, *argv):
        before = contents(tmp_path)
        code, out, err = command(name, *argv)
        assert code == 1, out
        lines = err.splitlines()
        assert len(lines) == 1, err
        assert lines[0].startswith("error: "), err
        assert "epoch 1/" not in out
        after = contents(tmp_path)
        assert {path: after.get(path) for path in before} == before
        return lines[0]

    return run


UNKNOWN = {  # found while the configuration is composed
    "strategy=dart": "`strategy` has no option `dart`. Did you mean `darts`?",
    "trainer=gpu": "`trainer` has no option `gpu`. Choose from ddp, default, deterministic, slurm.",
    "launcher=joblob": "Did you mean `joblib`?",
    "genotype=darts_v2": "Could not override 'genotype'. No match in the defaults list",
    "strategy.lrr=1": "There is no setting `strategy.lrr`. Did you mean `strategy.lr`?",
    "lr=0.1": "Did you mean `strategy.lr`?",
    "batch_size=3": "Did you mean `dataset.batch_size`?",
    "callbacks.collapse.treshold=0.3": "Did you mean `callbacks.collapse.threshold`?",
    "hydra.run.dirr=x": "Did you mean `hydra.run.dir`?",
    "strategy.normal.order=2": "There is no setting `strategy.normal`",
    "~strategy.lrr": "strategy.lrr",
    "strategy": "missing EQUAL",
    "strategy.lr=[1,2": "no viable alternative",
    "strategy=darts,gdas": "add --multirun",
    "--config-dir=missing": "Additional config directory",
    "resume=": "No run in",
}
INVALID = {  # found when the job starts
    "strategy.lr=${nothing}": "Interpolation key 'nothing' not found",
    "+strategy.larning_rate=1": "Unknown argument `larning_rate` of strategy",
    "+trainer.max_epoch=1": "Did you mean 'max_epochs'?",
    "+supernet.stem=cifar": "Unknown argument `stem` of supernet",
    "+callbacks.mine.threshold=1": "`callbacks.mine` needs a `_target_`",
    "+callbacks.mine._target_=no.such.Class": "Cannot import the class",
    "+callbacks.mine._target_=os.getcwd": "`os.getcwd` must be a pytorch_lightning Callback",
    "+logger.mine._target_=os.getcwd": "`os.getcwd` must be a pytorch_lightning Logger",
    "seed=abc": "`seed` must be a valid integer, got 'abc' (in seed)",
    "sweep.retries=nan": "(in sweep.retries)",
    "trainer.max_epochs=-1": "(in trainer.max_epochs)",
    "trainer.max_epochs=0": "(in trainer.max_epochs)",
    "trainer.accelerator=abacus": "abacus",
    "trainer.devices=0": "devices",
    "trainer.gradient_clip_val=1": "Pass strategy.clip=1 instead of trainer.gradient_clip_val",
    "strategy.lr=-1": "`lr` must be greater than 0, got -1 (in strategy.lr)",
    "strategy.compile=true": "compile",
    "supernet.channels=2.5": "`channels` must be a valid integer, got 2.5",
    "network.channels=0": "channel",
    "dataset.batch_size=999": "at most",
    "dataset.shape=8": "shape",
    "dataset.noise=nan": "`noise` must be a finite number, got nan (in dataset.noise)",
}


def test_unknown_options(error_of):
    for argument, message in UNKNOWN.items():
        assert message in error_of("search", *SEARCH, argument), argument


def test_invalid_settings(error_of, tmp_path):
    for argument, message in INVALID.items():
        assert message in error_of("search", *SEARCH, argument), argument
    assert not [*tmp_path.rglob(".hydra")]


def test_internal_error_has_a_traceback(command, monkeypatch):
    def fail(cfg):
        raise KeyError("ours")

    monkeypatch.setattr("nas_lightning.cli.build.check_config", fail)
    with pytest.raises(KeyError, match="ours"):
        command("search", *SEARCH)


TRAINING = {
    (): "Choose an architecture: genotype=file genotype.path=",
    ("genotype=darts_v3",): "Did you mean `darts_v2`?",
    ("genotype=darts_v2", "trainer.accelerator=cpu", "trainer.sync_batchnorm=true"): "need GPUs",
    ("genotype=file",): "`genotype.path` needs a value",
    (
        "genotype=file",
        "genotype.path=nowhere",
    ): "`genotype.path` must be the folder of a run or a genotype file, got 'nowhere'",
    ("genotype=nasbench201_best", "network.chanels=4"): "Did you mean `network.channels`?",
    ("genotype=nasbench201_best", "network.stem=cifar"): "Unknown argument `stem` of network",
    ("genotype=nasbench201_best", "network.channels=wide"): "(in network.channels)",
    ("genotype=darts_v2", "network.stem=mnist"): "must be 'cifar' or 'imagenet', got 'mnist'",
    ("genotype=nasbench201_best", "retrain.lr=0"): "`lr` must be greater than 0, got 0 (in retrain.lr)",
    ("genotype=nasbench201_best", "retrain.opt=momentun"): "did you mean 'momentum'?",
    ("genotype=nasbench201_best", "retrain.warmup_epochs=3"): "warm-up",
    ("genotype=nasbench201_best", "trainer.max_epochs=0"): "max_epochs",
    ("genotype=nasbench201_best", "strategy=darts"): "Could not override 'strategy'",
}


def test_errors_of_training(error_of):
    for arguments, message in TRAINING.items():
        assert message in error_of("train", *TRAIN, *arguments), arguments


def test_trainer_clips_gradients_if_the_recipe_does_not(command):
    clip = ("genotype=nasbench201_best", "retrain.clip=null", "trainer.gradient_clip_val=1.0")
    assert command("train", *TRAIN, *clip)[::2] == (0, "")


def test_supernet_size_without_supernet(error_of):
    message = error_of("search", *TINY_DATA, "strategy=nesbs", "space=nasbench101")
    assert "Unknown argument `partial` of supernet. It takes none." in message


GOOD = {"space": "nasbench201", "cells": {}}
FILES = [
    ("", "must be JSON"),
    ("{", "must be JSON"),
    ("[]", "genotype must"),
    ('{"genotypes": []}', "at least one genotype"),
    ('{"genotypes": 3}', "at least one genotype"),
    ('{"space": "nasbench201"}', "genotype must"),
    (json.dumps(GOOD), "at least one cell"),
    (
        json.dumps({**GOOD, "cells": {"cell": {"edges": [["a", 0, 1]], "inputs": 1, "output": [1]}}}),
        "six edges",
    ),
    (
        json.dumps({"space": "dart", "cells": {"c": {"edges": [["a", 0, 1]], "inputs": 1, "output": [1]}}}),
        "darts",
    ),
    (
        json.dumps({**GOOD, "cells": {"cell": {"edges": [["a", 2, 1]], "inputs": 1, "output": [1]}}}),
        "n edge",
    ),
    ("\0\1\2", "must be JSON"),
]


def test_damaged_genotype_files(error_of, tmp_path):
    for number, (text, message) in enumerate(FILES):
        (tmp_path / "genotype.json").write_text(text)
        path = "genotype.json" if number % 2 else "."  # the file, or its folder
        assert message in error_of("train", *TRAIN, "genotype=file", f"genotype.path={path}")


def test_invalid_genotype_index(error_of, runs):
    for index in ("5", "-1", "one"):
        chosen = ("genotype=file", "genotype.path=searched", f"genotype.index={index}")
        assert "genotype.index" in error_of("train", *TRAIN, *chosen)


def test_errors_of_image_folders(error_of, tmp_path, images):
    folder = ("space=nasbench201", "dataset=image_folder", "trainer.max_epochs=1", "dataset.batch_size=2")
    assert "dataset.root=" in error_of("search", *folder)
    assert "There is no such folder or .tar file of images (in missing)" in error_of(
        "search", *folder, "dataset.root=missing"
    )
    (tmp_path / "empty").mkdir()
    assert "images" in error_of("search", *folder, "dataset.root=empty")
    (tmp_path / "single").mkdir()
    (images / "cat").rename(tmp_path / "single" / "cat")
    assert "at least 2 classes" in error_of("search", *folder, "dataset.root=single")
    assert "`num_classes` must be 2, as the folder has, got 7" in error_of(
        "search", *folder, f"dataset.root={images}", "dataset.num_classes=7"
    )
    for broken in (images / "dog").iterdir():
        broken.write_bytes(b"no image")
    assert "dog" in error_of("search", *folder, f"dataset.root={images}")
    assert "cifar10" in error_of("search", "dataset=cifar10", "dataset.root=missing", "trainer.max_epochs=1")


def test_existing_runs_are_not_changed(error_of, runs):
    for arguments, message in (
        (("resume=missing",), "No run in `missing`"),
        (("resume=searched", "strategy.lr=0.5"), "`strategy.lr` cannot change in a resumed run: 0.025"),
        (("resume=searched", "trainer.max_epoch=9"), "Did you mean `trainer.max_epochs`?"),
        (("-m", "resume=searched"), "is a single run. Leave out -m"),
        (("run=searched", *SEARCH), "`searched` has a run. Pass resume="),
        (("run=searched/genotype.json/below", *SEARCH), "Not a directory"),
        ((f"run={'long' * 99}", *SEARCH), "File name too long"),
    ):
        assert message in error_of("search", *arguments), arguments
    assert "is a run of search, not of train" in error_of("train", "resume=searched")
    assert "`network.channels` cannot change" in error_of("train", "resume=trained", "network.channels=8")


def write_zip(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "b")


def flip_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE = [
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(path.read_bytes()[:-2000]),
    flip_bit,
    write_zip,
    lambda path: torch.save({"a": torch.zeros(2)}, path),
    lambda path: torch.save(
        {"state_dict": {}, "loops": {}, "optimizer_states": [], "pytorch-lightning_version": "2.6"}, path
    ),
]


def test_damaged_checkpoints(error_of, runs):
    file = runs / "searched" / "checkpoints" / "last.ckpt"
    content = file.read_bytes()
    for damage in DAMAGE:
        file.write_bytes(content)
        damage(file)
        assert "checkpoint" in error_of("search", "resume=searched")


@pytest.mark.parametrize("text", ["_target_: [", "!!python/object/apply:os.getcwd []", "\0"])
def test_invalid_yaml(error_of, tmp_path, text):
    (tmp_path / "mine" / "strategy").mkdir(parents=True)
    (tmp_path / "mine" / "strategy" / "custom.yaml").write_text(text)
    error_of("search", *SEARCH, "strategy=custom", "--config-dir", "mine")


def test_sweep_is_checked_before_its_first_job(error_of, tmp_path):
    for arguments, message in (
        (("strategy=darts,dart",), "Did you mean `darts`?"),
        (("strategy=darts,random", "strategy.arch_lr=2"), "There is no setting `strategy.arch_lr`"),
    ):
        assert message in error_of("search", "-m", *SEARCH, *arguments, "run=sweep")
        assert not (tmp_path / "sweep").exists()


def test_launcher_that_is_not_installed(error_of):
    if find_spec("hydra_plugins.hydra_submitit_launcher") is None:
        message = error_of("search", "-m", *SEARCH, "seed=0,1", "launcher=slurm")
        assert "pip install hydra-submitit-launcher" in message


LATE = {  # found by the job, not on the command line
    "search": (("strategy.lr=-1", "dataset.batch_size=20"), SEARCH),
    "train": (
        ("retrain.warmup_epochs=3", "genotype.index=7", "dataset.shape=[8,8]"),
        (*TRAIN, "genotype=file", "genotype.path=cell.json"),
    ),
}


@pytest.mark.parametrize("name", LATE)
def test_failed_start_leaves_the_folder_to_the_corrected_command(error_of, command, tmp_path, name):
    (tmp_path / "cell.json").write_text(json.dumps(NasBench201().parse(CELL).to_dict()))
    mistakes, right = LATE[name]
    for mistake in mistakes:
        error_of(name, *right, mistake, "run=a", "logger=tensorboard")
    error_of(name, *right, mistake)
    assert not (tmp_path / "a" / ".hydra").exists()
    assert not list((tmp_path / "outputs").rglob(".hydra"))
    code, _, err = command(name, *right, "run=a")
    assert (code, err) == (0, "")
    assert "`a` has a run" in error_of(name, *right, "run=a")


def test_failed_start_keeps_existing_files(error_of, runs):
    """A user's files, and the record of a resumed run."""
    (runs / "a").mkdir()
    (runs / "a" / "notes.log").write_text("mine")
    (runs / "a" / "photo.png").write_text("mine, too")
    error_of("search", *SEARCH, "strategy.lr=-1", "run=a")  # compares them
    assert "`lr` must be greater than 0" in error_of("search", *SEARCH, "strategy.lr=-1", "run=a")
    flip_bit(runs / "searched" / "checkpoints" / "last.ckpt")
    (runs / "searched" / "genotype.json").unlink()
    error_of("search", "resume=searched")


def test_interrupted_start_writes_nothing(command, tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(SearchData, "setup", interrupt)
    assert command("search", *SEARCH, "run=a") == (128 + signal.SIGINT, "", "")
    assert not (tmp_path / "a").exists()


def test_closed_pipe_prints_no_traceback():
    """The pipe is closed before the help is written, as with `--help | head`."""
    script = Path(__file__).parents[2] / "train.py"
    command = [sys.executable, "-u", str(script), "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 1


CELLS = [CELL, CELL.replace("none", "avg_pool_3x3"), CELL.replace("none", "nor_conv_1x1")]
DEVICES = {
    "no cell": ("genotype,phone\n", "There must be at least one architecture"),
    "a cell without its latency": (
        f"genotype,phone\n{CELL},1.5\n{CELLS[1]}\n",
        "The row must have 2 values, got 1",
    ),
    "cut short": ("genotype,phone\n" + "".join(f"{cell},1.5\n" for cell in CELLS)[:-20], "row 3"),
    "too few": (f"genotype,phone\n{CELL},1.5\n", "There must be at least 3 measured networks, got 1"),
}


def test_incomplete_latency_tables(error_of, tmp_path):
    for strategy, (text, message) in zip(["darts", "evolution"] * 2, DEVICES.values(), strict=True):
        (tmp_path / "phone.csv").write_text(text)
        argv = (f"strategy={strategy}", "limits.device=phone.csv", "limits.latency_ms=2", "run=bad")
        assert message in error_of("search", *SEARCH, *argv)
        assert not (tmp_path / "bad").exists()


POOLED = ("strategy=knas", "strategy.images=4", "strategy.pool_size=3", "strategy.agreement=0")
LIMITED = ("limits.params=300000",)


@pytest.mark.parametrize(
    ("strategy", "limits"), [("evolution", LIMITED), ("hnas", ()), ("knas", ()), ("predictor", LIMITED)]
)
def test_search_does_not_overwrite_an_unrelated_file(error_of, tmp_path, monkeypatch, strategy, limits):
    monkeypatch.setattr(BlackBox, "training_step", lambda *args: pytest.fail("the search has started"))
    (tmp_path / "notes.txt").write_text("my notes")
    argv = (f"strategy={strategy}", "strategy.images=4", *limits)
    line = error_of("search", *SEARCH, *argv, "strategy.pool=notes.txt", "run=bad")
    assert "The file exists and is not the CSV file of a pool" in line
    assert not (tmp_path / "bad").exists()


def test_pool_of_another_seed(error_of, command, tmp_path):
    argv = ("search", *SEARCH, *POOLED, "strategy.pool=scores.csv")
    assert command(*argv, "run=first").code == 0
    line = error_of(*argv, "seed=1", "run=bad")
    assert "as in the other lines of the file" in line
    assert not (tmp_path / "bad").exists()


def test_missing_package_is_said_before_the_folder_exists(command, tmp_path, monkeypatch):
    monkeypatch.setattr("nas_lightning.cli.job.find_spec", lambda module: None)
    for script, option, extra in (
        ("search", "logger=mlflow", "mlflow"),
        ("train", "logger=tensorboard", "tensorboard"),
        ("analyze", "study.runtime=onnx", "export"),
    ):
        study = ["study=latency"] if script == "analyze" else []
        outcome = command(script, *study, option, "run=a")
        expected = (
            f"error: expected the packages for {option}: pip install 'nas-lightning[{extra}]', got 'no "
        )
        assert outcome.code == 1
        assert outcome.err.startswith(expected)
        assert not list(tmp_path.iterdir())


def test_import_error_of_a_users_module_shows_its_cause(tmp_path, monkeypatch):
    (tmp_path / "users_parts").mkdir()
    (tmp_path / "users_parts" / "mine.py").write_text("import os\nimport no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    cause = r"ModuleNotFoundError: No module named 'no_such_package' \(.*mine\.py, line 2\)"
    with pytest.raises(InputError, match=cause):
        locate("users_parts.mine.Mine", "strategy")
    with pytest.raises(InputError, match="has no attribute 'other'"):
        locate("users_parts.other.Mine", "strategy")
