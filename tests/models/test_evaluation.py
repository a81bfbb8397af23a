"""Numbers of an ensemble against plain loops, scikit-learn, and cases solved by hand."""

import copy
import pickle
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from sklearn.metrics import brier_score_loss, f1_score, log_loss, r2_score
from torch import nn

from nas_lightning.data import ExternalData
from nas_lightning.errors import InputError
from nas_lightning.models.ensemble import Ensemble
from nas_lightning.models.evaluation import (
    BINS,
    PASSES,
    Evaluation,
    agreement,
    brier_score,
    calibration_error,
    disagreement,
    ensemble_error,
    errors,
    evaluate,
    evaluate_task,
    member_errors,
    oracle_error,
    prediction_map,
)
from nas_lightning.models.file import description
from nas_lightning.spaces import NasBench201
from nas_lightning.tasks import Binary, CustomTask, MultiLabel, Regression, Segmentation, link_of
from tests.own_tasks import MADE, OUTPUTS, Made


@pytest.fixture
def predictions(generator):
    """Three members, 200 images, four classes."""
    probabilities = torch.randn(3, 200, 4, generator=generator, dtype=torch.float64).mul(2).softmax(dim=-1)
    return probabilities, torch.randint(4, (200,), generator=generator)


def test_errors_and_disagreement_against_loops(predictions):
    probabilities, labels = predictions
    p, y = probabilities.numpy(), labels.numpy()
    said = p.argmax(axis=2)
    alone = [np.mean([said[m, i] != y[i] for i in range(200)]) for m in range(3)]
    together = np.mean([p[:, i].sum(axis=0).argmax() != y[i] for i in range(200)])
    none = np.mean([all(said[m, i] != y[i] for m in range(3)) for i in range(200)])
    pairs = [np.mean([said[a, i] != said[b, i] for i in range(200)]) for a, b in combinations(range(3), 2)]
    assert member_errors(probabilities, labels).tolist() == pytest.approx(alone)
    assert float(ensemble_error(probabilities, labels)) == pytest.approx(together)
    assert float(oracle_error(probabilities, labels)) == pytest.approx(none)
    assert float(disagreement(probabilities)) == pytest.approx(np.mean(pairs))
    numbers = Evaluation(probabilities, labels).numbers()
    assert numbers["ate"] == pytest.approx(np.mean(alone))
    assert numbers["best_member_error"] == pytest.approx(min(alone))


def test_scores_of_the_mean_against_scikit_learn(predictions):
    probabilities, labels = predictions
    mean = probabilities.mean(dim=0).numpy()
    found = Evaluation(probabilities, labels).ensemble
    assert found.nll == pytest.approx(log_loss(labels, mean))
    per_class = [brier_score_loss(labels.numpy() == c, mean[:, c]) for c in range(4)]
    assert found.brier == pytest.approx(sum(per_class))
    confidence, right = mean.max(axis=1), mean.argmax(axis=1) == labels.numpy()
    expected = 0.0
    for low in np.linspace(0, 1, BINS + 1)[:-1]:
        inside = (confidence > low) & (confidence <= low + 1 / BINS)
        if inside.any():
            expected += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert found.calibration_error == pytest.approx(expected, abs=1e-6)


def test_a_calibrated_and_an_overconfident_prediction():
    calibrated = torch.tensor([[[0.75, 0.25]] * 4])
    labels = torch.tensor([0, 0, 0, 1])
    assert float(calibration_error(calibrated, labels)) == pytest.approx(0.0, abs=1e-6)
    sure = torch.tensor([[[1.0, 0.0]] * 4])
    assert float(calibration_error(sure, labels)) == pytest.approx(0.25)
    assert float(brier_score(sure, labels)) == pytest.approx(2 / 4)  # one of four is off by (1, −1)


def test_a_single_member_agrees_with_itself(predictions):
    probabilities, labels = predictions
    assert float(disagreement(probabilities[:1])) == 0
    alone = Evaluation(probabilities[:1], labels)
    assert alone.members == [alone.ensemble]


def test_evaluate_reads_every_batch_in_eval_mode(refusal):
    members = [nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3)) for _ in range(2)]
    ensemble = Ensemble(members)
    batches = [(torch.randn(6, 4), torch.randint(3, (6,))), (torch.randn(2, 4), torch.randint(3, (2,)))]
    found = evaluate(ensemble, batches)
    assert ensemble.training
    x = torch.cat([x for x, _ in batches])
    expected = torch.stack([member.eval()(x).softmax(dim=1) for member in members])
    torch.testing.assert_close(found.probabilities, expected.double())
    assert torch.equal(found.labels, torch.cat([y for _, y in batches]))
    assert "at least one batch" in refusal(evaluate, ensemble, [])


# Ensembles of other tasks than classification


TASKS = {
    "regression": Regression(),
    "multi_label": MultiLabel(),
    "binary": Binary(),
    "segmentation": Segmentation(),
}
SIZES = {"channels": 4, "cells": 1}


@pytest.fixture(params=TASKS)
def trained(request, generator):
    """Two networks of a task with running statistics of their own, what they are, and the task."""
    task, space = TASKS[request.param], NasBench201()
    data = ExternalData(Made(task.name), task=task)
    members, known = [], []
    for _ in range(2):
        genotype = space.sample(generator)
        network = task.fit(space.network(genotype, in_channels=1, num_classes=data.num_classes, **SIZES))
        network(MADE[task.name](16)[0])
        about = description(space, genotype, SIZES, data.image, data.classes, data.mean, data.std)
        members.append(network.double().eval())
        known.append(replace(about, task=task.name, dense=task.dense))
    return task, members, known


def test_predictions_are_means(trained):
    task, members, _ = trained
    x = MADE[task.name](8)[0].double()
    ensemble = Ensemble(members).eval()
    expected = sum(task.predictions(member(x)) for member in members) / 2
    torch.testing.assert_close(ensemble.predict_proba(x), expected)
    torch.testing.assert_close(task.predictions(ensemble(x)), expected)
    torch.testing.assert_close(ensemble.member_probabilities(x).mean(dim=0), expected)
    again = pickle.loads(pickle.dumps(copy.deepcopy(ensemble)))
    torch.testing.assert_close(again.predict_proba(x), expected)


def test_files_know_the_task(trained, tmp_path):
    task, members, known = trained
    x = MADE[task.name](4)[0]
    ensemble = Ensemble([member.float() for member in members], known).eval()
    ensemble.save(tmp_path)
    loaded = Ensemble.load(tmp_path)
    assert loaded.task_name == task.name
    torch.testing.assert_close(loaded.predict_proba(x), ensemble.predict_proba(x))


def test_scores_are_those_of_the_whole_part():
    """In batches of unequal size, against scikit-learn on all images at once."""
    torch.manual_seed(0)
    x = torch.randn(20, 4, dtype=torch.float64)
    members = [torch.nn.Linear(4, 2).double() for _ in range(3)]
    y = torch.randn(20, 2, dtype=torch.float64)
    for member in members:
        member.task = Regression()
    ensemble = Ensemble(members)
    scores = evaluate_task(ensemble, [(x[:13], y[:13]), (x[13:], y[13:])], Regression())
    each = torch.stack([member(x) for member in members]).detach()
    assert scores.together["r2"] == pytest.approx(r2_score(y, each.mean(0)), abs=1e-6)
    assert scores.together["loss"] == pytest.approx(float((each.mean(0) - y).square().mean()))
    assert [alone["r2"] for alone in scores.members] == pytest.approx(
        [r2_score(y, z) for z in each], abs=1e-6
    )
    said = (y > 0).double()
    for member in members:
        member.task = MultiLabel()
    scores = evaluate_task(Ensemble(members), [(x[:13], said[:13]), (x[13:], said[13:])], MultiLabel())
    mean = each.sigmoid().mean(0)
    assert scores.together["f1"] == pytest.approx(f1_score(said, mean > 0.5, average="micro"), abs=1e-6)
    assert ensemble.training
    table = scores.table("squares")
    assert [row[0] for row in table.rows] == ["member 1", "member 2", "member 3", "ensemble"]


def test_members_of_several_tasks_raise(generator):
    space, known = NasBench201(), []
    genotype = space.sample(generator)
    networks = [space.network(genotype, in_channels=1, num_classes=2, **SIZES) for _ in range(2)]
    about = description(space, genotype, SIZES, (1, 8, 8), ("a", "b"), (0.0,), (1.0,))
    known = [replace(about, task="multi_label"), about]
    with pytest.raises(InputError, match="All members must have the same task: multi_label"):
        Ensemble(networks, known)


def test_unknown_task_predicts_its_outputs():
    z = torch.randn(2, 3, 4)
    assert torch.equal(link_of("somebody's").combine(z), z.mean(0))
    assert link_of(CustomTask.name).predict(z) is z
    assert set(MADE) == set(OUTPUTS) == set(TASKS)


# Figures


# Two members, four images of class 0: both are right, one is and wins, one is and loses, none is
PROBABILITIES = torch.tensor(
    [[[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.2, 0.8]], [[0.8, 0.2], [0.4, 0.6], [0.1, 0.9], [0.3, 0.7]]]
)
EVALUATION = Evaluation(PROBABILITIES, torch.zeros(4, dtype=torch.long))


def test_bars_count_images_by_how_many_members_are_right():
    bars = [bar.get_height() for bar in agreement(EVALUATION).axes[0].patches]
    assert bars == [0, 1, 1, 1, 1, 0]  # where the ensemble is right, for 0, 1, 2 members; where it is wrong


def test_errors_of_members_and_ensemble():
    axes = errors(EVALUATION).axes[0]
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([25, 75])
    assert [line.get_ydata()[0] for line in axes.lines] == pytest.approx([50, 50])


def test_prediction_map_has_a_point_per_pass_and_preserves_members(generator):
    space = NasBench201()
    cells = [space.parse(f"|nor_conv_3x3~0|+|{op}~0|none~1|+|none~0|none~1|skip_connect~2|") for op in OPS]
    members = [space.network(c, in_channels=1, num_classes=3, channels=4, cells=1) for c in cells]
    ensemble = Ensemble(members).eval()
    batches = [(torch.randn(6, 1, 8, 8), torch.zeros(6, dtype=torch.long)) for _ in range(2)]
    before = ensemble.predict_proba(batches[0][0])
    axes = prediction_map(ensemble, batches, images=10).axes[0]
    assert [len(line.get_xdata()) for line in axes.lines] == [PASSES, 1, PASSES, 1]
    assert torch.equal(ensemble.predict_proba(batches[0][0]), before)


OPS = ("nor_conv_3x3", "nor_conv_1x1")


def test_prediction_map_needs_drop_path():
    members = [nn.Sequential(nn.Flatten(), nn.Linear(4, 2)) for _ in range(3)]
    batches = [(torch.randn(5, 1, 2, 2), torch.zeros(5, dtype=torch.long))]
    assert prediction_map(Ensemble(members), batches) is None
