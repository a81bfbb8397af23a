"""SVGD-RD: its direction by a loop, its gradients by autograd, figure 5.2, and one particle."""

from itertools import pairwise

import pytest
import torch

from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.strategies.nesbs.posterior import Architectures
from nas_lightning.strategies.nesbs.samplers import set_of_particles
from nas_lightning.strategies.nesbs.svgd import (
    GaussianMixture,
    RelaxedArchitectures,
    direction,
    median_bandwidth,
    svgd_rd,
)

DELTAS = (-1.0, -0.5, 0.0, 0.5, 1.0)


@pytest.fixture
def two_modes():
    """The target of figure 5.2."""
    means = torch.tensor([[-1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    variances = torch.tensor([[0.25, 0.5], [0.25, 0.5]], dtype=torch.float64)
    return GaussianMixture(torch.full((2,), 0.5, dtype=torch.float64), means, variances)


def relaxed_of(space, logits, scale=1.5, **options):
    distribution = Architectures(space)
    p = distribution.probabilities(logits(space, scale))
    return RelaxedArchitectures(distribution.decisions, p, **options)


def start(generator, n):
    return torch.randn(n, 2, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("delta", [-2.0, 0.0, 0.7])
def test_direction_by_a_loop_and_autograd(delta, generator):
    """1/n Σ_j [k(x_j, x_i) s_j + ∇_{x_j} k(x_j, x_i) − δ ∇_{x_i} k(x_j, x_i)], one pair at a time."""
    x, s = (torch.randn(4, 3, dtype=torch.float64, generator=generator) for _ in range(2))
    h = 1.7
    expected = torch.zeros_like(x)
    for i in range(4):
        for j in range(4):
            a, b = x[j].clone().requires_grad_(), x[i].clone().requires_grad_()
            k = torch.exp(-((a - b) ** 2).sum() / h)
            to_j, to_i = torch.autograd.grad(k, [a, b])
            expected[i] += (k.detach() * s[j] + to_j - delta * to_i) / 4
    torch.testing.assert_close(direction(x, s, delta, bandwidth=h), expected)


def test_median_bandwidth(generator):
    x = torch.randn(5, 2, dtype=torch.float64, generator=generator)
    squared = sorted(float(((x[i] - x[j]) ** 2).sum()) for i in range(5) for j in range(i))
    h = median_bandwidth(torch.cdist(x, x).square())
    assert float(h) == pytest.approx(squared[4] / torch.log(torch.tensor(6.0)).item(), rel=1e-6)
    assert float(median_bandwidth(torch.zeros(1, 1))) > 0
    assert bool(torch.isfinite(direction(torch.ones(3, 2), torch.ones(3, 2), 1.0)).all())  # at one place


def test_gradient_of_the_mixture(two_modes, generator):
    x = 2 * start(generator, 20)
    component = [
        torch.distributions.Independent(torch.distributions.Normal(mean, variance.sqrt()), 1)
        for mean, variance in zip(two_modes.means, two_modes.variances, strict=True)
    ]
    expected = (component[0].log_prob(x).exp() / 2 + component[1].log_prob(x).exp() / 2).log()
    torch.testing.assert_close(two_modes.log_density(x), expected)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(two_modes.log_density(x).sum(), [x])
    torch.testing.assert_close(two_modes.score(x.detach()), gradient)


@pytest.mark.parametrize("variance", ["operations", "candidates"])
@pytest.mark.parametrize("space", [NasBench201(), DartsSpace(nodes=3)], ids=lambda space: space.name)
def test_gradient_of_the_relaxed_posterior(space, variance, logits, generator):
    relaxed = relaxed_of(space, logits, variance=variance)
    x = 3 * relaxed.start(4, generator)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(relaxed.log_density(x).sum(), [x])
    torch.testing.assert_close(relaxed.score(x.detach()), gradient)


def test_relaxed_posterior_by_its_definition(cell_space, logits, generator):
    """Π_i Σ_o p_i(o) N(o_i | h_o, 5 I), up to its constant."""
    relaxed = relaxed_of(cell_space, logits)
    generator.manual_seed(0)  # the logits that `relaxed_of` drew
    p = Architectures(cell_space).probabilities(logits(cell_space, 1.5))["cell"]
    x = relaxed.start(3, generator)
    identity = torch.eye(5, dtype=torch.float64)
    expected = torch.zeros(3, dtype=torch.float64)
    for row in range(6):
        of_row = x.unflatten(1, (6, 5))[:, row]
        normal = [
            torch.distributions.MultivariateNormal(identity[o], 5 * identity).log_prob(of_row).exp()
            for o in range(5)
        ]
        expected += sum(p[row, o] * normal[o] for o in range(5)).log()
    difference = relaxed.log_density(x) - expected
    torch.testing.assert_close(difference, difference[0].expand(3))


@pytest.mark.parametrize(
    ("variance", "expected"), [("operations", [7.0] * 5), ("candidates", [7, 7, 21, 28, 35])]
)
def test_variances_count_operations_or_candidates(variance, expected, logits):
    """DARTS: seven operations on each of the edges into the first node, and on 3, 4 and 5 into the others."""
    found = relaxed_of(DartsSpace(), logits, variance=variance).variance.flatten().tolist()
    assert found == [*expected, *expected]


def test_narrow_gaussians_find_more_probable_architectures(generator):
    """Wide ones flatten the posterior that the particles climb."""
    space, distribution = DartsSpace(), Architectures(DartsSpace())
    found = {}
    for variance in ("operations", "candidates"):
        generator.manual_seed(0)
        logits = {name: 2 * torch.randn(g.shape, generator=generator) for name, g in space.groups.items()}
        relaxed = RelaxedArchitectures(distribution.decisions, distribution.probabilities(logits), variance)
        particles = svgd_rd(relaxed.start(5, generator), relaxed.score, delta=0.0, steps=300)
        members = set_of_particles(space, relaxed, particles)
        one_hots = [{name: m.double() for name, m in space.one_hot(member).items()} for member in members]
        found[variance] = sum(float(distribution.log_probability(logits, m)) for m in one_hots)
    assert found["operations"] > found["candidates"] + 5


def test_particles_cover_both_modes(two_modes, generator):
    for delta in (0.0, 0.5, 1.0):
        found = svgd_rd(start(generator, 15), two_modes.score, delta=delta)
        of_first = int((torch.cdist(found, two_modes.means).argmin(dim=1) == 0).sum())
        assert 5 <= of_first <= 10


def test_distances_grow_with_delta(two_modes, generator):
    """With the parameters of figure 5.2: L = 1000, n = 15, ε = 0.1."""
    initial = start(generator, 15)
    distances = [
        float(torch.pdist(svgd_rd(initial, two_modes.score, delta=delta)).mean()) for delta in DELTAS
    ]
    assert all(b > a + 0.1 for a, b in pairwise(distances))


def maximum(two_modes, x):
    """Newton's method for ∇ log p = 0, from where `x` is."""
    for _ in range(50):
        jacobian = torch.autograd.functional.jacobian(lambda p: two_modes.score(p[None])[0], x)
        x = x - torch.linalg.solve(jacobian, two_modes.score(x[None])[0])
    return x


@pytest.mark.parametrize("delta", [-2.0, -0.5, 0.0, 1.0])
def test_one_particle_climbs_to_the_maximum(two_modes, generator, delta):
    """Proposition 5.2, from several starts. Both maxima are equally high, by symmetry."""
    tops = [maximum(two_modes, mean) for mean in two_modes.means]
    for _ in range(4):
        (found,) = svgd_rd(start(generator, 1), two_modes.score, delta=delta)
        assert min(float((found - top).abs().max()) for top in tops) < 1e-3


@pytest.mark.parametrize("delta", [-2.0, 1.0])
@pytest.mark.parametrize("space", [NasBench201(), DartsSpace(nodes=3)], ids=lambda space: space.name)
def test_one_particle_stands_for_the_mode(space, logits, generator, delta):
    """Its density is the largest, by gradient ascent from zero, and its architecture the most probable."""
    relaxed = relaxed_of(space, logits, 3.0)
    (found,) = svgd_rd(relaxed.start(1, generator), relaxed.score, delta=delta)
    x = torch.zeros_like(found)
    for _ in range(4000):
        x = x + relaxed.score(x[None])[0]
    torch.testing.assert_close(found, x, rtol=0, atol=1e-3)
    generator.manual_seed(0)
    p = Architectures(space).probabilities(logits(space, 3.0))
    assert space.discretize(relaxed.scores(found)) == space.discretize(p)


@pytest.mark.parametrize("space", [NasBench201(), DartsSpace(nodes=3)], ids=lambda space: space.name)
def test_a_particle_goes_to_its_nearest_architecture(space, logits, generator):
    """No neighbor's one-hot vectors are nearer, by the distance itself (5.9)."""
    relaxed = relaxed_of(space, logits)
    for particle in 2 * relaxed.start(3, generator):
        scores = relaxed.scores(particle)
        genotype = space.discretize(scores)

        def distance(other, scores=scores):
            one_hot = space.one_hot(other)
            return sum(float(((one_hot[name] - scores[name]) ** 2).sum()) for name in scores)

        assert distance(genotype) < min(distance(other) for other in space.neighbors(genotype))
