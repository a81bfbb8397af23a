"""Attacks against what is known: linear networks, whose nearest misclassified image has a closed form."""

import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nas_lightning.data import Digits
from nas_lightning.models.attacks import (
    AutoAttack,
    CarliniWagner,
    Fgsm,
    Pgd,
    defense,
    defense_round,
    loss_gradient,
)
from nas_lightning.models.evaluation import pixel_batches
from nas_lightning.spaces import NasBench201
from nas_lightning.studies.defense import NoAttack, with_normalization
from tests.cli.conftest import CELL

SHAPE = (1, 4, 4)


class Linear(nn.Module):
    """Pixels → two logits ±(w·x + b)/2, so that the boundary is w·x + b = 0."""

    def __init__(self, w: torch.Tensor, b: float) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(w), nn.Parameter(torch.tensor(b))

    def forward(self, x):
        z = x.flatten(1) @ self.w + self.b
        return torch.stack([-z / 2, z / 2], dim=1)


@pytest.fixture
def linear(generator):
    """A network, images far from black and white, and the classes that it puts them in."""
    w = torch.randn(16, generator=generator)
    network = Linear(w, float(-0.5 * w.sum()))
    x = 0.5 + 0.1 * (torch.rand(12, *SHAPE, generator=generator) - 0.5)
    return network, x, network(x).argmax(dim=1)


@pytest.fixture
def convolutional(generator):
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)).eval()
    x = torch.rand(10, *SHAPE, generator=generator)
    return network, x, network(x).argmax(dim=1)


def losses(network, x, y):
    with torch.no_grad():
        return F.cross_entropy(network(x), y, reduction="none")


@pytest.mark.parametrize("attack", [Fgsm(0.03), Pgd(0.03), Pgd(0.03, random_start=False)], ids=str)
def test_within_the_ball_and_the_range_the_loss_rises(convolutional, attack):
    network, x, y = convolutional
    x = (1.4 * x - 0.2).clamp(0, 1)  # some black and white pixels
    changed = attack(network, x, y)
    assert float((changed - x).abs().max()) <= 0.03 + 1e-6
    assert float(changed.min()) >= 0
    assert float(changed.max()) <= 1
    assert (losses(network, changed, y) > losses(network, x, y)).all()


def test_pgd_ends_no_lower_than_fgsm(convolutional):
    network, x, y = convolutional
    once, often = Fgsm(0.1)(network, x, y), Pgd(0.1, step=0.02, random_start=False)(network, x, y)
    assert losses(network, often, y).mean() >= losses(network, once, y).mean()


@pytest.mark.parametrize("attack", [Fgsm(0.03), Pgd(0.03, random_start=False)], ids=str)
def test_on_a_linear_network_the_worst_corner_of_the_ball(linear, attack):
    # margin m = ±(w·x + b); the smallest in the ball is m − ε‖w‖₁
    network, x, y = linear
    sign = 2 * y.float() - 1
    z = x.flatten(1) @ network.w + network.b
    changed = attack(network, x, y)
    found = sign * (changed.flatten(1) @ network.w + network.b)
    torch.testing.assert_close(found, sign * z - 0.03 * network.w.abs().sum(), atol=1e-4, rtol=0)


def test_carlini_wagner_finds_the_nearest_misclassified_image(linear):
    network, x, y = linear
    with torch.no_grad():
        minimal = (x.flatten(1) @ network.w + network.b).abs() / network.w.norm()
    changed = CarliniWagner(search_steps=5, steps=150)(network, x, y)
    assert (network(changed).argmax(dim=1) != y).all()
    away = (changed - x).flatten(1).norm(dim=1)
    assert (away >= minimal - 1e-5).all()
    torch.testing.assert_close(away, minimal, atol=2e-3, rtol=0.05)


def test_carlini_wagner_with_the_thesis_settings_changes_less_than_pgd(linear):
    network, x, y = linear
    with torch.no_grad():
        margin = (x.flatten(1) @ network.w + network.b).abs()
        epsilons = (1.01 * margin / network.w.abs().sum()).tolist()  # the smallest with which PGD succeeds
    by_pgd = torch.cat(
        [
            Pgd(epsilon, step=epsilon / 4, random_start=False)(network, x[[i]], y[[i]])
            for i, epsilon in enumerate(epsilons)
        ]
    )
    by_cw = CarliniWagner()(network, x, y)
    for changed in (by_pgd, by_cw):
        assert (network(changed).argmax(dim=1) != y).all()
    norm_pgd, norm_cw = ((changed - x).flatten(1).norm(dim=1) for changed in (by_pgd, by_cw))
    assert (norm_cw < norm_pgd + 1e-4).all()
    assert norm_cw.sum() < 0.9 * norm_pgd.sum()


def test_carlini_wagner_with_confidence_goes_further(linear):
    network, x, y = linear
    settings = {"search_steps": 3, "steps": 100}
    changed = CarliniWagner(confidence=0.5, **settings)(network, x, y)
    assert (network(changed).gather(1, 1 - y[:, None]) - network(changed).gather(1, y[:, None]) >= 0.5).all()


def test_robust_images_are_unchanged():
    network = Linear(torch.full((16,), 1e-4), 50.0)
    x = torch.rand(3, *SHAPE)
    y = torch.ones(3, dtype=torch.long)
    assert torch.equal(CarliniWagner(steps=5)(network, x, y), x)


def test_only_gradients_of_images_are_computed(convolutional):
    network, x, y = convolutional
    found = loss_gradient(network, x, y)
    assert all(p.grad is None for p in network.parameters())
    step = torch.zeros_like(x)
    step[2, 0, 1, 1] = 1e-3
    numeric = (losses(network, x + step, y) - losses(network, x - step, y)).sum() / 2e-3
    torch.testing.assert_close(found[2, 0, 1, 1], numeric, atol=1e-3, rtol=1e-2)


@pytest.mark.filterwarnings("ignore:Please import `gaussian_filter`:DeprecationWarning")
def test_fgsm_and_pgd_equal_foolbox(convolutional):
    foolbox = pytest.importorskip("foolbox")
    network, x, y = convolutional
    theirs = foolbox.PyTorchModel(network, bounds=(0, 1), device="cpu")
    pairs = [
        (Fgsm(0.05), foolbox.attacks.LinfFastGradientAttack()),
        (
            Pgd(0.05, 0.02, 10, random_start=False),
            foolbox.attacks.LinfProjectedGradientDescentAttack(
                abs_stepsize=0.02, steps=10, random_start=False
            ),
        ),
    ]
    for ours, other in pairs:
        expected = other(theirs, x, y, epsilons=0.05)[1]
        torch.testing.assert_close(ours(network, x, y), expected, atol=1e-6, rtol=0)


def test_auto_attack_leaves_no_image_that_pgd_fools(generator):
    pytest.importorskip("pyautoattack")
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 10)).eval()
    x = torch.rand(6, *SHAPE, generator=generator)
    y = network(x).argmax(dim=1)
    changed = AutoAttack(0.1)(network, x, y)
    assert float((changed - x).abs().max()) <= 0.1 + 1e-6
    by_pgd = network(Pgd(0.1)(network, x, y)).argmax(dim=1) != y
    by_auto = network(changed).argmax(dim=1) != y
    assert by_pgd.any()
    assert (by_auto | ~by_pgd).all()


@pytest.mark.slow
def test_auto_attack_on_trained_networks_is_stronger_than_pgd_and_defended_against():
    pytest.importorskip("pyautoattack")
    data = Digits(batch_size=64)
    networks = [with_normalization(trained(data, seed), data) for seed in (0, 1)]
    batches = pixel_batches(data, 40)
    clean, by_pgd, by_auto = (
        defense(networks, batches, attack) for attack in (NoAttack(), Pgd(0.15), AutoAttack(0.15))
    )
    assert clean.attack.min() > 0.85
    assert (by_auto.attack <= by_pgd.attack).all()
    assert (by_auto.attack < clean.attack - 0.3).all()
    assert by_auto.defense.mean() > by_auto.attack.mean()
    x, y = batches[0]
    changed = AutoAttack(0.15)(networks[0], x[:8], y[:8])
    assert float((changed - x[:8]).abs().max()) <= 0.15 + 1e-6
    assert 0 <= float(changed.min()) <= float(changed.max()) <= 1


def trained(data, seed):
    """A convolutional network with batch norms after eight passes over the digits."""
    torch.manual_seed(seed)
    network = NasBench201().network(
        NasBench201().parse(CELL), in_channels=1, num_classes=10, channels=8, cells=1
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=0.003)
    loader = data.train_dataloader()
    for epoch in range(8):
        loader.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(network(x), y).backward()
            optimizer.step()
    return network.eval()


def test_auto_attack_without_its_package(monkeypatch, refusal):
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    assert "pip install 'nas-lightning[attacks]'" in refusal(AutoAttack().check)


def test_auto_attack_needs_ten_classes(convolutional, refusal):
    pytest.importorskip("pyautoattack")
    assert "at least 10 classes" in refusal(AutoAttack(), *convolutional)


def test_defense_with_members_that_disagree(linear):
    """The attacked member is moved over its boundary; the other two look at other pixels, and outvote it."""
    _, x, _ = linear
    y = torch.ones(len(x), dtype=torch.long)
    members = []
    for number in range(3):
        w = torch.zeros(16)
        w[5 * number : 5 * number + 5] = 20.0
        members.append(Linear(w, -20.0 * 5 * 0.4))  # right where its five pixels are above 0.4
    found = defense(members, [(x[:5], y[:5]), (x[5:], y[5:])], Fgsm(0.2))
    assert found.attack.tolist() == [0.0, 0.0, 0.0]
    assert found.defense.tolist() == [1.0, 1.0, 1.0]
    assert all(p.requires_grad for member in members for p in member.parameters())
    assert all(member.training for member in members)


def test_a_round_counts_plainly(convolutional, generator):
    network, x, _ = convolutional
    y = torch.randint(3, (len(x),), generator=generator)
    other = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).eval()
    changed = Fgsm(0.05)(other, x, y)
    mean = (network(changed).softmax(1) + other(changed).softmax(1)) / 2
    expected = [float((p.argmax(1) == y).float().mean()) for p in (other(changed), mean)]
    assert defense_round([network, other], 1, [(x, y)], Fgsm(0.05)) == pytest.approx(expected)


def test_impossible_settings_raise(convolutional, refusal):
    network, x, y = convolutional
    assert "greater than 0" in refusal(Fgsm, 0.0)
    assert "greater than 0" in refusal(Pgd, 0.01, -1.0)
    assert "constant_high" in refusal(CarliniWagner, 0.0, 1.0, 0.5)
    assert "at least two" in refusal(defense, [network], [(x, y)], Fgsm())
