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

from nas_lightning.data import SearchData
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies.black_box.base import BlackBox
from tests.cli.conftest import CELL, TINY_DATA, TINY_NETWORK, TINY_SEARCH

SEARCH = (*TINY_SEARCH, "trainer.max_epochs=1")
TRAIN = (*TINY_DATA, *TINY_NETWORK, "trainer.max_epochs=1")


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def refused(command, tmp_path):
    """`refused("search", …)`: the message, without `error: `."""

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


UNKNOWN = {  # found by Hydra, before there is a job
    "strategy=dart": "`strategy` has no option `dart`. Did you mean `darts`?",
    "trainer=gpu": "`trainer` has no option `gpu`. Choose from ddp, default, slurm.",
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
FOUND_BY_THE_JOB = {
    "strategy.lr=${nothing}": "Interpolation key 'nothing' not found",
    "+strategy.larning_rate=1": "Unknown argument `larning_rate` of strategy",
    "+trainer.max_epoch=1": "Did you mean 'max_epochs'?",
    "+supernet.stem=cifar": "Unknown argument `stem` of supernet",
    "+callbacks.mine.threshold=1": "`callbacks.mine` needs a `_target_`",
    "+callbacks.mine._target_=no.such.Class": "expected a class that can be imported",
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


def test_what_hydra_does_not_know_is_one_line(refused):
    for argument, message in UNKNOWN.items():
        assert message in refused("search", *SEARCH, argument), argument


def test_what_parts_refuse_is_one_line(refused, tmp_path):
    for argument, message in FOUND_BY_THE_JOB.items():
        assert message in refused("search", *SEARCH, argument), argument
    assert not [*tmp_path.rglob(".hydra")]


def test_our_own_mistake_has_its_traceback(command, monkeypatch):
    def fail(cfg):
        raise KeyError("ours")

    monkeypatch.setattr("nas_lightning.cli.build.check_config", fail)
    with pytest.raises(KeyError, match="ours"):
        command("search", *SEARCH)


TRAINING = {
    (): "Choose an architecture: genotype=file genotype.path=",
    ("genotype=darts_v3",): "Did you mean `darts_v2`?",
    ("genotype=darts_v2", "trainer.accelerator=cpu", "trainer.sync_batchnorm=true"): "expected GPUs",
    ("genotype=file",): "`genotype.path` needs a value",
    ("genotype=file", "genotype.path=nowhere"): "expected a run's folder or a genotype file, got 'nowhere'",
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


def test_training_says_what_is_wrong(refused):
    for arguments, message in TRAINING.items():
        assert message in refused("train", *TRAIN, *arguments), arguments


def test_the_trainer_clips_where_training_leaves_it_to_it(command):
    clip = ("genotype=nasbench201_best", "retrain.clip=null", "trainer.gradient_clip_val=1.0")
    assert command("train", *TRAIN, *clip)[::2] == (0, "")


def test_a_space_without_sizes_of_a_supernet(refused):
    message = refused("search", *TINY_DATA, "strategy=nesbs", "space=nasbench101")
    assert "Unknown argument `partial` of supernet. It takes none." in message


GOOD = {"space": "nasbench201", "cells": {}}
FILES = [
    ("", "expected JSON"),
    ("{", "expected JSON"),
    ("[]", "expected a genotype"),
    ('{"genotypes": []}', "at least one genotype"),
    ('{"genotypes": 3}', "at least one genotype"),
    ('{"space": "nasbench201"}', "expected a genotype"),
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
        "an edge",
    ),
    ("\0\1\2", "expected JSON"),
]


@pytest.mark.parametrize(("text", "message"), FILES)
def test_a_damaged_genotype_file(refused, tmp_path, text, message):
    (tmp_path / "genotype.json").write_text(text)
    for path in ("genotype.json", "."):  # the file, and its folder
        assert message in refused("train", *TRAIN, "genotype=file", f"genotype.path={path}")


@pytest.mark.parametrize("index", ["5", "-1", "one", "0.5"])
def test_an_index_that_is_none(refused, runs, index):
    message = refused("train", *TRAIN, "genotype=file", "genotype.path=searched", f"genotype.index={index}")
    assert "genotype.index" in message


def test_images_that_are_not_there(refused, tmp_path, images):
    folder = ("space=nasbench201", "dataset=image_folder", "trainer.max_epochs=1", "dataset.batch_size=2")
    assert "dataset.root=" in refused("search", *folder)
    assert "no such file" in refused("search", *folder, "dataset.root=missing")
    (tmp_path / "empty").mkdir()
    assert "expected images" in refused("search", *folder, "dataset.root=empty")
    (tmp_path / "single").mkdir()
    (images / "cat").rename(tmp_path / "single" / "cat")
    assert "at least 2 classes" in refused("search", *folder, "dataset.root=single")
    assert "num_classes=2" in refused("search", *folder, f"dataset.root={images}", "dataset.num_classes=7")
    for broken in (images / "dog").iterdir():
        broken.write_bytes(b"no image")
    assert "dog" in refused("search", *folder, f"dataset.root={images}")
    assert "cifar10" in refused("search", "dataset=cifar10", "dataset.root=missing", "trainer.max_epochs=1")


def test_an_earlier_run_stays_as_it_is(refused, runs):
    for arguments, message in (
        (("resume=missing",), "No run in `missing`"),
        (("resume=searched", "strategy.lr=0.5"), "`strategy.lr` cannot change in a resumed run: 0.025"),
        (("resume=searched", "trainer.max_epoch=9"), "Did you mean `trainer.max_epochs`?"),
        (("-m", "resume=searched"), "is a single run. Leave out -m"),
        (("run=searched", *SEARCH), "`searched` has a run. Pass resume="),
        (("run=searched/genotype.json/below", *SEARCH), "Not a directory"),
        ((f"run={'long' * 99}", *SEARCH), "File name too long"),
    ):
        assert message in refused("search", *arguments), arguments
    assert "is a run of search, not of train" in refused("train", "resume=searched")
    assert "`network.channels` cannot change" in refused("train", "resume=trained", "network.channels=8")


def zipped(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "b")


def bit_flipped(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-2000]),
    "one bit": bit_flipped,
    "another archive": zipped,
    "another file of torch": lambda path: torch.save({"a": torch.zeros(2)}, path),
    "another model": lambda path: torch.save(
        {"state_dict": {}, "loops": {}, "optimizer_states": [], "pytorch-lightning_version": "2.6"}, path
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint(refused, runs, damage):
    DAMAGE[damage](runs / "searched" / "checkpoints" / "last.ckpt")
    assert "checkpoint" in refused("search", "resume=searched")


@pytest.mark.parametrize("text", ["_target_: [", "!!python/object/apply:os.getcwd []", "\0"])
def test_a_users_yaml_that_is_none(refused, tmp_path, text):
    (tmp_path / "mine" / "strategy").mkdir(parents=True)
    (tmp_path / "mine" / "strategy" / "own.yaml").write_text(text)
    refused("search", *SEARCH, "strategy=own", "--config-dir", "mine")


def test_a_sweep_is_checked_before_its_first_job(refused, tmp_path):
    for arguments, message in (
        (("strategy=darts,dart",), "Did you mean `darts`?"),
        (("strategy=darts,random", "strategy.arch_lr=2"), "There is no setting `strategy.arch_lr`"),
    ):
        assert message in refused("search", "-m", *SEARCH, *arguments, "run=sweep")
        assert not (tmp_path / "sweep").exists()


def test_a_launcher_that_is_not_installed(refused):
    if find_spec("hydra_plugins.hydra_submitit_launcher") is None:
        message = refused("search", "-m", *SEARCH, "seed=0,1", "launcher=slurm")
        assert "pip install hydra-submitit-launcher" in message


LATE = {  # found by the job, not on the command line
    "search": (("strategy.lr=-1", "dataset.batch_size=20", "supernet.cells=0"), SEARCH),
    "train": (
        ("retrain.warmup_epochs=3", "retrain.lr=0", "genotype.index=7", "dataset.shape=[8,8]"),
        (*TRAIN, "genotype=file", "genotype.path=cell.json"),
    ),
}


@pytest.mark.parametrize(
    ("name", "mistake"), [(name, mistake) for name, (mistakes, _) in LATE.items() for mistake in mistakes]
)
def test_a_start_that_failed_leaves_its_folder_to_the_next(refused, command, tmp_path, name, mistake):
    (tmp_path / "cell.json").write_text(json.dumps(NasBench201().parse(CELL).to_dict()))
    right = LATE[name][1]
    refused(name, *right, mistake, "run=a", "logger=tensorboard")
    refused(name, *right, mistake)
    assert not (tmp_path / "a" / ".hydra").exists()
    assert not list((tmp_path / "outputs").rglob(".hydra"))
    code, _, err = command(name, *right, "run=a")
    assert (code, err) == (0, "")
    assert "`a` has a run" in refused(name, *right, "run=a")


def test_what_was_in_a_folder_before_stays(refused, runs):
    """A user's files, and the record of a resumed run."""
    (runs / "a").mkdir()
    (runs / "a" / "notes.log").write_text("mine")
    (runs / "a" / "photo.png").write_text("mine, too")
    refused("search", *SEARCH, "strategy.lr=-1", "run=a")  # compares them
    assert "`lr` must be greater than 0" in refused("search", *SEARCH, "strategy.lr=-1", "run=a")
    bit_flipped(runs / "searched" / "checkpoints" / "last.ckpt")
    (runs / "searched" / "genotype.json").unlink()
    refused("search", "resume=searched")


def test_an_interrupted_start_leaves_nothing(command, tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(SearchData, "setup", interrupt)
    assert command("search", *SEARCH, "run=a") == (128 + signal.SIGINT, "", "")
    assert not (tmp_path / "a").exists()


def test_the_cell_that_the_tests_train_is_one(command):
    """The cases above must fail for the reason that they test."""
    assert NasBench201().notation(NasBench201().parse(CELL)) == CELL


def test_a_reader_that_stops_early_gets_no_traceback():
    """The pipe is closed before the help is written, as with `--help | head`."""
    script = Path(__file__).parents[2] / "train.py"
    command = [sys.executable, "-u", str(script), "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 1


CELLS = [CELL, CELL.replace("none", "avg_pool_3x3"), CELL.replace("none", "nor_conv_1x1")]
DEVICES = {
    "no cell": ("genotype,phone\n", "expected distinct architectures, at least one, got 0"),
    "a cell without its latency": (f"genotype,phone\n{CELL},1.5\n{CELLS[1]}\n", "expected 2 values, got 1"),
    "cut short": ("genotype,phone\n" + "".join(f"{cell},1.5\n" for cell in CELLS)[:-20], "row 3"),
    "too few": (f"genotype,phone\n{CELL},1.5\n", "expected 3 measured networks or more, got 1"),
}


@pytest.mark.parametrize("strategy", ["darts", "evolution"])
@pytest.mark.parametrize(("text", "line"), DEVICES.values(), ids=DEVICES)
def test_a_device_that_lacks_a_cell_is_refused_before_the_search(refused, tmp_path, strategy, text, line):
    (tmp_path / "phone.csv").write_text(text)
    words = (f"strategy={strategy}", "limits.device=phone.csv", "limits.latency_ms=2", "run=bad")
    assert line in refused("search", *SEARCH, *words)
    assert not (tmp_path / "bad").exists()


POOLED = ("strategy=knas", "strategy.images=4", "strategy.pool_size=3", "strategy.agreement=0")
SCORING = (
    "evolution",
    "optuna",
    "metric_search",
    "greedy",
    "hnas",
    "knas",
    "eigen_nas",
    "predictor",
    "robot",
)


@pytest.mark.parametrize("limits", [(), ("limits.params=300000",)], ids=["free", "limited"])
@pytest.mark.parametrize("strategy", SCORING)
def test_a_file_of_somebody_elses_is_refused_before_a_search_scores_into_it(
    refused, tmp_path, monkeypatch, strategy, limits
):
    monkeypatch.setattr(BlackBox, "training_step", lambda *args: pytest.fail("a round was played"))
    (tmp_path / "notes.txt").write_text("my notes")
    words = (f"strategy={strategy}", "strategy.images=4", *limits)
    line = refused("search", *SEARCH, *words, "strategy.pool=notes.txt", "run=bad")
    assert "expected a pool's CSV file, or none yet" in line
    assert not (tmp_path / "bad").exists()


def test_scores_of_another_seed_are_refused_before_the_search(refused, command, tmp_path):
    words = ("search", *SEARCH, *POOLED, "strategy.pool=scores.csv")
    assert command(*words, "run=first").code == 0
    line = refused(*words, "seed=1", "run=bad")
    assert "as in the file's other lines" in line
    assert not (tmp_path / "bad").exists()
