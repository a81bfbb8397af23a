"""Condition 6 and the order of α on two-layer networks."""

import pytest
import torch

from nas_lightning.errors import InputError
from reproductions.architecture_parameters import TwoLayerOrder, mixtures_of_others, risk, verdicts


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


def test_order_can_fail_without_a_perfect_fit():
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


def test_orders_of_alpha():
    study = TwoLayerOrder(candidates=[2, 4], models=20, refits=1, steps=100, samples=64)
    rows = {(row[0], row[1]): row for row in study.run().tables[0].rows}
    assert rows["given", 2][2:8] == [20, 20, 20, 20, 0, 0]  # theorem 1
    assert rows["given", 2][8].value == 1.0
    _, _, models, pairs, met, ordered, others, others_ordered, _, error = rows["given", 4]
    assert (models, pairs, met + others) == (20, 120, 120)
    assert ordered == met > 0  # theorem 7
    assert others_ordered < others  # without the condition it need not hold
    assert error < 1e-20
    assert rows["found", 2][9] < 0.1  # the labels were learned, nearly
    assert rows["found bilevel", 2][9] < 0.2  # also from a half for each level
    assert rows["found bilevel", 2][9] != rows["found", 2][9]
    for wrong in ({"candidates": [1]}, {"candidates": [6]}, {"models": 0}, {"refits": 101}, {"steps": 0}):
        with pytest.raises(InputError):
            TwoLayerOrder(**wrong)


def test_each_level_sees_its_own_samples():
    """With weights that stand still α fits its own side's labels, whatever the other side's say."""
    study = TwoLayerOrder(models=1, refits=0, steps=500, lr=1e-12, arch_lr=1.0)
    model, x = study.draw(3, torch.Generator().manual_seed(3))
    start, labels = model._replace(alpha=torch.full((3,), 1 / 3, dtype=torch.float64)), model.labels(x)
    found = study.find(start, (x, torch.zeros_like(labels)), (x, labels))
    left = (found.labels(x) - labels).square().mean() / (start.labels(x) - labels).square().mean()
    assert left < 1e-3
    other = study.find(start, (x, labels), (x, start.labels(x)))
    torch.testing.assert_close(other.alpha, start.alpha)
