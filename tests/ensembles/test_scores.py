"""Ensembles of other tasks than classes predict the mean of their members' predictions."""

import copy
import pickle
from dataclasses import replace

import pytest
import torch
from sklearn.metrics import f1_score, r2_score

from nas_lightning.data import ExternalData
from nas_lightning.errors import InputError
from nas_lightning.models.ensemble import Ensemble
from nas_lightning.models.evaluation import evaluate_task
from nas_lightning.models.file import description
from nas_lightning.spaces import NasBench201
from nas_lightning.tasks import Binary, CustomTask, MultiLabel, Regression, Segmentation, link_of
from tests.own_tasks import MADE, OUTPUTS, Made

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


def test_members_of_several_tasks_are_refused(generator):
    space, known = NasBench201(), []
    genotype = space.sample(generator)
    networks = [space.network(genotype, in_channels=1, num_classes=2, **SIZES) for _ in range(2)]
    about = description(space, genotype, SIZES, (1, 8, 8), ("a", "b"), (0.0,), (1.0,))
    known = [replace(about, task="multi_label"), about]
    with pytest.raises(InputError, match="expected members with the same task: multi_label"):
        Ensemble(networks, known)


def test_a_task_that_nobody_knows_predicts_its_outputs():
    z = torch.randn(2, 3, 4)
    assert torch.equal(link_of("somebody's").combine(z), z.mean(0))
    assert link_of(CustomTask.name).predict(z) is z
    assert set(MADE) == set(OUTPUTS) == set(TASKS)
