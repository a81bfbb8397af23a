"""Numbers of an ensemble against plain loops, scikit-learn, and cases that are solved by hand."""

from itertools import combinations

import numpy as np
import pytest
import torch
from sklearn.metrics import brier_score_loss, log_loss
from torch import nn

from nas_lightning.models.ensemble import Ensemble
from nas_lightning.models.evaluation import (
    BINS,
    Evaluation,
    brier_score,
    calibration_error,
    disagreement,
    ensemble_error,
    evaluate,
    member_errors,
    oracle_error,
)


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
