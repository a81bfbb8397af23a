"""Each sampler against its distribution, and its gradient against the derivative of an expectation."""

from itertools import product

import pytest
import torch
from scipy import stats

from nas_lightning.errors import InputError
from nas_lightning.spaces import NasBench1Shot1, NasBench201
from nas_lightning.spaces.base import Group
from nas_lightning.strategies import OneShot
from nas_lightning.strategies.oneshot.relaxations import uniform_noise
from nas_lightning.strategies.oneshot.samplers.concrete import Concrete
from nas_lightning.strategies.oneshot.samplers.dirichlet import Dirichlet, concentration, gamma_quantile
from nas_lightning.strategies.oneshot.samplers.fair import Fair, fair_paths
from nas_lightning.strategies.oneshot.samplers.reinmax import ReinMax, reinmax
from nas_lightning.strategies.oneshot.samplers.uniform import Uniform
from nas_lightning.strategies.oneshot.selection.candidates import RandomCandidates
from nas_lightning.strategies.oneshot.values import Epoch

GROUP = Group(((0, 1), (0, 2), (1, 2)), ("skip_connect", "nor_conv_3x3", "avg_pool_3x3", "nor_conv_1x1"))
START = Epoch(0, 3)


def parameters(generator, scale=1.0):
    return scale * torch.randn(GROUP.shape, generator=generator, dtype=torch.float64)


# Dirichlet


def test_quantiles_are_those_of_the_gamma_distribution(generator):
    c = torch.rand(200, generator=generator, dtype=torch.float64) * 5 + 0.05
    u = torch.rand(200, generator=generator, dtype=torch.float64)
    expected = torch.as_tensor(stats.gamma(c.numpy()).ppf(u.numpy()))
    torch.testing.assert_close(gamma_quantile(c, u), expected, rtol=1e-9, atol=1e-30)


def test_the_implicit_derivative_is_that_of_the_quantile(generator):
    """∂F⁻¹(u; c)/∂c by central differences of scipy's quantile."""
    c = (torch.rand(200, generator=generator, dtype=torch.float64) * 4 + 0.2).requires_grad_()
    u = torch.rand(200, generator=generator, dtype=torch.float64) * 0.98 + 0.01
    (found,) = torch.autograd.grad(gamma_quantile(c, u).sum(), c)
    step = 1e-5
    above, below = (stats.gamma((c.detach() + s).numpy()).ppf(u.numpy()) for s in (step, -step))
    torch.testing.assert_close(
        found, torch.as_tensor((above - below) / (2 * step)), rtol=1e-3, atol=1e-5
    )  # torch's own series


def test_samples_have_the_mean_and_the_variance_of_the_distribution(generator):
    beta = parameters(generator)
    c = concentration(beta)
    draws = torch.stack(
        [Dirichlet().weights(beta, [uniform_noise(beta, generator)], START, GROUP) for _ in range(4000)]
    )
    total = c.sum(dim=-1, keepdim=True)
    mean = c / total
    torch.testing.assert_close(draws.sum(dim=-1), torch.ones(4000, 3, dtype=torch.float64))
    torch.testing.assert_close(draws.mean(dim=0), mean, rtol=0, atol=0.02)
    torch.testing.assert_close(draws.var(dim=0), mean * (1 - mean) / (total + 1), rtol=0.15, atol=2e-3)
    assert torch.equal(Dirichlet().probabilities(beta, START, GROUP), mean)


def test_its_gradient_is_that_of_an_expectation(generator):
    """E[w·a] has the gradient of the mean's c/Σc · a, whatever a."""
    beta = parameters(generator).requires_grad_()
    a = torch.randn(GROUP.shape, generator=generator, dtype=torch.float64)
    draws = 3000
    sampled = sum(
        (Dirichlet().weights(beta, [uniform_noise(beta, generator)], START, GROUP) * a).sum()
        for _ in range(draws)
    )
    (found,) = torch.autograd.grad(sampled / draws, beta)
    (expected,) = torch.autograd.grad((Dirichlet().probabilities(beta, START, GROUP) * a).sum(), beta)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.04)


# Concrete


def test_the_largest_weight_is_a_categorical_sample(generator):
    beta, sampler = parameters(generator), Concrete()
    counts = torch.zeros(GROUP.shape, dtype=torch.float64)
    for _ in range(4000):
        weights = sampler.weights(beta, [uniform_noise(beta, generator)], START, GROUP)
        counts.scatter_add_(1, weights.argmax(dim=1, keepdim=True), torch.ones(3, 1, dtype=torch.float64))
    torch.testing.assert_close(counts / 4000, torch.softmax(beta, dim=-1), rtol=0, atol=0.03)


def test_a_low_temperature_is_one_hot(generator):
    beta = parameters(generator)
    noise = [uniform_noise(beta, generator)]
    hot, cold = (Concrete().weights(beta, noise, Epoch(e, 3), GROUP) for e in (0, 2))
    assert torch.equal(hot.argmax(dim=1), cold.argmax(dim=1))
    assert bool((cold.max(dim=1).values > hot.max(dim=1).values).all())


# ReinMax


def test_reinmax_is_exact_for_quadratic_functions(generator):
    """The mean of its estimate over D is ∂E[f(D)]/∂β, which straight-through's is not."""
    beta = torch.randn(1, 4, generator=generator, dtype=torch.float64).requires_grad_()
    q = torch.randn(4, 4, generator=generator, dtype=torch.float64)

    def f(d):
        return (d @ q @ d.T).sum() + (d @ q[:, :1]).sum()

    p = torch.softmax(beta, dim=-1)
    corners = torch.eye(4, dtype=torch.float64)
    (expected,) = torch.autograd.grad(sum(p[0, k] * f(corners[k : k + 1]) for k in range(4)), beta)
    found, euler = torch.zeros_like(beta), torch.zeros_like(beta)
    for k in range(4):
        noise = torch.full((1, 4), 0.01, dtype=torch.float64)
        noise[0, k] = 1 - 1e-12  # draws k
        sample = reinmax(beta, noise, 1.0)
        assert torch.equal(sample.detach(), corners[k : k + 1])
        found += p[0, k].detach() * torch.autograd.grad(f(sample), beta)[0]
        soft = torch.softmax(beta, dim=-1)
        euler += p[0, k].detach() * torch.autograd.grad(f(corners[k : k + 1] + soft - soft.detach()), beta)[0]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    assert float((euler - expected).abs().max()) > 1e-3


def test_a_weight_step_computes_a_path_and_an_architecture_step_everything():
    space = NasBench201()
    supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    strategy = OneShot(space, supernet, sampler=ReinMax())
    relaxed = strategy.relax()
    assert relaxed.active is None
    assert relaxed.weights["cell"].requires_grad
    assert (relaxed.weights["cell"].detach() > 0).sum(dim=1).tolist() == [1] * 6


# Fair paths


def test_the_paths_of_a_step_take_every_operation_once(generator):
    paths = fair_paths(torch.rand(GROUP.shape, generator=generator))
    assert len(paths) == 4
    assert all(path.sum(dim=1).tolist() == [1.0] * 3 for path in paths)
    assert torch.equal(sum(paths), torch.ones(GROUP.shape))


def test_the_order_of_operations_is_uniform(generator):
    counts = torch.zeros(4, 4)
    for _ in range(2000):
        first, second, *_ = fair_paths(torch.rand(1, 4, generator=generator))
        counts[int(first.argmax()), int(second.argmax())] += 1
    assert counts.diagonal().tolist() == [0.0] * 4
    expected = 2000 / 12
    off = [counts[a, b] for a, b in product(range(4), repeat=2) if a != b]
    assert sum((count - expected) ** 2 / expected for count in off) < 34  # 11 degrees of freedom, p = 4·10⁻⁴


def test_a_fair_step_adds_the_gradients_of_its_paths(data, trainer, cell_space, supernet, bare):
    """One step of SGD on the sum over m paths, found again by backward passes of each."""
    search = data()
    selection = RandomCandidates(candidates=2)
    strategy = OneShot(
        *(cell_space, supernet(cell_space), search), sampler=Fair(), selection=selection, lr=0.1, clip=1e9
    )
    strategy.double()
    before = [w.detach().clone() for w in strategy.weight_list]
    drawn, own = [], strategy.relax
    strategy.relax = lambda noise=None: drawn.append(own(noise)) or drawn[-1]
    trainer(1, limit_train_batches=1, precision="64-true").fit(strategy, search)
    after = [w.detach().clone() for w in strategy.weight_list]
    assert len(drawn) == 5
    assert torch.equal(sum(relaxed.weights["cell"] for relaxed in drawn), torch.ones(6, 5))
    with torch.no_grad():
        for weight, old in zip(strategy.weight_list, before, strict=True):
            weight.copy_(old)
    x, y = next(iter(search.train_dataloader()))["train"]
    losses = [strategy.cross_entropy((x.double(), y), relaxed)[0] for relaxed in drawn]
    slopes = torch.autograd.grad(torch.stack(losses).sum(), strategy.weight_list, allow_unused=True)
    for new, old, slope in zip(after, before, slopes, strict=True):
        step = 0.0 if slope is None else 0.1 * (slope + 3e-4 * old)  # what no path reaches stays
        torch.testing.assert_close(new, old - step, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sampler", [Fair(), ReinMax()])
def test_spaces_that_they_are_not_defined_for(sampler):
    space = NasBench1Shot1(1)
    supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    selection = None if sampler.learns else RandomCandidates()
    with pytest.raises(InputError, match=r"^expected a space"):
        OneShot(space, supernet, object(), sampler=sampler, selection=selection)


@pytest.mark.parametrize("name", ["uniform", "fair"])
def test_paths_have_no_probabilities(name, refusal, cell_space, supernet, data):
    """A search with them has none to say either."""
    sampler = {"uniform": Uniform(), "fair": Fair()}[name]
    message = refusal(sampler.probabilities, torch.zeros(6, 5), Epoch(0, 2), cell_space.group)
    assert message.startswith("expected a sampler with parameters, which probabilities are of, got ")
    search = OneShot(cell_space, supernet(cell_space), data(), sampler=sampler, selection=RandomCandidates())
    assert search.probabilities() == search.scores() == {}
