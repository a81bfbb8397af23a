"""Weights near the architecture's: inside their ball and on the simplex; the worst by brute force."""

from itertools import product

import pytest
import torch

from nas_lightning.strategies import OneShot
from nas_lightning.strategies.one_shot.parts import Epoch
from nas_lightning.strategies.one_shot.perturbations import Adversarial, RandomNoise, project
from nas_lightning.strategies.one_shot.samplers import Sigmoid, Softmax

LAST = Epoch(1, 2)


def shares(generator, rows=4, ops=5):
    return torch.softmax(torch.randn(rows, ops, generator=generator, dtype=torch.float64), dim=-1)


@pytest.mark.parametrize("sampler", [Softmax(), Sigmoid()])
def test_projected_weights_are_what_the_samplers_are(generator, sampler):
    weights = torch.randn(50, 5, generator=generator, dtype=torch.float64)
    weights[0] = -1.0  # nothing is left of this row
    found = project(weights, sampler)
    assert 0 <= float(found.min()) <= float(found.max()) <= 1
    if sampler.shares:
        torch.testing.assert_close(found.sum(dim=-1), torch.ones(50, dtype=torch.float64))
        assert found[0].tolist() == [0.2] * 5
    else:
        assert torch.equal(found, weights.clamp(0, 1))


def test_random_noise_is_uniform_in_a_ball_that_grows(generator):
    part, weights = RandomNoise(epsilon=0.2, epsilon_start=0.1), {"a": torch.full((2000, 2), 0.5)}
    for number, radius in ((0, 0.1), (1, 0.15), (2, 0.2)):
        noise = {"a": torch.rand(2000, 2, generator=generator)}
        moved = part.apply(weights, noise, Epoch(number, 3), Sigmoid(), None)["a"] - 0.5
        assert float(moved.abs().max()) == pytest.approx(radius, rel=0.01)
        assert float(moved.std()) == pytest.approx(radius / 3**0.5, rel=0.05)


def test_the_adversary_reaches_the_worst_corner(generator):
    """Of a linear loss the maximum over the ball is at a corner, found by brute force."""
    a = torch.randn(1, 4, generator=generator, dtype=torch.float64)
    weights = {"a": torch.full((1, 4), 0.5, dtype=torch.float64)}
    noise = {"a": torch.rand(1, 4, generator=generator, dtype=torch.float64)}
    moved = Adversarial(0.2).apply(weights, noise, LAST, Sigmoid(), lambda w: {"a": a})["a"]
    corners = [
        (0.5 + 0.2 * torch.tensor([signs], dtype=torch.float64)) for signs in product((-1, 1), repeat=4)
    ]
    assert float((moved * a).sum()) == pytest.approx(max(float((c * a).sum()) for c in corners))


def test_the_adversary_raises_the_supernets_loss(cell_space, supernet, generator):
    strategy = OneShot(cell_space, supernet(cell_space, channels=4), perturbation=Adversarial(0.3)).double()
    strategy.epoch = LAST
    x = torch.randn(8, 1, 8, 8, generator=generator, dtype=torch.float64)
    batch = {"train": (x, torch.arange(8) % 3)}
    plain = strategy.relax()
    worse = strategy.perturb(type(plain)({"cell": plain.weights["cell"].detach()}), batch)
    before, after = (float(strategy.loss_and_logits(batch["train"], r)[0].detach()) for r in (plain, worse))
    assert after > before + 1e-3
    assert all(weight.grad is None and weight.requires_grad for weight in strategy.weight_list)


def test_the_architectures_step_is_at_the_architecture(cell_space, supernet, data, trainer):
    """Only the weights' steps are perturbed."""
    strategy = OneShot(cell_space, supernet(cell_space), perturbation=RandomNoise())
    seen = []
    strategy.supernet.register_forward_pre_hook(lambda _, args: seen.append(args[1]["cell"].detach().clone()))
    trainer(1, limit_train_batches=1).fit(strategy, data())
    arch, weights = seen
    start = OneShot(cell_space, supernet(cell_space)).scores()["cell"]
    assert torch.equal(arch, start)
    assert float((weights - strategy.scores()["cell"]).abs().max()) > 0.005
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(6))
