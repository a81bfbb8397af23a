"""Mistakes: one line on stderr, an exit code, no training, and nothing that was there is changed."""

import json
import signal
import subprocess
import sys
import zipfile
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


GROUPS = [
    ("strategy=dart", "did you mean 'darts'?), got 'dart'"),
    ("space=dart", "did you mean 'darts'?"),
    ("dataset=cifar", "did you mean 'cifar10'?"),
    ("dataset=my/photos", "expected a dataset (choose from cifar10"),
    ("experiment=nothing", "expected an experiment"),
    ("derivation=perturb", "did you mean 'perturbation'?"),
    ("logger=wandbb", "did you mean 'wandb'?"),
    ("trainer=gpu", "expected a trainer"),
    ("launcher=joblob", "did you mean 'joblib'?"),
    ("callbacks=serach", "expected callbacks (did you mean 'search'?)"),
    ("genotype=darts_v2", "expected a choice of search.py (arch_optimizer, arch_step, auxiliary, benchmark"),
]
SETTINGS = [
    ("strategy.lrr=1", "did you mean 'strategy.lr'?"),
    ("lr=0.1", "did you mean 'strategy.lr'?"),
    ("epochs=3", "did you mean 'trainer.max_epochs'?"),
    ("batch_size=3", "did you mean 'dataset.batch_size'?"),
    ("supernet.chanels=3", "did you mean 'supernet.channels'?"),
    ("callbacks.collapse.treshold=0.3", "did you mean 'callbacks.collapse.threshold'?"),
    ("strategy.mu=2", "expected a setting that exists (strategy=nasi has it)"),
    ("strategy.arch_optimizer.betas=[0.9,0.99]", "(arch_optimizer=adam has it)"),
    ("strategy.regularizer.beta.weight_end=3", "(regularizer=beta has it)"),
    ("strategy.selection.population=3", "(selection=evolution has it)"),
    ("+strategy.regularizer.mine=3", "expected a Term or null, got 3 (in strategy.regularizer)"),
    ("dataset.image_size=8", "(dataset=image_folder or imagenet has it)"),
    ("strategy.normal.order=2", "strategy.normal.order"),
    ("hydra.run.dirr=x", "did you mean 'hydra.run.dir'?"),
    ("seeds=1", "did you mean 'seed'?"),
    ("+foo=1", "got 'foo'"),
    ("+strategy.foo=1", "expected a setting of strategy"),
    ("+strategy.larning_rate=1", "expected a setting of strategy"),
    ("+trainer.max_epoch=1", "did you mean 'max_epochs'?"),
    ("+supernet.stem=cifar", "expected a setting of supernet"),
    ("+space.nodes=4", "expected a setting of space (choose from ops), got 'nodes'"),
    ("dataset.noise=nan", "expected noise of at least 0, got nan (in dataset.noise)"),
    (
        "search_data.train_fraction=2",
        "expected train_fraction above 0 and of at most 1, got 2 (in search_data",
    ),
    ("+callbacks.mine.threshold=1", "expected a _target_"),
    ("+callbacks.mine._target_=abc", "expected a class or function, got 'abc' (in callbacks.mine)"),
    ("+callbacks.mine._target_=os.getcwd", "expected a callback of Lightning, got 'os.getcwd'"),
    ("+callbacks.mine._target_=builtins.iter", "callbacks.mine"),
    ("+logger.mine._target_=os.getcwd", "expected a logger of Lightning, got 'os.getcwd'"),
    ("~strategy.lrr", "strategy.lrr"),
    ("strategy.lr=${nothing}", "nothing"),
]
SYNTAX = [
    ("strategy", "the command line"),
    ("=3", "the command line"),
    ("strategy.lr=[1,2", "the command line"),
    ("strategy={lr: 1}", "expected a strategy"),
    ("--epochs=3", "--epochs=3"),
    ("strategy=darts,gdas", "-m for a sweep"),
    ("--config-dir=missing", "expected a folder of configurations, got 'missing'"),
    ("--resolve", "expected --cfg job beside --resolve"),
    ("--shell-completion", "expected a flag of Hydra's as it takes it: Expecting one subcommand"),
    ("--info=nothing", "the command line"),
    ("run=", "expected a folder for the run"),
    ("run=''", "expected a folder for the run"),
    ("resume=", "expected the folder of an earlier run"),
]
VALUES = [
    ("seed=abc", "`seed` must be a valid integer, got 'abc' (in seed)"),
    ("seed=-1", "(in seed)"),
    ("sweep=3", "expected the settings of sweep"),
    ("+sweep.x=1", "expected the settings of sweep: retries"),
    ("sweep.retries=nan", "(in sweep.retries)"),
    ("limits.minutes=1e300", "(in limits.minutes)"),
    ("seed=1.5", "(in seed)"),
    ("seed=null", "(in seed)"),
    ("trainer.max_epochs=-1", "(in trainer.max_epochs)"),
    ("trainer.max_epochs=1.5", "(in trainer.max_epochs)"),
    ("trainer.max_epochs=many", "(in trainer.max_epochs)"),
    ("trainer.max_epochs=0", "(in trainer.max_epochs)"),
    ("trainer.precision=17", "`precision` must be "),
    ("trainer.accelerator=abacus", "abacus"),
    ("trainer.devices=0", "devices"),
    ("trainer.gradient_clip_val=1", "expected strategy.clip=1 instead"),
    ("trainer.accumulate_grad_batches=2", "expected strategy.accumulate_grad_batches=2 instead"),
    ("strategy.lr=abc", "`lr` must be a valid number, got 'abc' (in strategy.lr)"),
    ("strategy.lr=-1", "`lr` must be greater than 0, got -1"),
    ("strategy.momentum=2", "`momentum` must be less than 1, got 2 (in strategy.momentum)"),
    ("strategy.clip=0", "`clip` must be greater than 0, got 0 (in strategy.clip)"),
    ("strategy.lr=true", "`lr` must be a valid number, got True (in strategy.lr)"),
    ("strategy.sampler.tau_end=0", "tau_end"),
    ("strategy.sampler.active_ops=9", "strategy.sampler.active_ops"),
    ("strategy.accumulate_grad_batches=0", "accumulate_grad_batches"),
    ("strategy.compile=true", "compile"),
    ("supernet.channels=0", "channel"),
    ("supernet.channels=2.5", "`channels` must be a valid integer, got 2.5"),
    ("supernet.cells=0", "cell"),
    ("supernet.partial=3", "partial"),
    ("network.channels=0", "channel"),
    ("network.cells=none", "(in network.cells)"),
    ("network.auxiliary=maybe", "`auxiliary` must be a valid boolean"),
    ("dataset.batch_size=0", "batch_size"),
    ("dataset.batch_size=999", "at most"),
    ("dataset.batch_size=20", "at most"),  # half of 32 images are for the weights
    ("dataset.val_fraction=1.5", "val_fraction"),
    ("dataset.subset=0", "subset"),
    ("dataset.shape=[8,8]", "shape"),
    ("dataset.shape=8", "shape"),
    ("dataset.num_classes=1", "classes"),
    ("search_data.train_fraction=0", "train_fraction"),
    ("search_data.train_fraction=half", "search_data.train_fraction"),
    ("callbacks.collapse.threshold=2", "threshold"),
    ("callbacks.within_epochs.every_n_steps=0", "every_n_steps"),
]


@pytest.mark.parametrize(("argument", "message"), GROUPS + SETTINGS + SYNTAX + VALUES)
def test_a_search_says_what_is_wrong(refused, argument, message):
    assert message in refused("search", *SEARCH, argument)


@pytest.mark.parametrize("part", ["sampler=dirichlet", "regularizer=[beta]"])
def test_a_part_of_a_strategy_without_parts_is_refused_with_the_reason(refused, part):
    said = refused("search", *SEARCH, "strategy=random", part)
    group = part.partition("=")[0]
    assert f"expected no {group}, because strategy=random is not made of parts, got {part!r}" in said


TRAINING = [
    ((), "expected an architecture: genotype=file genotype.path="),
    (("genotype=darts_v3",), "did you mean 'darts_v2'?"),
    (("genotype=darts_v2", "trainer.accelerator=cpu", "trainer.sync_batchnorm=true"), "expected GPUs"),
    (("genotype=file",), "genotype.path"),
    (("genotype=file", "genotype.path=nowhere"), "expected a run's folder or a genotype file, got 'nowhere'"),
    (("genotype=file", "genotype.path=."), "expected a run's folder or a genotype file"),
    (("genotype=nasbench201_best", "network.chanels=4"), "Did you mean 'channels'?"),
    (("genotype=nasbench201_best", "network.stem=cifar"), "Unknown argument `stem` of network."),
    (("genotype=nasbench201_best", "network.channels=0"), "channel"),
    (("genotype=nasbench201_best", "network.channels=wide"), "(in network.channels)"),
    (("genotype=darts_v2", "network.stem=mnist"), "`stem` must be 'cifar' or 'imagenet', got 'mnist'"),
    (("genotype=nasbench201_best", "retrain.lr=abc"), "(in retrain.lr)"),
    (("genotype=nasbench201_best", "retrain.lr=0"), "`lr` must be greater than 0, got 0 (in retrain.lr)"),
    (("genotype=nasbench201_best", "retrain.schedule=stairs"), "'cosine' or 'linear'"),
    (("genotype=nasbench201_best", "retrain.drop_path=2"), "retrain.drop_path"),
    (("genotype=nasbench201_best", "retrain.opt=momentun"), "did you mean 'momentum'?"),
    (("genotype=nasbench201_best", "retrain.warmup_epochs=3"), "warm-up"),
    (("genotype=nasbench201_best", "trainer.max_epochs=0"), "max_epochs"),
    (("genotype=nasbench201_best", "strategy=darts"), "expected a choice of train.py (callbacks, dataset"),
    (("genotype.path=found",), "expected a setting that exists (genotype=file has it)"),
    (("genotype=nasbench201_best", "trainer.gradient_clip_val=1"), "expected retrain.clip=1 instead"),
]


@pytest.mark.parametrize(("arguments", "message"), TRAINING)
def test_training_says_what_is_wrong(refused, arguments, message):
    assert message in refused("train", *TRAIN, *arguments)


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
    assert "nothing there" in refused("search", *folder, "dataset.root=missing")
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


RESUMED = [
    (("resume=missing",), "expected the folder of an earlier run, got 'missing'"),
    (("resume=trained",), "expected the folder of a run of search.py"),
    (("resume=searched", "space=darts"), "expected space._target_=nas_lightning.spaces.NasBench201"),
    (("resume=searched", "strategy=gdas"), "expected strategy.sampler._target_="),
    (("resume=searched", "strategy.lr=0.5"), "expected strategy.lr=0.025"),
    (("resume=searched", "supernet.channels=8"), "expected supernet.channels=4"),
    (("resume=searched", "dataset.batch_size=4"), "expected dataset.batch_size=8"),
    (("resume=searched", "seed=1"), "expected seed=0"),
    (("resume=searched", "trainer.max_epochs=9"), "expected trainer.max_epochs=1"),
    (("resume=searched", "trainer.max_epoch=9"), "Did you mean 'max_epochs'?"),
    (("-m", "resume=searched"), "expected the folder of a sweep, or resume= without -m, got 'searched'"),
    (("run=searched", *SEARCH), "expected a new folder, or resume=FOLDER"),
    (("run=searched/genotype.json/below", *SEARCH), "expected a folder that can be written"),
    ((f"run={'long' * 99}", *SEARCH), "expected a folder that can be written"),
]


@pytest.mark.parametrize(("arguments", "message"), RESUMED)
def test_an_earlier_run_stays_as_it_is(refused, runs, arguments, message):
    assert message in refused("search", *arguments)


def test_a_run_of_the_other_script(refused, runs):
    assert "expected the folder of a run of train.py" in refused("train", "resume=searched")
    assert "expected network.channels=4" in refused("train", "resume=trained", "network.channels=8")


def test_an_option_that_came_after_a_run_began_is_no_hindrance(refused, command, runs):
    path = runs / "trained" / ".hydra" / "config.yaml"
    text = path.read_text()
    path.write_text(text.replace("  decay_norms: true\n", ""))
    assert path.read_text() != text
    message = refused("train", "resume=trained", "retrain.decay_norms=false")
    assert "expected retrain.decay_norms=True, as the run that goes on has it, got False" in message
    assert command("train", "resume=trained").code == 0


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


USERS = {
    "no.such.module.Class": "can be imported",
    "nas_lightning.strategies.Dart": "can be imported",
    "Darts": "can be imported",
}


@pytest.mark.parametrize("target", USERS)
def test_a_users_yaml_that_names_nothing(refused, tmp_path, target):
    (tmp_path / "mine" / "strategy").mkdir(parents=True)
    (tmp_path / "mine" / "strategy" / "own.yaml").write_text(f"# Mine\n_target_: {target}\n")
    assert USERS[target] in refused("search", *SEARCH, "strategy=own", "--config-dir", "mine")


@pytest.mark.parametrize(
    "text",
    ["_target_: [", "!!python/object/apply:os.getcwd []", "\0", "[" * 5000],
    ids=lambda text: text[:12],
)
def test_a_users_yaml_that_is_none(refused, tmp_path, text):
    (tmp_path / "mine" / "strategy").mkdir(parents=True)
    (tmp_path / "mine" / "strategy" / "own.yaml").write_text(text)
    refused("search", *SEARCH, "strategy=own", "--config-dir", "mine")
    assert "did you mean 'own'?" in refused("search", *SEARCH, "strategy=owm", "--config-dir", "mine")


SWEEPS = [
    (("strategy=darts,dart",), "did you mean 'darts'?"),
    (("strategy=darts,random", "strategy.arch_lr=2"), "with strategy=random"),
    (("seed=1,2", "strategy.lrr=1,2"), "did you mean 'strategy.lr'?"),
]


@pytest.mark.parametrize(("arguments", "message"), SWEEPS)
def test_a_sweep_is_checked_before_its_first_job(refused, tmp_path, arguments, message):
    assert message in refused("search", "-m", *SEARCH, *arguments, "run=sweep")
    assert not (tmp_path / "sweep").exists()


def test_a_launcher_that_is_not_installed(refused):
    pytest.importorskip("hydra")
    try:
        import hydra_plugins.hydra_submitit_launcher  # noqa: F401
    except ImportError:
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
    assert "expected a new folder" in refused(name, *right, "run=a")


def test_what_was_in_a_folder_before_stays(refused, runs):
    """A user's own files, and the record of a run that is gone on with."""
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
    """So that the refusals above are for what they are about."""
    assert NasBench201().notation(NasBench201().parse(CELL)) == CELL


def test_a_reader_that_stops_early_gets_no_traceback():
    """As `--help | head` does: the pipe is closed before the help is written."""
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
