"""Forward selection from a trained pool, on predictions whose losses are known."""

import math

import pytest
import torch

from nas_lightning.models.ensemble_plans import RandomPool, select
from nas_lightning.models.evaluation import Evaluation
from nas_lightning.spaces import NasBench201


def pool(*of_label):
    """One candidate a row: the probabilities that it gives the true class, of two."""
    right = torch.tensor(of_label, dtype=torch.float64)
    return Evaluation(torch.stack([right, 1 - right], dim=2), torch.zeros(right.shape[1], dtype=torch.long))


def test_the_second_is_the_one_that_helps_the_first_not_the_second_best():
    found = select(pool([0.8, 0.6, 0.3], [0.8, 0.6, 0.2], [0.1, 0.3, 0.9]), 2)
    assert found.chosen == (0, 2)
    of_both = [0.45, 0.45, 0.6]
    assert found.losses[1] == pytest.approx(-sum(math.log(p) for p in of_both) / 3)
    assert found.together.ensemble.nll == pytest.approx(found.losses[1])
    assert [row[3] for row in found.table().rows] == ["member 1", "", "member 2"]


def test_a_network_that_diverged_is_not_taken():
    found = select(pool([math.nan, math.nan], [0.5, 0.4], [0.2, 0.1]), 2)
    assert found.chosen == (1, 2)


def test_the_seed_decides_what_is_drawn_and_a_larger_pool_goes_on():
    def draw_weights(pool, seed):
        return RandomPool("nasbench201", pool=pool, seed=seed).draw(NasBench201())

    assert draw_weights(8, 0)[:5] == draw_weights(5, 0)
    assert not set(draw_weights(8, 0)) & set(draw_weights(8, 1))
    assert len(set(draw_weights(20, 0))) == 20
