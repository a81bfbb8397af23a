"""Tasks against closed forms, and from search to a trained network on data with a known answer."""

import math
from functools import partial

import pytest
import pytorch_lightning as pl
import torch
from sklearn.metrics import f1_score, jaccard_score, r2_score, roc_auc_score
from torch.nn import functional as F
from torchmetrics import MeanAbsoluteError, PearsonCorrCoef

from nas_lightning.data import ExternalData, Fake, SearchData
from nas_lightning.errors import InputError
from nas_lightning.jobs import Parts, search, train
from nas_lightning.metrics import Vkdnw
from nas_lightning.models.file import describe, load
from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.strategies import Darts, Evolution, MetricSearch, Nasi, RandomCandidates, RandomWS
from nas_lightning.strategies.nesbs.strategy import Nesbs
from nas_lightning.tasks import Binary, CustomTask, MultiClass, MultiLabel, Regression, Segmentation, task_of
from nas_lightning.training.retrain import Retrain
from tests.own_tasks import MADE, OUTPUTS, Made

TASKS = {
    "regression": Regression(),
    "multi_label": MultiLabel(),
    "binary": Binary(score="auroc"),
    "segmentation": Segmentation(),
}
CONSTANT = {"regression": 0.0, "multi_label": 2 / 3, "binary": 0.5, "segmentation": 0.3}
"""The score of the best answer that looks at no image."""
pytestmark = [pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")]


def quiet(epochs, **options):
    off = dict.fromkeys(
        ("enable_progress_bar", "enable_model_summary", "enable_checkpointing", "logger"), False
    )
    return pl.Trainer(max_epochs=epochs, accelerator="cpu", **off, **options)


@pytest.mark.parametrize("name", TASKS)
def test_from_search_to_prediction(name, tmp_path):
    """Better than any constant, from search to the file of the network."""
    torch.manual_seed(0)
    task, space = TASKS[name], NasBench201()
    data = SearchData(Made(name), task=task)
    assert data.num_classes == OUTPUTS[name]
    sizes = {"channels": 4, "cells": 1}
    parts = Parts(space, data, tmp_path / "found", supernet_sizes=sizes, network_sizes=sizes)
    facts = search(partial(Darts, lr=0.1), parts, quiet(2))
    assert {"train_loss", "valid_loss", f"valid_{task.score}"} <= set(facts.metrics)
    assert "valid_accuracy" not in facts.metrics or "accuracy" in task.metrics(OUTPUTS[name])
    genotype = space.parse("|nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|none~1|skip_connect~2|")
    recipe = partial(Retrain, drop_path=0.0, lr=0.1, weight_decay=0.0)
    parts = Parts(
        space, ExternalData(Made(name), task=task), tmp_path / "done", network_sizes=sizes, recipe=recipe
    )
    facts = train(genotype, parts, quiet(8))
    assert facts.metrics[f"test_{task.score}"] > CONSTANT[name] + 0.15, facts.metrics
    assert "test_error" not in facts.metrics
    assert describe(tmp_path / "done").task == name
    x, y = next(iter(Made(name).test_dataloader()))
    said = load(tmp_path / "done")(x)
    assert said.shape == ((16, 3, 16, 16) if name == "segmentation" else (16, OUTPUTS[name]))
    assert task.judge(said.detach(), task.targets(y)) > CONSTANT[name] + 0.1


SHORT = {"population": 2, "sample": 1, "evaluation": "training", "epochs": 1}
FAMILIES = {
    "selection": lambda space, net, data: RandomWS(
        space, net(), data, selection=RandomCandidates(candidates=2, valid_batches=1)
    ),
    "nasi": lambda space, net, data: Nasi(space, net(), data, nu_samples=1),
    "short trainings": lambda space, net, data: Evolution(
        space, net, data, population=2, sample=1, evaluation="training", epochs=1
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", TASKS)
def test_every_family_searches_by_the_task(name, family):
    torch.manual_seed(0)
    space, data = NasBench201(), SearchData(Made(name, 64), task=TASKS[name])
    sizes = {"channels": 2, "cells": 1}
    parts = Parts(space, data, supernet_sizes=sizes, network_sizes=sizes)
    strategy = FAMILIES[family](space, parts.network if family == "short trainings" else parts.supernet, data)
    trainer = quiet(1, limit_train_batches=2)
    trainer.fit(strategy, data)
    space.check(strategy.derive()[0])
    if family != "nasi":
        assert f"valid_{TASKS[name].score}" in trainer.callback_metrics


def test_darts_cells_decode_too():
    space = DartsSpace(nodes=2)
    genotype = space.sample(torch.Generator().manual_seed(0))
    network = Segmentation().fit(
        space.network(genotype, in_channels=1, num_classes=3, channels=4, cells=5, stem_multiplier=1)
    )
    assert network(torch.zeros(2, 1, 20, 24)).shape == (2, 3, 20, 24)
    assert network.auxiliary is None
    assert len(network.head.ends) == 3  # a map of each resolution
    assert task_of(network).name == "segmentation"


def test_losses_and_scores_equal_those_of_scikit_learn():
    random = torch.Generator().manual_seed(0)
    z, y = torch.randn(40, 3, generator=random), torch.randn(40, 3, generator=random)
    assert float(Regression().loss(z, y)) == pytest.approx(float(((z - y) ** 2).mean()))
    assert Regression().judge(z, y) == pytest.approx(r2_score(y, z), abs=1e-5)
    said = (y > 0).float()
    assert MultiLabel().judge(z, said) == pytest.approx(f1_score(said, z > 0, average="micro"), abs=1e-6)
    p = z.sigmoid()
    loss = -(said * p.log() + (1 - said) * (1 - p).log()).mean()
    assert float(MultiLabel().loss(z, said)) == pytest.approx(float(loss), rel=1e-5)
    one, label = z[:, :1], said[:, :1]
    assert Binary(score="auroc").judge(one, label) == pytest.approx(
        roc_auc_score(label[:, 0], one[:, 0]), abs=0.02
    )
    weighted = -(3 * label * p[:, :1].log() + (1 - label) * (1 - p[:, :1]).log()).mean()
    assert float(Binary(positive_weight=3.0).loss(one, label)) == pytest.approx(float(weighted), rel=1e-5)
    maps = torch.randn(2, 3, 8, 8, generator=random)
    masks = torch.randint(3, (2, 8, 8), generator=random)
    assert Segmentation().judge(maps, masks) == pytest.approx(
        jaccard_score(masks.flatten(), maps.argmax(1).flatten(), average="macro"), abs=1e-6
    )
    ignored = masks.masked_fill(masks == 1, 255)
    per_pixel = F.cross_entropy(maps, masks, reduction="none")[masks != 1]
    assert float(Segmentation(ignore=255).loss(maps, ignored)) == pytest.approx(
        float(per_pixel.mean()), rel=1e-5
    )
    logits, classes = torch.randn(6, 2, generator=random), torch.arange(6) % 2
    each = F.cross_entropy(logits, classes, reduction="none")
    share = torch.where(classes == 1, 9.0, 1.0)
    expected = float((each * share).sum() / share.sum())
    assert float(MultiClass(class_weights=(1.0, 9.0)).loss(logits, classes)) == pytest.approx(
        expected, rel=1e-6
    )


def test_custom_task(tmp_path):
    metrics = {"pearson": PearsonCorrCoef(), "mae": MeanAbsoluteError()}
    flat = torch.flatten
    task = CustomTask(
        loss=lambda z, y: F.huber_loss(flat(z), y),
        metrics=metrics,
        score="pearson",
        targets=lambda y: y.float(),
    )
    task.predictions = lambda z: z[:, 0]
    data, space, sizes = (
        SearchData(Made("regression", 64), task=task),
        NasBench201(),
        {"channels": 2, "cells": 1},
    )
    parts = Parts(space, data, tmp_path, supernet_sizes=sizes, network_sizes=sizes)
    facts = search(Darts, parts, quiet(1))
    assert {"valid_pearson", "valid_mae"} <= set(facts.metrics)


def own_task(score):
    return CustomTask(loss=F.mse_loss, metrics={"mae": MeanAbsoluteError()}, score=score)


def test_invalid_tasks_are_refused_in_one_line():
    for make, message in [
        (
            lambda: CustomTask(loss=F.mse_loss, metrics={"mae": MeanAbsoluteError()}, score="mae"),
            "higher is better",
        ),
        (
            lambda: CustomTask(loss=F.mse_loss, metrics={"mae": MeanAbsoluteError()}, score="mea"),
            "did you mean 'mae'",
        ),
        (
            lambda: MultiLabel().targets(torch.tensor([[0.5, 1.0]])),
            "Each label must be 0 or 1, got 'values from 0.5",
        ),
        (lambda: Binary().targets(torch.tensor([0, 2])), "for 2 classes, got 'labels from 0 to 2'"),
        (lambda: Regression().targets(torch.tensor([math.nan])), "Targets must be finite"),
        (
            lambda: Regression().targets(torch.zeros(2, 3, 3)),
            r"numbers of shape \(b,\) or \(b, outputs\), got \(2, 3, 3\)",
        ),
        (
            lambda: Segmentation().targets(torch.zeros(2, 3)),
            r"Masks must be class labels of shape \(b, h, w\), got",
        ),
        (
            lambda: Segmentation().fit(torch.nn.Linear(2, 2)),
            "needs a space of cells, whose feature maps it decodes",
        ),
        (
            lambda: MultiClass(class_weights=(1.0,)).loss(torch.zeros(2, 3), torch.zeros(2).long()),
            "3 class weights",
        ),
        (
            lambda: SearchData(Made("regression"), num_classes=2, task=Regression()).setup(),
            r"shape \(b, 2\) for 2 outputs",
        ),
        (lambda: SearchData(Made("regression")).setup(), "Class labels must be integers"),
    ]:
        with pytest.raises(InputError, match=message):
            make()


def test_strategies_of_classes_refuse_other_tasks(refusal):
    space, data, sizes = NasBench201(), SearchData(Made("regression"), task=Regression()), {"channels": 2}
    parts = Parts(space, data, supernet_sizes=sizes, network_sizes=sizes)
    metrics = MetricSearch(space, parts.network, data, metrics={"vkdnw": Vkdnw()}, pool_size=2)
    trainer = quiet(1, limit_train_batches=1)
    for message in (refusal(Nesbs, space, parts.supernet(), data), refusal(trainer.fit, metrics, data)):
        assert "This needs task=multi_class, which" in message
        assert "got 'regression'" in message


def test_classification_equals_cross_entropy():
    """Weights and smoothing that say nothing change no bit."""
    z, y = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 4
    assert torch.equal(MultiClass().loss(z, y), F.cross_entropy(z, y))
    assert torch.equal(MultiClass().loss(z, y, 0.1), F.cross_entropy(z, y, label_smoothing=0.1))
    parts = Parts(NasBench201(), SearchData(Fake()), task=MultiClass())
    assert parts.supernet.func == parts.space.supernet
    assert set(MADE) == set(TASKS)


def test_masks_of_brightnesses_are_no_classes():
    masks = torch.tensor([[[0, 255], [255, 0]]])
    with pytest.raises(InputError, match=r"divide masks by 255, or set task.ignore=255 .*, got \[0, 255\]"):
        Segmentation().count(masks)
    assert Segmentation(ignore=255).count(masks + masks.eq(0)) == 2
    assert Segmentation().count(torch.arange(256).view(1, 16, 16)) == 256
