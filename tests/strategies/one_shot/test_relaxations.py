"""The relaxations against closed forms, frequencies and finite differences."""

import itertools
import math

import pytest
import torch

from nas_lightning.strategies.one_shot.relaxations import (
    entropy,
    gate_probability,
    gumbel,
    hard_concrete,
    largest,
    linear,
    one_hot,
    saturated_share,
    straight_through_gumbel,
    uniform_noise,
)

DRAWS = 40_000
GRID = list(itertools.product((-4.0, -1.0, 0.0, 0.5, 3.0), (0.1, 0.5, 1.0, 2.0, 10.0)))  # β, τ


def within_chance(share, probability, draws=DRAWS):
    """Within 4.5 standard deviations of a binomial share: by chance outside once in 150,000 times."""
    return abs(share - probability) <= 4.5 * math.sqrt(probability * (1 - probability) / draws) + 1e-9


def chi_square(counts, probabilities):
    expected = sum(counts) * torch.as_tensor(probabilities, dtype=torch.float64)
    return float(((torch.as_tensor(counts, dtype=torch.float64) - expected) ** 2 / expected).sum())


@pytest.fixture
def gates(generator):
    """`gates(beta, tau)`: many sampled gates and their gradients for β."""

    def sample(beta, tau):
        betas = torch.full((DRAWS,), beta, dtype=torch.float64, requires_grad=True)
        found = hard_concrete(betas, uniform_noise(betas, generator), tau)
        return found.detach(), torch.autograd.grad(found.sum(), betas)[0]

    return sample


@pytest.mark.parametrize(("beta", "tau"), GRID)
def test_gates_are_open_as_often_as_theorem_3_says(gates, beta, tau):
    values, _ = gates(beta, tau)
    assert within_chance(
        float((values != 0).double().mean()), float(gate_probability(torch.tensor(beta), tau))
    )
    assert float(values.min()) >= 0
    assert float(values.max()) <= 1


@pytest.mark.parametrize(("beta", "tau"), GRID)
def test_saturated_gates_are_those_without_gradient(gates, beta, tau):
    values, slopes = gates(beta, tau)
    saturated = (values == 0) | (values == 1)
    assert torch.equal(saturated, slopes == 0)
    expected = float(saturated_share(torch.tensor([[beta]], dtype=torch.float64), tau))
    assert within_chance(float(saturated.double().mean()), expected)


def test_saturation_at_the_start_of_a_search():
    """By hand: 2 Θ(−τ ln 11), since the two ends mirror each other at β = 0."""
    for tau, percent in ((1.0, 17), (0.1, 88)):
        share = float(saturated_share(torch.zeros(3, 4), tau))
        assert share == pytest.approx(2 / (1 + 11**tau), rel=1e-5)
        assert round(100 * share) == percent


def test_gates_follow_their_equations():
    beta, u, tau = 0.3, 0.7, 0.8
    concrete = 1 / (1 + math.exp(-(math.log(u) - math.log(1 - u) + beta) / tau))
    gate = hard_concrete(
        torch.tensor([[beta]], dtype=torch.float64), torch.tensor([[u]], dtype=torch.float64), tau
    )
    assert float(gate) == pytest.approx(min(1.0, max(0.0, -0.1 + 1.2 * concrete)), abs=1e-12)


@pytest.mark.parametrize("stretched", [(-0.3, 1.05), (-0.02, 2.0)])
def test_other_intervals_open_and_saturate_as_often_as_is_said(generator, stretched):
    beta, tau = torch.full((DRAWS,), 0.4, dtype=torch.float64), 0.7
    found = hard_concrete(beta, uniform_noise(beta, generator), tau, stretched)
    opened = float(gate_probability(beta[:1], tau, stretched))
    assert within_chance(float((found != 0).double().mean()), opened)
    ends = float(((found == 0) | (found == 1)).double().mean())
    assert within_chance(ends, float(saturated_share(beta[:1], tau, stretched)))


def test_gradient_of_gates():
    beta = torch.tensor([[-0.4, 0.1, 0.9]], dtype=torch.float64, requires_grad=True)
    noise = torch.tensor([[0.4, 0.5, 0.45]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda b: hard_concrete(b, noise, 1.3), beta)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_is_strictly_inside_whatever_was_drawn(monkeypatch, dtype, generator):
    extremes = torch.tensor([0.0, 1e-320, 1 - 2**-53], dtype=torch.float64)
    monkeypatch.setattr(torch, "rand", lambda *args, **kwargs: extremes)
    noise = uniform_noise(torch.zeros(3, dtype=dtype), generator)
    assert noise.dtype == dtype
    assert float(noise.min()) > 0
    assert float(noise.max()) < 1
    assert bool(torch.isfinite(gumbel(noise)).all())
    assert bool(torch.isfinite(torch.logit(noise)).all())


def test_noise_is_uniform_and_the_generators(generator):
    noise = uniform_noise(torch.zeros(DRAWS), generator)
    counts = torch.histc(noise, bins=20, min=0, max=1)
    assert chi_square(counts, [1 / 20] * 20) < 50.8  # 19 degrees of freedom, p = 10⁻⁴
    again = uniform_noise(torch.zeros(DRAWS), torch.Generator().manual_seed(0))
    assert torch.equal(noise, again)


@pytest.mark.parametrize("tau", [0.1, 1.0, 10.0])
def test_gumbel_draws_operations_as_often_as_softmax_says(generator, tau):
    beta = torch.tensor([0.0, 1.0, -1.0, 0.3], dtype=torch.float64)
    many = beta.expand(DRAWS, 4)
    drawn = straight_through_gumbel(many, uniform_noise(many, generator), tau)
    torch.testing.assert_close(drawn, one_hot(drawn), atol=1e-15, rtol=0)
    counts = one_hot(drawn).sum(dim=0)
    assert chi_square(counts, torch.softmax(beta, 0)) < 21.1  # 3 degrees of freedom, p = 10⁻⁴


def test_gumbel_has_the_gradient_of_its_softmax(generator):
    """Against central differences of softmax((β + G)/τ), written out."""
    beta = torch.randn(3, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    noise, slope, tau = uniform_noise(beta, generator), torch.randn(3, 5, dtype=torch.float64), 0.7
    g = -torch.log(-torch.log(noise))

    def soft(b):
        powers = torch.exp((b + g) / tau)
        return float((slope * powers / powers.sum(dim=1, keepdim=True)).sum())

    (found,) = torch.autograd.grad((slope * straight_through_gumbel(beta, noise, tau)).sum(), beta)
    step = 1e-6
    for row, column in itertools.product(range(3), range(5)):
        shift = torch.zeros_like(beta)
        shift[row, column] = step
        difference = (soft(beta.detach() + shift) - soft(beta.detach() - shift)) / (2 * step)
        assert float(found[row, column]) == pytest.approx(difference, abs=1e-8)


def test_largest_are_the_largest(generator):
    values = torch.rand(50, 8, generator=generator)
    for count in (1, 2, 8):
        chosen = largest(values, count, torch.rand(50, 8, generator=generator))
        for row, mask in zip(values.tolist(), chosen.tolist(), strict=True):
            found = {value for value, is_chosen in zip(row, mask, strict=True) if is_chosen}
            assert found == set(sorted(row)[-count:])


def test_largest_breaks_ties_uniformly(generator):
    """0.9 is always among the two; each of the three 0.5s as often as the others, 0.1 never."""
    values = torch.tensor([0.5, 0.9, 0.1, 0.5, 0.5]).expand(DRAWS, 5)
    counts = largest(values, 2, torch.rand(DRAWS, 5, generator=generator)).sum(dim=0)
    assert counts[[1, 2]].tolist() == [DRAWS, 0]
    assert chi_square(counts[[0, 3, 4]], [1 / 3] * 3) < 18.4  # 2 degrees of freedom, p = 10⁻⁴


def test_largest_pairs_of_equals_are_uniform(generator):
    """All ten gates open wide: every one of the ten pairs of five as often."""
    chosen = largest(torch.ones(DRAWS, 5), 2, torch.rand(DRAWS, 5, generator=generator))
    pairs = (chosen * torch.tensor([1, 2, 4, 8, 16])).sum(dim=1)
    counts = [int((pairs == 2**a + 2**b).sum()) for a, b in itertools.combinations(range(5), 2)]
    assert sum(counts) == DRAWS
    assert chi_square(counts, [1 / 10] * 10) < 33.7  # 9 degrees of freedom, p = 10⁻⁴


def test_one_hot_takes_the_first_of_equals():
    assert one_hot(torch.tensor([[1.0, 3.0, 3.0], [0.0, 0.0, 0.0]])).tolist() == [[0, 1, 0], [1, 0, 0]]


def test_entropy():
    rows = [[0.25] * 4, [1.0, 0.0, 0.0, 0.0], [2.0, 2.0, 0.0, 0.0], [0.0] * 4, [0.1, 0.2, 0.3, 0.4]]
    by_hand = -sum(p * math.log(p) for p in (0.1, 0.2, 0.3, 0.4)) / math.log(4)
    assert entropy(torch.tensor(rows, dtype=torch.float64)).tolist() == pytest.approx(
        [1.0, 0.0, 0.5, 0.0, by_hand], abs=1e-12
    )


@pytest.mark.parametrize("epochs", [2, 3, 7, 200])
def test_linear_ends_exactly_where_it_should(epochs):
    values = [linear(10.0, 0.1, epoch, epochs) for epoch in range(epochs)]
    assert values[0] == 10.0
    assert values[-1] == pytest.approx(0.1, abs=1e-14)
    steps = [b - a for a, b in itertools.pairwise(values)]
    assert steps == pytest.approx([-9.9 / (epochs - 1)] * (epochs - 1), rel=1e-9)


def test_linear_of_a_single_epoch():
    assert linear(10.0, 0.1, 0, 1) == 10.0


def test_several_draws_of_a_row_are_a_sample_without_replacement(generator):
    """P(a, b) = p_a p_b/(1 − p_a) + p_b p_a/(1 − p_b), by counting; the gradient is the softmax'."""
    beta = torch.tensor([[0.5, -1.0, 0.0, 1.0]])
    p = torch.softmax(beta, dim=-1)[0].tolist()
    expected = {
        (a, b): p[a] * p[b] / (1 - p[a]) + p[b] * p[a] / (1 - p[b]) for a in range(4) for b in range(a + 1, 4)
    }
    draws = 20_000
    noise = uniform_noise(torch.empty(draws, 4), generator)
    sampled = straight_through_gumbel(beta.expand(draws, 4), noise, 1.0, 2)
    assert sampled.sum(dim=1).round().unique().tolist() == [2.0]
    for pair, probability in expected.items():
        share = float((sampled[:, list(pair)] > 0.5).all(dim=1).double().mean())
        assert within_chance(share, probability, draws)
    one, two = (beta.clone().requires_grad_() for _ in range(2))
    grads = [
        torch.autograd.grad((straight_through_gumbel(b, noise[:1], 1.0, draw) * beta).sum(), b)[0]
        for b, draw in ((one, 1), (two, 3))
    ]
    torch.testing.assert_close(*grads)
