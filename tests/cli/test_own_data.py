"""`dataset=mine`: a custom LightningDataModule with nothing but Lightning's interface."""

import json
import re

import pytest

from tests.cli.conftest import TINY_NETWORK, TINY_SEARCH
from tests.cli.test_printed_commands import printed
from tests.cli.test_printed_commands import words as printed_words

SIZES = [word for word in TINY_SEARCH if not word.startswith("dataset")]
STRATEGIES = {
    "darts": (),
    "random_ws": ("strategy.selection.candidates=2",),
    "nesbs": ("strategy.rounds=1", "strategy.svgd_steps=2"),
    "nasi": ("strategy.nu_samples=1",),
    "hnas": ("strategy.pool_size=4", "strategy.images=4", "strategy.epochs=1"),
    "evolution": ("strategy.population=2", "strategy.sample=1", "strategy.epochs=1"),
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:Your `IterableDataset` has `__len__` defined"),
]


@pytest.fixture
def mine(command, tmp_path):
    """A config folder with a plain data module, and with one wrapped in `ExternalData`."""
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    plain = "# Mine\n_target_: tests.own_data.OnlyLightning\nbatch_size: 8\n"
    (tmp_path / "conf" / "dataset" / "mine.yaml").write_text(plain, encoding="utf-8")
    told = [
        *("# Mine, by name", "_target_: nas_lightning.data.ExternalData", "num_classes: 5", "seed: ${seed}"),
        *("name: scans", "data: {_target_: tests.own_data.OnTheWay}"),
    ]
    (tmp_path / "conf" / "dataset" / "told.yaml").write_text("\n".join(told), encoding="utf-8")

    def run(script, dataset, *words):
        return command(script, "--config-dir", "conf", f"dataset={dataset}", "trainer.max_epochs=1", *words)

    return run


def metrics_of(folder):
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))["metrics"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_searches_take_it(strategy, mine, tmp_path):
    words = (*SIZES, f"strategy={strategy}", *STRATEGIES[strategy], "callbacks.history.figures=false")
    outcome = mine("search", "mine", *words, "run=found")
    assert outcome.code == 0, outcome.err
    assert "on onlylightning" in outcome.out
    assert (tmp_path / "found" / "genotype.json").is_file()


def test_a_training_takes_it_and_an_ensemble(mine, tmp_path):
    search = mine("search", "told", *SIZES, "strategy=darts", "run=found", "callbacks.history.figures=false")
    assert search.code == 0, search.err
    words = ("genotype=file", "genotype.path=found", *TINY_NETWORK)
    for name, more in {"alone": (), "together": ("ensemble=deep", "ensemble.count=2")}.items():
        outcome = mine("train", "told", *words, *more, f"run={name}")
        assert outcome.code == 0, outcome.err
        assert {"test_accuracy", "test_loss"} <= set(metrics_of(tmp_path / name))


def test_a_task_is_followed_from_search_to_report(command, tmp_path):
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    made = "# Made up\n_target_: tests.own_tasks.Made\ntask: ???\n"
    (tmp_path / "conf" / "dataset" / "made.yaml").write_text(made, encoding="utf-8")
    words = ("--config-dir", "conf", "dataset=made", "dataset.task=segmentation", "task=segmentation")
    short = ("trainer.max_epochs=1", "task.class_weights=[1,2,2]")
    figures = "callbacks.history.figures=false"
    outcome = command("search", *words, *short, *SIZES, "strategy=darts", "run=found", figures)
    assert outcome.code == 0, outcome.err
    assert "valid_iou" in metrics_of(tmp_path / "found")
    train = (*words, *short, "genotype=file", "genotype.path=found", *TINY_NETWORK)
    outcome = command("train", *train, "run=trained")
    assert outcome.code == 0, outcome.err
    assert {"test_iou", "valid_iou", "test_loss"} <= set(metrics_of(tmp_path / "trained"))
    assert "iou" in (tmp_path / "trained" / "report.html").read_text(encoding="utf-8")
    outcome = command("train", *train, "ensemble=deep", "ensemble.count=2", "run=together")
    assert outcome.code == 0, outcome.err
    assert {"test_iou", "test_accuracy", "test_loss"} == set(metrics_of(tmp_path / "together"))
    assert "Attack it" not in outcome.out  # which wants classes
    assert "iou" in (tmp_path / "together" / "report.html").read_text(encoding="utf-8")
    outcome = command(
        "train",
        *words,
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
    assert "expected your own data" in outcome.err


OWN_TASK = """# Mine
_target_: nas_lightning.tasks.CustomTask
loss: {_target_: torch.nn.HuberLoss, delta: 0.5}
metrics:
  _target_: torchmetrics.MetricCollection
  metrics:
    r2: {_target_: torchmetrics.R2Score}
    mae: {_target_: torchmetrics.MeanAbsoluteError}
score: r2
"""


def test_a_task_of_ones_own_is_a_yaml(command, tmp_path):
    """The command that a search prints trains with the same task."""
    for group, name, text in (
        ("dataset", "made", "# Made up\n_target_: tests.own_tasks.Made\ntask: regression\n"),
        ("task", "own", OWN_TASK),
    ):
        (tmp_path / "conf" / group).mkdir(parents=True)
        (tmp_path / "conf" / group / f"{name}.yaml").write_text(text, encoding="utf-8")
    words = ("--config-dir", "conf", "dataset=made", "task=own", "task.loss.delta=0.2")
    short = ("trainer.max_epochs=1", "callbacks.history.figures=false")
    outcome = command("search", *words, *short, *SIZES, "strategy=darts", "run=found")
    assert outcome.code == 0, outcome.err
    assert {"valid_r2", "valid_mae", "valid_loss"} <= set(metrics_of(tmp_path / "found"))
    assert re.search(r"epoch 1/1 .* valid \d\.\d+( mae \S+| r2 \S+){2}$", outcome.out, re.M), outcome.out
    assert re.search(r"^train_loss .*, valid_r2 -?\d", outcome.out, re.M)
    assert ">R2<" in re.sub(r"\s", "", (tmp_path / "found" / "report.html").read_text(encoding="utf-8"))
    further = printed_words(printed(outcome.out, "Train it"), "nas-train")
    assert {"task=own", "task.loss.delta=0.2"} <= set(further)
    outcome = command("train", *further, *TINY_NETWORK, "trainer.max_epochs=1", "run=trained")
    assert outcome.code == 0, outcome.err
    assert {"test_r2", "test_mae"} <= set(metrics_of(tmp_path / "trained"))
    finetune = printed_words(printed(outcome.out, "Train it further on your own images"), "nas-train")
    again = [word for word in finetune if word != "dataset=…"]
    outcome = command("train", *again, "dataset=made", "trainer.max_epochs=1", "run=tuned")
    assert outcome.code == 0, outcome.err
    outcome = command(
        "search",
        *words,
        *SIZES,
        "strategy=metric_search",
        "strategy.pool_size=2",
        "strategy.pool_per_round=1",
        "+metric@strategy.metrics.naswot=naswot",
        "trainer.max_epochs=1",
        "run=scored",
    )
    assert outcome.code == 0, outcome.err


def test_what_does_not_fit_is_one_line(mine):
    outcome = mine("search", "mine", *SIZES, "strategy=darts", "search_data.augment_valid=true")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert "expected false for external data" in outcome.err
    outcome = mine("search", "mine", *SIZES, "strategy=darts", "+search_data.batch_size=4")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert "expected data whose batch_size can be set" in outcome.err
    outcome = mine("search", "mine", *SIZES, "dataset.color=red")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
