"""Samplers against their distributions and gradients, and all possible draws of small spaces."""

import dataclasses
import math
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from pytorch_lightning import Trainer
from scipy import stats
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.spaces import NasBench1Shot1, NasBench201, TwoLayer
from nas_lightning.spaces.group import Group
from nas_lightning.strategies import OneShot
from nas_lightning.strategies.one_shot.parts import Epoch
from nas_lightning.strategies.one_shot.relaxations import uniform_noise
from nas_lightning.strategies.one_shot.samplers import (
    ClippedSkips,
    Concrete,
    Dirichlet,
    Fair,
    Gumbel,
    HardConcrete,
    ReinMax,
    Sigmoid,
    Simplex,
    Softmax,
    Uniform,
    concentration,
    fair_paths,
    gamma_quantile,
    reinmax,
)
from nas_lightning.strategies.one_shot.selection import RandomCandidates
from tests.strategies.one_shot.parts_by_name import options, part

# Each sampler against its distribution, and its gradient against the derivative of an expectation.


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
    losses = [strategy.loss_and_logits((x.double(), y), relaxed)[0] for relaxed in drawn]
    slopes = torch.autograd.grad(torch.stack(losses).sum(), strategy.weight_list, allow_unused=True)
    for new, old, slope in zip(after, before, slopes, strict=True):
        step = 0.0 if slope is None else 0.1 * (slope + 3e-4 * old)  # what no path reaches stays
        torch.testing.assert_close(new, old - step, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sampler", [Fair(), ReinMax()])
def test_fair_and_reinmax_reject_incompatible_spaces(sampler, data):
    space = NasBench1Shot1(1)
    supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    selection = None if sampler.learns else RandomCandidates()
    with pytest.raises(InputError, match=r" needs? a space"):
        OneShot(space, supernet, data(), sampler=sampler, selection=selection)


@pytest.mark.parametrize("name", ["uniform", "fair"])
def test_paths_have_no_probabilities(name, refusal, cell_space, supernet, data):
    """A search with them has none to say either."""
    sampler = {"uniform": Uniform(), "fair": Fair()}[name]
    message = refusal(sampler.probabilities, torch.zeros(6, 5), Epoch(0, 2), cell_space.group)
    assert message.startswith("The sampler must have parameters, because probabilities")
    search = OneShot(cell_space, supernet(cell_space), data(), sampler=sampler, selection=RandomCandidates())
    assert search.probabilities() == search.scores() == {}


# Every sampler, row by row

SAMPLERS = [
    *(Softmax(), Concrete(), Gumbel(), ReinMax(), HardConcrete(), Dirichlet(), Sigmoid(), Simplex()),
    ClippedSkips(),
]
SKIPS = Group(((0, 1), (0, 2), (1, 2)), ("none", "skip_connect"))
PLAIN = SimpleNamespace(groups={"cell": GROUP}, name="plain")


def softmax(row):
    total = sum(math.exp(value) for value in row)
    return [math.exp(value) / total for value in row]


def draw_weights(sampler, beta, generator):
    return sampler.draw({"cell": beta}, PLAIN, generator)["cell"]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
def test_class_attributes_describe_the_sampler(sampler, generator):
    beta = parameters(generator)
    if sampler.on_simplex:
        beta = torch.softmax(beta, dim=1)
    noises = [draw_weights(sampler, beta, generator) for _ in range(40)]
    weights = [sampler.weights(beta, noise, START, GROUP) for noise in noises]
    assert {len(noise) for noise in noises} == {sampler.noises}
    assert (len({str(w > 0) for w in weights}) > 1) is sampler.varies
    sums = torch.stack(weights).sum(dim=2)
    assert torch.allclose(sums, torch.ones_like(sums)) is sampler.shares
    moved = sampler.weights(beta + torch.tensor([[1.0], [-2.0], [0.5]]), noises[0], START, GROUP)
    follows_differences = torch.allclose(moved, weights[0])
    assert follows_differences is (sampler.softmax or isinstance(sampler, ClippedSkips))
    relaxed = sampler.relax({"cell": beta}, {"cell": noises[0]}, START, {"cell": GROUP})
    assert torch.equal(relaxed.weights["cell"], weights[0])
    if sampler.sparse:
        assert torch.equal(relaxed.active["cell"], weights[0] > 0)
    else:
        assert relaxed.active is None
    start = sampler.initial(GROUP, generator)
    assert torch.allclose(start.sum(dim=1), torch.ones(3)) is sampler.on_simplex


@pytest.mark.parametrize(
    "sampler",
    [Softmax(), Concrete(), Gumbel(), ReinMax(tau=2.0), Dirichlet(), ClippedSkips()],
    ids=lambda sampler: type(sampler).__name__,
)
def test_rows_of_many_matrices_are_rows(sampler, generator):
    """The last dimension is that of the operations, whatever stands before; other noise is not looked at."""
    betas = [parameters(generator) for _ in range(2)]
    noises = [[uniform_noise(beta, generator) for _ in range(sampler.noises)] for beta in betas]
    both, noise = torch.stack(betas), [torch.stack(pair) for pair in zip(*noises, strict=True)]
    alone = [sampler.weights(b, n, START, GROUP) for b, n in zip(betas, noises, strict=True)]
    together = both.clone().requires_grad_()
    weights = sampler.weights(together, [*noise, torch.rand(both.shape)], START, GROUP)
    torch.testing.assert_close(weights.detach(), torch.stack(alone))
    probabilities = torch.stack([sampler.probabilities(b, START, GROUP) for b in betas])
    torch.testing.assert_close(sampler.probabilities(both, START, GROUP), probabilities)
    a = torch.randn(GROUP.shape, generator=generator, dtype=torch.float64)
    (slopes,) = torch.autograd.grad((weights * a).sum(), together)
    for beta, own, slope in zip(betas, noises, slopes, strict=True):
        one = beta.clone().requires_grad_()
        (expected,) = torch.autograd.grad((sampler.weights(one, own, START, GROUP) * a).sum(), one)
        torch.testing.assert_close(slope, expected)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
def test_each_matrix_of_noise_matters(sampler, generator):
    """Parameters that differ, or that are so large that all gates are open and only ties are left."""
    betas = parameters(generator, 0.1), torch.full(GROUP.shape, 50.0, dtype=torch.float64)
    noise = draw_weights(sampler, betas[0], generator)
    for number in range(len(noise)):
        others = [uniform_noise(betas[0], generator) for _ in range(9)]
        changed = [[*noise[:number], other, *noise[number + 1 :]] for other in [noise[number], *others]]
        found = [{str(sampler.weights(beta, one, START, GROUP)) for one in changed} for beta in betas]
        assert max(map(len, found)) > 1, f"matrix {number} of {len(noise)}"


def test_sparse_samplers():
    assert {type(s) for s in SAMPLERS if s.sparse} == {Gumbel, HardConcrete}
    assert {type(s) for s in SAMPLERS if s.varies} == {Gumbel, HardConcrete, ReinMax}
    assert {type(s) for s in SAMPLERS if s.on_simplex} == {Simplex}
    assert {type(s) for s in SAMPLERS if s.softmax} == {Softmax, Concrete, Gumbel, ReinMax}
    with pytest.raises(InputError, match="tau"):
        ReinMax(tau=0.5)
    assert Uniform().varies
    assert Fair().varies
    assert not Uniform().learns


@pytest.mark.parametrize("sampler", [Softmax(), Concrete(), Gumbel(), ReinMax(), ClippedSkips()])
def test_probabilities_are_a_softmax(sampler, generator):
    beta = parameters(generator)
    expected = torch.tensor([softmax(row) for row in beta.tolist()], dtype=torch.float64)
    torch.testing.assert_close(sampler.probabilities(beta, START, GROUP), expected)
    if isinstance(sampler, Softmax):
        torch.testing.assert_close(sampler.weights(beta, [], START, GROUP), expected)


def test_a_simplex_starts_in_its_middle(generator):
    assert Simplex().initial(GROUP, generator).tolist() == [[0.25] * 4] * 3


def test_concentrations_are_those_of_the_paper():
    beta = torch.tensor([[-2.0, -0.5, 0.0, 0.5, 3.0]], dtype=torch.float64)
    expected = [math.exp(b) if b <= 0 else b + 1 for b in beta[0].tolist()]
    torch.testing.assert_close(concentration(beta)[0], torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("ops", [("none", "skip_connect"), ("skip_connect", "none")])
def test_a_skip_is_clipped_where_nothing_else_may_be_chosen(ops, generator):
    sampler, group = ClippedSkips(), Group(SKIPS.edges, ops)
    assert sampler.initial(group, generator).tolist() == [[0.5]] * 3
    alpha = torch.tensor([[0.2], [0.5], [0.9]])
    weights = sampler.weights(alpha, [], START, group)
    torch.testing.assert_close(weights[:, ops.index("skip_connect")], alpha[:, 0])
    torch.testing.assert_close(weights[:, ops.index("none")], 1 - alpha[:, 0])
    assert sampler.project(torch.tensor([[-0.5], [0.5], [1.5]]), group).tolist() == [[0.0], [0.5], [1.0]]
    assert not sampler.decays(group)


def test_a_skip_among_others_is_one_of_a_softmax(generator):
    sampler = ClippedSkips()
    for ops in (GROUP.ops, ("skip_connect",), ("none", "skip_connect", "nor_conv_3x3")):
        group = Group(GROUP.edges, ops)
        beta = 3 * torch.randn(3, len(ops), generator=generator)
        assert sampler.decays(group)
        assert sampler.initial(group, generator).shape == (3, len(ops))
        assert torch.equal(sampler.project(beta, group), beta)
        expected = torch.tensor([softmax(row) for row in beta.tolist()])
        torch.testing.assert_close(sampler.weights(beta, [], START, group), expected)


def test_gates_have_a_noise_and_their_ties_another(generator):
    """Equation by equation for each entry; of equal gates the tie's noise chooses."""
    sampler, beta = HardConcrete(tau_start=2.0, active_ops=2), parameters(generator, 0.1)
    u, ties = (uniform_noise(beta, generator) for _ in range(2))
    weights = sampler.weights(beta, [u, ties], START, GROUP)
    for row in range(3):
        gates = []
        for x, b in zip(u[row].tolist(), beta[row].tolist(), strict=True):
            inner = 1 / (1 + math.exp(-(math.log(x) - math.log(1 - x) + b) / 2.0))
            gates.append(min(1.0, max(0.0, -0.1 + 1.2 * inner)))
        kept = sorted(gates)[2:]
        assert sorted(w for w in weights[row].tolist() if w > 0) == pytest.approx(kept)
    open_ = torch.full(GROUP.shape, 50.0, dtype=torch.float64)  # every gate is 1
    chosen = {
        str(sampler.weights(open_, [u, uniform_noise(beta, generator)], START, GROUP)) for _ in range(9)
    }
    assert len(chosen) > 1


@pytest.mark.parametrize("active", [1, 2, 3, 4, 5])
def test_no_more_gates_are_open_than_the_smallest_choice_has(active):
    groups = {"a": GROUP, "b": Group(GROUP.edges, GROUP.ops[:3])}
    sampler = HardConcrete(active_ops=active)
    if active <= 3:
        sampler.check(None, SimpleNamespace(groups=groups, name="mine"))
        return
    with pytest.raises(InputError, match=f"`active_ops` must be from 1 to 3, got {active} "):
        sampler.check(None, SimpleNamespace(groups=groups, name="mine"))


def test_stretched_gates_are_options(generator):
    beta, epoch = parameters(generator, 0.1), Epoch(0, of=1)
    found = HardConcrete(tau_start=0.5, low=-0.4, high=1.6).probabilities(beta, epoch, GROUP)
    torch.testing.assert_close(found, torch.sigmoid(beta - 0.5 * math.log(0.4 / 1.6)))
    for wrong, said in (({"low": 0.0}, "must be less than 0"), ({"high": 1.0}, "must be greater than 1")):
        with pytest.raises(InputError, match=said):
            HardConcrete(**wrong)


@pytest.mark.parametrize("tau", [1.0, 2.0, 5.0])
def test_reinmax_has_the_gradient_of_its_two_softmaxes(generator, tau):
    """2 J(π₁)ᵀ a − ½ J(π₀)ᵀ a of algorithm 2, entry by entry."""
    beta = parameters(generator).requires_grad_()
    a, noise = torch.randn(GROUP.shape, dtype=torch.float64), uniform_noise(beta, generator)
    sample = reinmax(beta, noise, tau)
    (found,) = torch.autograd.grad((sample * a).sum(), beta)
    values = (beta.detach() - torch.log(-torch.log(noise))).tolist()
    for row in range(3):
        one = [float(v == max(values[row])) for v in values[row]]
        assert sample[row].tolist() == pytest.approx(one)
        start = softmax(beta[row].tolist())
        cold = softmax([b / tau for b in beta[row].tolist()])
        between = [(d + p) / 2 for d, p in zip(one, cold, strict=True)]
        given = a[row].tolist()

        def pulled(p, given=given):
            mean = sum(x * y for x, y in zip(p, given, strict=True))
            return [x * (y - mean) for x, y in zip(p, given, strict=True)]

        expected = [2 * x - y / 2 for x, y in zip(pulled(between), pulled(start), strict=True)]
        assert found[row].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("sampler", [ReinMax(), Fair()], ids=lambda sampler: type(sampler).__name__)
def test_one_candidate_a_row_is_drawn(sampler):
    two = Group(GROUP.edges, GROUP.ops, draw=2)
    sampler.check(None, PLAIN)
    for groups in ({"cell": two}, {"cell": GROUP, "other": two}):
        with pytest.raises(InputError, match="plain"):
            sampler.check(None, SimpleNamespace(groups=groups, name="plain"))


def test_fair_needs_choices_of_one_size():
    groups = {"a": GROUP, "b": Group(GROUP.edges, GROUP.ops[:3])}
    with pytest.raises(InputError, match="equally many"):
        Fair().check(None, SimpleNamespace(groups=groups, name="mine"))


@pytest.mark.parametrize("kind", [Concrete, Gumbel, HardConcrete])
def test_temperature_schedule(kind):
    one = kind(tau_start=5.0, tau_end=5.0)
    assert one.tau(Epoch(0, 3)) == one.tau(Epoch(2, 3)) == 5.0
    assert one == kind(5.0, 5.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.tau_start = 3.0
    with pytest.raises(InputError, match="tau"):
        kind(tau_start=1.0, tau_end=2.0)
    with pytest.raises(InputError, match="tau_end"):
        kind(tau_end=-1.0)


# Every draw that is possible in a small space gives finite steps of both levels.

CELL = NasBench201().group
OUTPUT = [row for row, (_, target) in enumerate(CELL.edges) if target == 3]
"""The edges into the output of NAS-Bench-201's cell."""


@pytest.fixture
def images():
    draw = torch.Generator().manual_seed(3)
    return torch.randn(4, 1, 8, 8, generator=draw), torch.arange(4) % 2


def search(space, sampler, **size):
    torch.manual_seed(0)
    strategy = OneShot(space, space.supernet(in_channels=1, num_classes=2, **size), sampler=sampler)
    strategy.trainer = Trainer(max_epochs=2, logger=False, enable_checkpointing=False)
    return strategy


def noise_of(columns: list[int], group: Group) -> Tensor:
    """Uniform numbers for which a Gumbel draw takes these columns."""
    noise = torch.full(group.shape, 0.01)
    noise[torch.arange(len(columns)), columns] = 0.99
    return noise


def step(strategy, noise, images):
    """The gradients of an architecture step and of a weight step with this draw."""
    strategy.draw = lambda: noise
    batch = {"train": images, "valid": images}
    relaxed = strategy.relax(noise)
    arch = strategy.arch_gradients(batch)
    loss = strategy.loss(
        "train",
        images,
        type(relaxed)({name: w.detach() for name, w in relaxed.weights.items()}, relaxed.active),
    )
    weights = torch.autograd.grad(loss, strategy.weight_list, allow_unused=True)
    assert bool(torch.isfinite(loss))
    for gradient in (*arch, *weights):
        assert gradient is None or bool(torch.isfinite(gradient).all())
    return arch


def test_every_path_of_two_layers(images):
    space = TwoLayer()
    strategy = search(space, Gumbel(), width=4)
    ((name, group),) = space.groups.items()
    rows, ops = group.shape
    for columns in product(range(ops), repeat=rows):
        step(strategy, {name: [noise_of(list(columns), group)]}, images)


def test_every_draw_into_the_output_of_a_cell(images):
    """`none` on all three edges leaves a loss that no architecture parameter reaches."""
    group = CELL
    strategy = search(NasBench201(), Gumbel(), channels=2, cells=1)
    for columns in product(range(5), repeat=3):
        chosen = [3] * group.shape[0]
        for row, column in zip(OUTPUT, columns, strict=True):
            chosen[row] = column
        (gradient,) = step(strategy, {"cell": [noise_of(chosen, group)]}, images)
        reached = any(group.ops[column] != "none" for column in columns)
        assert (gradient is not None) == reached


def test_gates_that_are_all_closed(images):
    """Uniform numbers near zero close every gate."""
    strategy = search(NasBench201(), HardConcrete(tau_start=0.1), channels=2, cells=1)
    closed = torch.full(CELL.shape, 1e-6)
    assert not bool(strategy.relax({"cell": [closed, closed]}).active["cell"].any())
    step(strategy, {"cell": [closed, closed]}, images)


@pytest.mark.parametrize("name", options("sampler"))
@pytest.mark.parametrize("share", [torch.finfo(torch.float32).tiny, 1 - torch.finfo(torch.float32).eps])
def test_extreme_noise_gives_finite_steps(name, share, images):
    """With parameters far from zero, too."""
    sampler = part("sampler", name)
    if not sampler.learns:
        pytest.skip("has no parameters")
    strategy = search(NasBench201(), sampler, channels=2, cells=1)
    noise = {"cell": [torch.full((6, 5), share) for _ in range(sampler.noises)]}
    step(strategy, noise, images)
    if not sampler.on_simplex:
        with torch.no_grad():
            strategy.arch["cell"].copy_(torch.linspace(-30, 30, 30).view(6, 5))
        step(strategy, noise, images)
