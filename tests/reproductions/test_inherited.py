"""Estimated against true performance: every subset, and how two orders agree."""

from itertools import combinations

import numpy as np
import pytest
import torch

from nas_lightning.objectives.inherited import averaged_loss
from reproductions.nesbs import Inherited, agreement, over_subsets


def test_every_ensemble_once(generator):
    probabilities = torch.randn(5, 20, 3, generator=generator, dtype=torch.float64).softmax(dim=-1)
    labels = torch.randint(3, (20,), generator=generator)
    found = over_subsets(averaged_loss, probabilities, labels, 3)
    expected = []
    for a, b, c in combinations(range(5), 3):
        mean = (probabilities[a] + probabilities[b] + probabilities[c]) / 3
        expected.append(-np.mean([np.log(float(mean[i, labels[i]])) for i in range(20)]))
    np.testing.assert_allclose(found, expected)


def test_agreement_by_hand():
    x, y = np.arange(10.0), np.arange(10.0)[::-1].copy()
    assert agreement(x, x, 0.3) == 1
    assert agreement(x, y, 0.3) == 0
    assert agreement(x, np.array([5, 6, 0, 1, 2, 9, 9, 9, 9, 9.0]), 0.3) == pytest.approx(1 / 3)
    assert agreement(x, x, 0.01) == 1  # one at least


def test_what_cannot_be(refusal):
    def made(**options):
        return refusal(lambda: Inherited(**options))

    assert "sizes below 10" in made(sizes=[10])
    assert "`sizes` must have distinct entries" in made(sizes=[1, 1])
    assert "study.pool" in made(pool=5)
    assert "Inherited.top" in made(top=1.0)
