"""Theorems 1 and 7 on problems whose labels the mixture fits exactly, against plain loops."""

import pytest
import torch

from reproductions.architecture_parameters import mixtures_of_others, risk, verdicts


def realizable(candidates, seed):
    """Random two-layer networks with one activation each, a mixture α inside the simplex, and its labels."""
    generator = torch.Generator().manual_seed(seed)
    activations = [torch.relu, torch.tanh, torch.sigmoid, torch.sin, torch.nn.functional.silu][:candidates]
    x = torch.randn(200, 6, generator=generator, dtype=torch.float64)
    w = torch.randn(6, 12, generator=generator, dtype=torch.float64)
    v = torch.randn(12, generator=generator, dtype=torch.float64)
    outputs = torch.stack([activation(x @ w) @ v for activation in activations])
    alpha = torch.softmax(torch.randn(candidates, generator=generator, dtype=torch.float64), 0)
    return outputs, alpha, alpha @ outputs


def test_the_loss_factorizes():
    """L(f_i, y) = (1 − α_i)² L(f_i, m_i), with m_i summed up by hand."""
    outputs, alpha, labels = realizable(4, seed=0)
    for i in range(4):
        others = [k for k in range(4) if k != i]
        mixture = sum(alpha[k] / (1 - alpha[i]) * outputs[k] for k in others)
        torch.testing.assert_close(mixtures_of_others(outputs, alpha)[i], mixture)
        loss = 0.5 * ((outputs[i] - labels) ** 2).mean()
        torch.testing.assert_close(loss, (1 - alpha[i]) ** 2 * 0.5 * ((outputs[i] - mixture) ** 2).mean())


@pytest.mark.parametrize("seed", range(20))
def test_two_candidates_are_always_ordered(seed):
    found = verdicts(*realizable(2, seed))
    assert len(found) == 1
    assert found[0].condition
    assert found[0].ordered


def test_condition_6_is_sufficient_and_not_always_met():
    found = [verdict for seed in range(200) for verdict in verdicts(*realizable(4, seed))]
    assert all(verdict.ordered for verdict in found if verdict.condition)
    assert any(verdict.condition for verdict in found)
    assert any(not verdict.condition and not verdict.ordered for verdict in found)  # it is not vacuous


def test_labels_that_the_mixture_does_not_fit_can_break_the_order():
    outputs, alpha, _ = realizable(2, seed=3)
    worst = int(alpha.argmin())
    found = verdicts(outputs, alpha, outputs[worst])  # the smaller α is right, so realisability fails
    assert not found[0].ordered


def test_alpha_outside_the_simplex_is_refused():
    outputs, _, labels = realizable(2, seed=0)
    with pytest.raises(ValueError, match="inside the simplex"):
        verdicts(outputs, torch.tensor([1.0, 0.0], dtype=torch.float64), labels)


def test_risk_of_itself_is_zero():
    outputs, _, _ = realizable(3, seed=1)
    assert risk(outputs, outputs[0])[0] == 0
