"""Ensembles: stored and loaded, forward selection, and attacks on plain cases."""

import json
import math

import pytest
import torch
from torch import nn

from nas_lightning.data import Fake
from nas_lightning.errors import InputError
from nas_lightning.models.ensemble import FILE_NAME, Ensemble, McDropPath
from nas_lightning.models.ensemble_plans import RandomPool, select
from nas_lightning.models.evaluation import Evaluation
from nas_lightning.models.file import description, load
from nas_lightning.spaces import NasBench201

SIZES = {"channels": 4, "cells": 1}


@pytest.fixture
def trained(generator):
    """Two networks of different architectures, with running statistics of their own, and what they are."""
    space, data = NasBench201(), Fake()
    members, known = [], []
    for _ in range(2):
        genotype = space.sample(generator)
        network = space.network(genotype, in_channels=3, num_classes=4, **SIZES)
        network(torch.randn(8, 3, 8, 8))
        members.append(network.eval())
        known.append(description(space, genotype, SIZES, data.image, data.classes, data.mean, data.std))
    return members, known


@pytest.fixture
def x(generator):
    return torch.rand(5, 3, 8, 8, generator=generator)


def test_the_prediction_is_the_mean_of_the_members(trained, x):
    members, _ = trained
    ensemble = Ensemble(members).eval()
    mean = torch.stack([member(x).softmax(dim=1) for member in members]).mean(dim=0)
    torch.testing.assert_close(ensemble.predict_proba(x), mean)
    torch.testing.assert_close(ensemble(x), mean.log())
    torch.testing.assert_close(ensemble.predict_proba(x).sum(dim=1), torch.ones(5))


def test_logarithms_stay_finite_where_probabilities_vanish():
    class Sure(nn.Module):
        def __init__(self, logit: float) -> None:
            super().__init__()
            self.logits = nn.Parameter(torch.tensor([[logit, 0.0]]))

        def forward(self, x):
            return self.logits

    log_p = Ensemble([Sure(200.0), Sure(220.0)])(torch.zeros(1))
    # log((e^-200 + e^-220)/2) = -200 - log 2 + log(1 + e^-20)
    assert log_p[0, 1].item() == pytest.approx(-200 - 0.6931472, abs=1e-4)


def test_what_is_saved_predicts_the_same(trained, x, tmp_path):
    ensemble = Ensemble(*trained).eval()
    ensemble.save(tmp_path / "run" / "ensemble")
    for folder in (tmp_path / "run" / "ensemble", tmp_path / "run"):
        again = Ensemble.load(folder)
        assert not again.training
        assert torch.equal(again.predict_proba(x), ensemble.predict_proba(x))
        assert again.descriptions == ensemble.descriptions
    alone = load(tmp_path / "run" / "ensemble" / "member_2.safetensors")
    assert torch.equal(alone(x), trained[0][1](x))


def test_normalization_inside(trained, x, tmp_path):
    Ensemble(*trained).save(tmp_path)
    known = trained[1][0]
    mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (known.mean, known.std))
    inside = Ensemble.load(tmp_path, with_normalization=True).predict_proba(x)
    torch.testing.assert_close(inside, Ensemble.load(tmp_path).predict_proba((x - mean) / std))


def test_mc_drop_path_averages_passes_that_differ(trained, x, tmp_path):
    members, known = trained
    plain = members[0](x)
    ensemble = McDropPath(members[0], known[:1], rate=0.5, passes=30).eval()
    passes = ensemble.member_probabilities(x)
    assert passes.shape == (30, 5, 4)
    assert len(ensemble) == 30
    assert len({tuple(p.flatten().tolist()) for p in passes}) > 5
    statistics = [b.clone() for b in members[0].buffers()]
    ensemble.predict_proba(x)
    assert all(torch.equal(a, b) for a, b in zip(statistics, members[0].buffers(), strict=True))
    ensemble.save(tmp_path)
    again = Ensemble.load(tmp_path)
    assert isinstance(again, McDropPath)
    assert (again.rate, again.passes) == (0.5, 30)
    torch.manual_seed(1)
    expected = ensemble.predict_proba(x)
    torch.manual_seed(1)
    assert torch.equal(again.predict_proba(x), expected)
    rare = McDropPath(members[0], rate=1e-9, passes=2).eval()
    torch.testing.assert_close(rare.predict_proba(x), plain.softmax(dim=1))


def test_other_folders_raise(trained, tmp_path, refusal):
    members, known = trained
    other = description(
        NasBench201(), known[1].genotype, SIZES, (3, 8, 8), ("a", "b", "c", "d"), known[1].mean, known[1].std
    )
    assert "same classes" in refusal(Ensemble, members, [known[0], other])
    assert "at least one member" in refusal(Ensemble, [])
    assert "can be saved" in refusal(Ensemble(members).save, tmp_path)
    assert "ensemble.json" in refusal(Ensemble.load, tmp_path)
    (tmp_path / FILE_NAME).write_text(json.dumps({"format": 7}))
    assert "format 1" in refusal(Ensemble.load, tmp_path)
    with pytest.raises(InputError, match="drop path"):
        McDropPath(nn.Linear(2, 2))
    with pytest.raises(InputError, match="rate"):
        McDropPath(members[0], rate=0.0)


# Forward selection from a trained pool


def pool(*of_label):
    """One candidate a row: the probabilities that it gives the true class, of two."""
    right = torch.tensor(of_label, dtype=torch.float64)
    return Evaluation(torch.stack([right, 1 - right], dim=2), torch.zeros(right.shape[1], dtype=torch.long))


def test_forward_selection_prefers_complementary_members():
    found = select(pool([0.8, 0.6, 0.3], [0.8, 0.6, 0.2], [0.1, 0.3, 0.9]), 2)
    assert found.chosen == (0, 2)
    of_both = [0.45, 0.45, 0.6]
    assert found.losses[1] == pytest.approx(-sum(math.log(p) for p in of_both) / 3)
    assert found.together.ensemble.nll == pytest.approx(found.losses[1])
    assert [row[3] for row in found.table().rows] == ["member 1", "", "member 2"]


def test_diverged_network_is_not_selected():
    found = select(pool([math.nan, math.nan], [0.5, 0.4], [0.2, 0.1]), 2)
    assert found.chosen == (1, 2)


def test_larger_pool_begins_with_the_smaller():
    def draw_weights(pool, seed):
        return RandomPool("nasbench201", pool=pool, seed=seed).draw(NasBench201())

    assert draw_weights(8, 0)[:5] == draw_weights(5, 0)
    assert not set(draw_weights(8, 0)) & set(draw_weights(8, 1))
    assert len(set(draw_weights(20, 0))) == 20
