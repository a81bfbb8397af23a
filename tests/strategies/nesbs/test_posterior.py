"""p_α against enumeration: probabilities, divergence, samples, and the optimum of the objective."""

import math
from collections import Counter

import pytest
import torch

from nas_lightning.genotype import Genotype
from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.spaces.darts_nasi import DartsNasi
from nas_lightning.strategies.nesbs.posterior import Architectures
from nas_lightning.strategies.one_shot.relaxations import uniform_noise


def zeros(space):
    return {name: torch.zeros(group.shape, dtype=torch.float64) for name, group in space.groups.items()}


def noise_of(logits, generator):
    return {name: uniform_noise(matrix, generator) for name, matrix in logits.items()}


def probability_by_hand(space, logits, genotype):
    """Per node: this edge and operation first and that one second, or the other way round."""
    total = 1.0
    for kind, cell in genotype:
        group = space.groups[kind]
        for node in sorted({edge.target for edge in cell.edges}):
            weight = {
                (source, op): math.exp(logits[kind][row, column])
                for row, (source, target) in enumerate(group.edges)
                for column, op in enumerate(group.ops)
                if target == node and op != "none"
            }
            first, second = ((edge.source, edge.op) for edge in cell.into(node))
            everything = sum(weight.values())

            def then(a, b, weight=weight, everything=everything):
                left = sum(w for (source, _), w in weight.items() if source != a[0])
                return weight[a] / everything * weight[b] / left

            total *= then(first, second) + then(second, first)
    return total


def test_probabilities_of_all_architectures(small_darts, every_architecture, logits):
    alpha = logits(small_darts)
    distribution = Architectures(small_darts)
    expected = [probability_by_hand(small_darts, alpha, genotype) for genotype in every_architecture]
    assert sum(expected) == pytest.approx(1, abs=1e-9)
    found = [
        float(distribution.log_probability(alpha, small_darts.one_hot(genotype)).exp())
        for genotype in every_architecture[::11]
    ]
    assert found == pytest.approx(expected[::11], rel=1e-9)


def test_divergence_from_the_prior_by_enumeration(small_darts, every_architecture, logits):
    alpha = logits(small_darts)
    p = [probability_by_hand(small_darts, alpha, genotype) for genotype in every_architecture]
    expected = sum(each * math.log(each * len(p)) for each in p)
    assert float(Architectures(small_darts).kl_to_uniform(alpha)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("space", [NasBench201(), DartsSpace(), DartsNasi()], ids=lambda space: space.name)
def test_the_prior_is_uniform(space, generator):
    """As the space draws: with α = 0 all architectures are equally probable."""
    distribution = Architectures(space)
    one_hots = [space.one_hot(space.sample(generator)) for _ in range(20)]
    found = {round(float(distribution.log_probability(zeros(space), one_hot)), 9) for one_hot in one_hots}
    sizes = {"nasbench201": 5**6, "darts": (49 * 147 * 294 * 490) ** 2}
    sizes["darts_nasi"] = (21**4 * 1 * 3 * 6 * 10) ** 2  # two of seven operations, two of the nodes before
    assert found == {round(-math.log(sizes[space.name]), 9)}
    assert float(distribution.kl_to_uniform(zeros(space))) == pytest.approx(0, abs=1e-9)


def test_samples_come_as_often_as_they_are_probable(small_darts, every_cell, logits, generator):
    """χ² over the 48 normal cells; every reduction cell has 1/48 of the probability."""
    alpha = {"normal": logits(small_darts, 0.7)["normal"], "reduce": zeros(small_darts)["reduce"]}
    distribution, draws, counts = Architectures(small_darts), 4000, Counter()
    for _ in range(draws):
        weights = distribution.sample(alpha, noise_of(alpha, generator), tau=1.0)
        counts[small_darts.discretize(weights)["normal"]] += 1
    statistic = total = 0.0
    for cell in every_cell:
        genotype = Genotype("darts", {"normal": cell, "reduce": every_cell[0]})
        p = 48 * probability_by_hand(small_darts, alpha, genotype)
        statistic, total = statistic + (counts[cell] - draws * p) ** 2 / (draws * p), total + p
    assert total == pytest.approx(1)
    assert statistic < 94  # 47 degrees of freedom, p = 6·10⁻⁵


@pytest.mark.parametrize("space", [NasBench201(), DartsSpace(), DartsNasi()], ids=lambda space: space.name)
def test_a_sample_is_an_architecture(space, logits, generator):
    alpha, distribution = logits(space, 2.0), Architectures(space)
    for _ in range(20):
        weights = distribution.sample(alpha, noise_of(alpha, generator), tau=0.5)
        genotype = space.discretize(weights)
        for name, matrix in space.one_hot(genotype).items():
            torch.testing.assert_close(weights[name], matrix.double(), rtol=0, atol=1e-12)


def test_gradients_are_those_of_the_soft_samples(logits, generator):
    """Of a node with three edges: the softmax over its six candidates, and over the other edges' four."""
    space = DartsSpace(nodes=2, ops=("none", "skip_connect", "sep_conv_3x3"))
    alpha = {name: matrix.requires_grad_() for name, matrix in logits(space).items()}
    noise, coefficients = noise_of(alpha, generator), logits(space)
    weights = Architectures(space).sample(alpha, noise, tau=0.7)
    loss = sum((coefficients[name] * matrix).sum() for name, matrix in weights.items())
    (found,) = torch.autograd.grad(loss, [alpha["normal"]])
    other = alpha["normal"].detach().clone().requires_grad_()
    soft = (other - torch.log(-torch.log(noise["normal"]))) / 0.7
    node = soft[2:5, 1:]  # the edges into node 3, without `none`
    first = node.flatten().softmax(0).view(3, 2)
    row = int(node.max(dim=1).values.argmax())
    rest = [r for r in range(3) if r != row]
    second = node[rest].flatten().softmax(0).view(2, 2)
    c = coefficients["normal"][2:5, 1:]
    by_hand = (c * first).sum() + (c[rest] * second).sum()
    for edge in range(2):  # node 2 keeps both of its edges
        by_hand = by_hand + (coefficients["normal"][edge, 1:] * soft[edge, 1:].softmax(0)).sum()
    (expected,) = torch.autograd.grad(by_hand, [other])
    torch.testing.assert_close(found, expected)
    assert bool((found[:, 0] == 0).all())  # an edge that is left out has no parameter


def project(likelihood):
    """arg min_α KL(p_α ‖ p(·|D)) for log p(D|A) = Σ_i ℓ_i[A_i]: the posterior itself, p_i = softmax ℓ_i."""
    return {name: matrix.softmax(dim=1) for name, matrix in likelihood.items()}


def test_the_optimum_of_the_objective_is_the_posterior(cell_space, logits, generator):
    """Independent edges and the exact expectation: what ascends the ELBO ends at p(A|D)."""
    likelihood, distribution = logits(cell_space, 1.5), Architectures(cell_space)
    alpha = {name: matrix.requires_grad_() for name, matrix in zeros(cell_space).items()}
    optimizer = torch.optim.Adam(alpha.values(), lr=0.1)
    for _ in range(600):
        p = distribution.probabilities(alpha)
        expectation = sum((p[name] * likelihood[name]).sum() for name in p)
        loss = distribution.kl_to_uniform(alpha) - expectation
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = distribution.probabilities(alpha)["cell"].detach()
    torch.testing.assert_close(found, project(likelihood)["cell"], rtol=0, atol=1e-5)


def test_the_optimum_by_samples(cell_space, logits, generator):
    """By the straight-through estimator, which is exact as its temperature falls, and by brute force.

    The likelihood has pairs of edges that go well together, so the posterior is no product.
    """
    ops = torch.cartesian_prod(torch.arange(5), torch.arange(5))  # of the first two edges
    single = logits(cell_space, 0.7)["cell"]
    single[2:] = 0
    bonus = torch.randn(5, 5, dtype=torch.float64, generator=generator) * 0.7
    distribution = Architectures(cell_space)

    def log_likelihood(weights):
        a, b = weights[0], weights[1]
        return (weights * single).sum() + a @ bonus @ b

    table = single[0][ops[:, 0]] + single[1][ops[:, 1]] + bonus[ops[:, 0], ops[:, 1]]
    posterior = table.softmax(0)

    alpha = {"cell": zeros(cell_space)["cell"].requires_grad_()}
    optimizer = torch.optim.Adam(alpha.values(), lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 500)
    for _ in range(500):
        loss = distribution.kl_to_uniform(alpha)
        for _ in range(8):
            weights = distribution.sample(alpha, noise_of(alpha, generator), tau=0.3)["cell"]
            loss = loss - log_likelihood(weights) / 8
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    found = distribution.probabilities(alpha)["cell"].detach()

    brute = torch.zeros(2, 5, dtype=torch.float64, requires_grad=True)  # the projection, by enumeration
    optimizer = torch.optim.Adam([brute], lr=0.05)
    for _ in range(600):
        log_p = brute.log_softmax(1)
        log_q = log_p[0][ops[:, 0]] + log_p[1][ops[:, 1]]
        divergence = (log_q.exp() * (log_q - posterior.log())).sum()
        optimizer.zero_grad()
        divergence.backward()
        optimizer.step()
    expected = brute.detach().softmax(1)
    assert float((expected - 0.2).abs().max()) > 0.2  # far from where it started
    torch.testing.assert_close(found[:2], expected, rtol=0, atol=0.05)
    torch.testing.assert_close(found[2:], torch.full((4, 5), 0.2, dtype=torch.float64), rtol=0, atol=0.05)
