"""`dataset=mine`: a custom LightningDataModule with nothing but Lightning's interface."""

import json
import re

import pytest

from tests.cli.conftest import TINY_NETWORK, TINY_SEARCH
from tests.cli.test_printed_commands import arguments_of, printed

SIZES = [override for override in TINY_SEARCH if not override.startswith("dataset")]
STRATEGIES = {
    "darts": (),
    "random_ws": ("strategy.selection.candidates=2",),
    "nesbs": ("strategy.rounds=1", "strategy.svgd_steps=2"),
    "nasi": ("strategy.nu_samples=1",),
    "hnas": ("strategy.pool_size=4", "strategy.images=4", "strategy.epochs=1"),
    "evolution": ("strategy.population=2", "strategy.sample=1", "strategy.epochs=1"),
}
FAST = ("nesbs", "hnas", "evolution")  # `darts` and `random_ws` search in other tests
pytestmark = [
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:Your `IterableDataset` has `__len__` defined"),
]


@pytest.fixture
def with_data(command, tmp_path):
    """A config folder with a plain data module, and with one wrapped in `ExternalData`."""
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    plain = "# Mine\n_target_: tests.own_data.OnlyLightning\nbatch_size: 8\n"
    (tmp_path / "conf" / "dataset" / "mine.yaml").write_text(plain, encoding="utf-8")
    wrapped = [
        *("# Mine, by name", "_target_: nas_lightning.data.ExternalData", "num_classes: 5", "seed: ${seed}"),
        *("name: scans", "data: {_target_: tests.own_data.OnTheWay}"),
    ]
    (tmp_path / "conf" / "dataset" / "wrapped.yaml").write_text("\n".join(wrapped), encoding="utf-8")

    def run(script, dataset, *argv):
        return command(script, "--config-dir", "conf", f"dataset={dataset}", "trainer.max_epochs=1", *argv)

    return run


def metrics_of(folder):
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))["metrics"]


@pytest.mark.parametrize(
    "strategy",
    [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in STRATEGIES.keys() - {*FAST})],
)
def test_search(strategy, with_data, tmp_path):
    argv = (*SIZES, f"strategy={strategy}", *STRATEGIES[strategy], "callbacks.history.figures=false")
    outcome = with_data("search", "mine", *argv, "run=found")
    assert outcome.code == 0, outcome.err
    assert "on onlylightning" in outcome.out
    assert (tmp_path / "found" / "genotype.json").is_file()


def test_train_and_ensemble(with_data, tmp_path):
    search = with_data(
        "search", "wrapped", *SIZES, "strategy=darts", "run=found", "callbacks.history.figures=false"
    )
    assert search.code == 0, search.err
    argv = ("genotype=file", "genotype.path=found", *TINY_NETWORK)
    for name, more in {"alone": (), "together": ("ensemble=deep", "ensemble.count=2")}.items():
        outcome = with_data("train", "wrapped", *argv, *more, f"run={name}")
        assert outcome.code == 0, outcome.err
        assert {"test_accuracy", "test_loss"} <= set(metrics_of(tmp_path / name))


def test_segmentation_from_search_to_report(command, tmp_path):
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    made = "# Made up\n_target_: tests.own_tasks.Made\ntask: ???\n"
    (tmp_path / "conf" / "dataset" / "made.yaml").write_text(made, encoding="utf-8")
    argv = ("--config-dir", "conf", "dataset=made", "dataset.task=segmentation", "task=segmentation")
    short = ("trainer.max_epochs=1", "task.class_weights=[1,2,2]")
    figures = "callbacks.history.figures=false"
    outcome = command("search", *argv, *short, *SIZES, "strategy=darts", "run=found", figures)
    assert outcome.code == 0, outcome.err
    assert "valid_iou" in metrics_of(tmp_path / "found")
    train = (*argv, *short, "genotype=file", "genotype.path=found", *TINY_NETWORK)
    outcome = command("train", *train, "run=trained")
    assert outcome.code == 0, outcome.err
    assert {"test_iou", "valid_iou", "test_loss"} <= set(metrics_of(tmp_path / "trained"))
    assert "iou" in (tmp_path / "trained" / "report.html").read_text(encoding="utf-8")
    outcome = command("train", *train, "ensemble=deep", "ensemble.count=2", "run=together")
    assert outcome.code == 0, outcome.err
    assert {"test_iou", "test_accuracy", "test_loss"} == set(metrics_of(tmp_path / "together"))
    assert "Attack it" not in outcome.out  # attacks need classes
    assert "iou" in (tmp_path / "together" / "report.html").read_text(encoding="utf-8")
    outcome = command(
        "train",
        *argv,
        *short,
        *TINY_NETWORK,
        "ensemble=nes_rs",
        "ensemble.space=nasbench201",
        "run=selected",
    )
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert "members are selected by probabilities of, got 'segmentation'" in outcome.err
    outcome = command("search", *SIZES, "dataset=fake", "task=regression", "strategy=darts")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert "This task needs your own data (dataset=mine), since" in outcome.err


CUSTOM_TASK = """# Mine
_target_: nas_lightning.tasks.CustomTask
loss: {_target_: torch.nn.HuberLoss, delta: 0.5}
metrics:
  _target_: torchmetrics.MetricCollection
  metrics:
    r2: {_target_: torchmetrics.R2Score}
    mae: {_target_: torchmetrics.MeanAbsoluteError}
score: r2
"""


def test_custom_task(command, tmp_path):
    """The command that a search prints trains with the same task."""
    for group, name, text in (
        ("dataset", "made", "# Made up\n_target_: tests.own_tasks.Made\ntask: regression\n"),
        ("task", "custom", CUSTOM_TASK),
    ):
        (tmp_path / "conf" / group).mkdir(parents=True)
        (tmp_path / "conf" / group / f"{name}.yaml").write_text(text, encoding="utf-8")
    argv = ("--config-dir", "conf", "dataset=made", "task=custom", "task.loss.delta=0.2")
    short = ("trainer.max_epochs=1", "callbacks.history.figures=false")
    outcome = command("search", *argv, *short, *SIZES, "strategy=darts", "run=found")
    assert outcome.code == 0, outcome.err
    assert {"valid_r2", "valid_mae", "valid_loss"} <= set(metrics_of(tmp_path / "found"))
    assert re.search(r"epoch 1/1 .* valid \d\.\d+( mae \S+| r2 \S+){2}$", outcome.out, re.M), outcome.out
    assert re.search(r"^train_loss .*, valid_r2 -?\d", outcome.out, re.M)
    assert ">R2<" in re.sub(r"\s", "", (tmp_path / "found" / "report.html").read_text(encoding="utf-8"))
    further = arguments_of(printed(outcome.out, "Train it"), "nas-train")
    assert {"task=custom", "task.loss.delta=0.2"} <= set(further)
    outcome = command("train", *further, *TINY_NETWORK, "trainer.max_epochs=1", "run=trained")
    assert outcome.code == 0, outcome.err
    assert {"test_r2", "test_mae"} <= set(metrics_of(tmp_path / "trained"))
    finetune = arguments_of(printed(outcome.out, "Train it further on your own images"), "nas-train")
    again = [argument for argument in finetune if argument != "dataset=…"]
    outcome = command("train", *again, "dataset=made", "trainer.max_epochs=1", "run=tuned")
    assert outcome.code == 0, outcome.err


def test_invalid_settings(with_data):
    outcome = with_data("search", "mine", *SIZES, "strategy=darts", "search_data.augment_valid=true")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert "`augment_valid` must be false for external data" in outcome.err
    outcome = with_data("search", "mine", *SIZES, "strategy=darts", "+search_data.batch_size=4")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert "`batch_size` can be set for data sets, or for a data module with that attribute" in outcome.err
    outcome = with_data("search", "mine", *SIZES, "dataset.color=red")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
