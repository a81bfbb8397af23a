"""FairDARTS' independent weights and the loss that pulls them apart."""

import pytest
import torch

from nas_lightning.strategies import FairDarts
from nas_lightning.strategies.one_shot.regularizers import zero_one_loss


@pytest.fixture
def fair(darts_space, supernet):
    found = FairDarts(darts_space, supernet(darts_space), zero_one=3.0).double()
    draw = torch.Generator().manual_seed(2)
    for alpha in found.arch_list:
        alpha.data = 2 * torch.randn(alpha.shape, generator=draw, dtype=torch.float64)
    return found


def test_zero_one_loss():
    assert zero_one_loss(torch.tensor([0.0, 1.0, 1.0])).item() == -0.25
    assert zero_one_loss(torch.tensor([0.5, 0.5])).item() == 0.0
    assert zero_one_loss(torch.tensor([0.2, 0.9])).item() == pytest.approx(-(0.09 + 0.16) / 2)


def test_regularizer_and_gradient_in_plain_numbers(fair):
    """∂/∂α of −λ/N Σ (σ − ½)² is −2λ/N (σ − ½) σ (1 − σ), over all weights of both cells."""
    alphas = torch.cat([alpha.detach().flatten() for alpha in fair.arch.values()])
    sigma = 1 / (1 + torch.exp(-alphas))
    value = fair.regularization()
    assert value.item() == pytest.approx(-3.0 * float(((sigma - 0.5) ** 2).mean()), rel=1e-12)
    found = torch.cat([g.flatten() for g in torch.autograd.grad(value, fair.arch_list)])
    expected = -2 * 3.0 / len(sigma) * (sigma - 0.5) * sigma * (1 - sigma)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-15)


def test_weights_are_independent(fair):
    before = fair.relax().weights["normal"].detach()
    with torch.no_grad():
        fair.arch["normal"][1, 4] += 1.0
    changed = fair.relax().weights["normal"].detach() != before
    assert changed.nonzero().tolist() == [[1, 4]]


def test_none_is_not_derived(fair, cell_space, supernet):
    for name, matrix in fair.scores().items():
        none = fair.space.groups[name].column("none")
        assert matrix[:, none].tolist() == [0.0] * len(matrix)
        kept = [column for column in range(matrix.shape[1]) if column != none]
        assert torch.equal(matrix[:, kept], torch.sigmoid(fair.arch[name].detach())[:, kept])
    other = FairDarts(cell_space, supernet(cell_space))
    with torch.no_grad():
        other.arch["cell"][:, 0] = 9.0
    assert "none" not in other.derive()[0].ops


def test_the_loss_pulls_the_weights_apart(search, trainer):
    """The stronger it is, the farther the weights are from ½ after the same search."""
    distance = []
    for weight in (0.0, 1000.0):
        fair, data = search(
            "fair_darts",
            "nasbench201",
            f"strategy.regularizer.zero_one.weight={weight}",
            "strategy.arch_lr=0.05",
        )
        trainer(2).fit(fair, data)
        distance.append(float((fair.relax().weights["cell"].detach() - 0.5).abs().mean()))
    assert distance[1] > 1.5 * distance[0]
