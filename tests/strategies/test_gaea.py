"""GAEA's exponentiated gradient, and its single-level search."""

import math

import pytest
import torch
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.strategies import Gaea
from nas_lightning.strategies.one_shot.arch_steps import ExponentiatedDescent, exponentiated_gradient


def test_update_is_its_formula(generator):
    alpha = torch.rand(4, 5, generator=generator, dtype=torch.float64)
    alpha /= alpha.sum(dim=1, keepdim=True)
    gradient = torch.randn(4, 5, generator=generator, dtype=torch.float64)
    found = exponentiated_gradient(alpha, gradient, 0.7)
    for row, slopes, result in zip(alpha.tolist(), gradient.tolist(), found.tolist(), strict=True):
        powers = [a * math.exp(-0.7 * g) for a, g in zip(row, slopes, strict=True)]
        assert result == pytest.approx([p / sum(powers) for p in powers], rel=1e-12)


@pytest.mark.parametrize("scale", [1e3, 1e8, 1e30])
def test_it_stays_on_the_simplex_whatever_the_gradient(generator, scale):
    alpha = torch.nn.Parameter(torch.full((50, 5), 0.2))
    optimizer = ExponentiatedDescent([alpha], lr=0.1)
    for _ in range(30):
        alpha.grad = scale * torch.randn(50, 5, generator=generator)
        optimizer.step()
        assert bool(torch.isfinite(alpha).all())
        assert float(alpha.detach().min()) >= 0
        torch.testing.assert_close(alpha.detach().sum(dim=1), torch.ones(50))


def test_operations_without_gradient_difference_keep_their_ratio():
    """Multiplicative: the ratio of two operations changes by exp(−η (g₁ − g₂)) alone."""
    alpha = torch.tensor([[0.1, 0.3, 0.6]], dtype=torch.float64)
    found = exponentiated_gradient(alpha, torch.tensor([[2.0, 2.0, -1.0]], dtype=torch.float64), 0.5)[0]
    assert float(found[1] / found[0]) == pytest.approx(3.0, rel=1e-12)
    assert float(found[2] / found[1]) == pytest.approx(2.0 * math.exp(0.5 * 3), rel=1e-12)


def counted(gaea):
    calls = []
    gaea.supernet.register_forward_hook(lambda *_: calls.append(1))
    return calls


@pytest.mark.parametrize("single_level", [True, False])
def test_a_single_level_is_one_pass(cell_space, supernet, data, trainer, single_level):
    gaea = Gaea(cell_space, supernet(cell_space), single_level=single_level)
    calls = counted(gaea)
    head = gaea.supernet.head.weight.detach().clone()
    fit = trainer(1)
    fit.fit(gaea, data(train_fraction=1.0))
    assert fit.global_step == 8
    assert len(calls) == (8 if single_level else 16)
    assert float((gaea.arch["cell"] - 0.2).detach().abs().max()) > 1e-4
    assert not torch.equal(gaea.supernet.head.weight, head)
    torch.testing.assert_close(gaea.arch["cell"].detach().sum(dim=1), torch.ones(6))
    assert ("valid_loss" in fit.callback_metrics) == (not single_level)


def test_a_single_level_step_against_a_plain_one(cell_space, supernet, data, trainer):
    """Both descend the same loss at the same point; without momentum before the first step."""
    gaea = Gaea(cell_space, supernet(cell_space), single_level=True, lr=0.3, clip=0.4, weight_decay=0.01)
    search = data(train_fraction=1.0)
    x, y = next(iter(search.train_dataloader()))["train"]
    plain = supernet(cell_space).double()
    alpha = torch.full((6, 5), 1 / 5).double().requires_grad_()
    loss = F.cross_entropy(plain(x.double(), {"cell": alpha}), y)
    slope, *slopes = torch.autograd.grad(loss, [alpha, *plain.parameters()])
    norm = torch.cat([s.flatten() for s in slopes]).norm()
    assert float(norm) > 0.4
    trainer(1, precision="64-true", limit_train_batches=1).fit(gaea, search)
    powers = alpha.detach() * torch.exp(-0.1 * slope)
    torch.testing.assert_close(
        gaea.arch["cell"].data, powers / powers.sum(dim=1, keepdim=True), rtol=1e-9, atol=1e-12
    )
    for mine, start, s in zip(gaea.weight_list, plain.parameters(), slopes, strict=True):
        expected = start - 0.3 * (s * 0.4 / (norm + 1e-6) + 0.01 * start)
        torch.testing.assert_close(mine.data, expected.data, rtol=1e-9, atol=1e-10)


def test_warm_up_before_a_single_level(cell_space, supernet, data, trainer):
    gaea = Gaea(cell_space, supernet(cell_space), single_level=True, warmup_epochs=1)
    trainer(1).fit(gaea, data())
    assert gaea.arch["cell"].tolist() == torch.full((6, 5), 1 / 5).tolist()


def test_adams_moments_are_refused(search):
    with pytest.raises(InputError, match="expected ExponentiatedGradient, because the parameters of Simplex"):
        search("gaea", "nasbench201", "arch_optimizer=adam")
