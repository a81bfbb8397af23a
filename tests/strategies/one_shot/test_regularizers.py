"""Regularizers against their definitions and against automatic differentiation."""

import math

import pytest
import torch
from torch.distributions import Dirichlet as TorchDirichlet
from torch.distributions import kl_divergence
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import LayerAlignment, OneShot
from nas_lightning.strategies.one_shot.parts import Epoch, RelaxedWeights
from nas_lightning.strategies.one_shot.regularizers import (
    Anchor,
    BetaDecay,
    alignment,
    alignment_slopes,
    beta_loss,
    kl_from_flat,
)
from nas_lightning.strategies.one_shot.samplers import Dirichlet, concentration

# The terms of the architecture's loss against their definitions in other words.


@pytest.fixture
def beta(generator):
    return (2 * torch.randn(6, 5, generator=generator, dtype=torch.float64)).requires_grad_()


def test_the_distance_from_the_flat_distribution_is_torchs(beta):
    c = concentration(beta.detach())
    expected = kl_divergence(TorchDirichlet(c), TorchDirichlet(torch.ones_like(c)))
    torch.testing.assert_close(kl_from_flat(c), expected, rtol=1e-10, atol=1e-10)
    assert kl_from_flat(torch.ones(2, 4)).abs().max() < 1e-6


def test_the_anchor_adds_edges_up(beta):
    space = NasBench201()
    found = Anchor(0.5).term({"cell": beta}, {}, Epoch(0, 1), space.groups)
    c = concentration(beta)
    expected = kl_divergence(TorchDirichlet(c), TorchDirichlet(torch.ones_like(c))).sum() / 2
    torch.testing.assert_close(found, expected)
    start = torch.zeros(6, 5, requires_grad=True)  # where all concentrations are one
    (slope,) = torch.autograd.grad(Anchor(0.5).term({"cell": start}, {}, Epoch(0, 1), space.groups), start)
    assert float(slope.abs().max()) < 1e-6


def test_beta_decay_is_a_mean_of_smooth_maxima(beta):
    rows = [math.log(sum(math.exp(b) for b in row)) for row in beta.tolist()]
    assert beta_loss([beta[:2], beta[2:]]).item() == pytest.approx(sum(rows) / 6, rel=1e-12)
    (slope,) = torch.autograd.grad(beta_loss([beta]), beta)
    torch.testing.assert_close(slope, torch.softmax(beta, dim=-1) / 6)


@pytest.mark.parametrize(("epoch", "weight"), [(0, 0.0), (50, 25.0), (100, 50.0)])
def test_its_weight_grows_linearly(beta, epoch, weight):
    found = BetaDecay().term({"cell": beta}, {}, Epoch(epoch, 101), NasBench201().groups)
    assert found.item() == pytest.approx(weight * beta_loss([beta]).item())


def test_terms_add_up_in_an_architecture_step(generator):
    space = NasBench201()
    supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    search = OneShot(space, supernet, sampler=Dirichlet(), regularizer={"a": Anchor(1.0), "b": Anchor(0.5)})
    alone = OneShot(space, supernet, sampler=Dirichlet(), regularizer=[Anchor(1.5)])
    torch.testing.assert_close(search.regularization(search.relax()), alone.regularization(alone.relax()))
    loss = torch.tensor(2.0)
    assert torch.equal(
        search.add_penalties(loss, search.relax()), loss + search.regularization(search.relax())
    )
    assert OneShot(space, supernet).add_penalties(loss, search.relax()) is loss


# Λ-DARTS: the gradient of the alignment against automatic differentiation taken twice.

LAST = Epoch(1, 2)
PATH = "|nor_conv_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|avg_pool_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|"


def random_slopes(generator, cells=4):
    return [torch.randn(6, 5, generator=generator, dtype=torch.float64) for _ in range(cells)]


def images(generator, count=8):
    x = torch.randn(count, 1, 8, 8, generator=generator, dtype=torch.float64)
    return x, torch.arange(count) % 3


def test_the_alignment_is_the_mean_cosine_of_pairs(generator):
    slopes = random_slopes(generator)
    pairs = [(a, b) for i, a in enumerate(slopes) for b in slopes[i + 1 :]]
    cosines = [F.cosine_similarity(a.flatten(), b.flatten(), dim=0) for a, b in pairs]
    torch.testing.assert_close(alignment(slopes), torch.stack(cosines).mean())
    assert float(alignment([slopes[0], 3 * slopes[0]])) == pytest.approx(1)
    assert float(alignment([slopes[0], -slopes[0]])) == pytest.approx(-1)


def test_its_slopes_are_its_gradient(generator):
    slopes = [g.requires_grad_() for g in random_slopes(generator)]
    expected = torch.autograd.grad(alignment(slopes), slopes)
    for found, slope in zip(alignment_slopes(slopes), expected, strict=True):
        torch.testing.assert_close(found, slope)


def test_a_cell_without_a_gradient_is_left_out(generator):
    one, two = random_slopes(generator, cells=2)
    zero = torch.zeros_like(one)
    found = alignment_slopes([one, zero, two])
    torch.testing.assert_close(found[::2], alignment_slopes([one, two]))
    assert not found[1].any()
    assert not torch.stack(alignment_slopes([one, zero])).any()


@pytest.mark.parametrize("space", ["cell_space", "darts_space"])
@pytest.mark.parametrize("path", [False, True])
def test_the_gradient_is_that_of_differentiating_twice(space, path, request, supernet, generator):
    """Where no rectifier has its kink between the two ends of the difference."""
    space = request.getfixturevalue(space)
    part = LayerAlignment(scale=1e-5)
    search = OneShot(space, supernet(space, channels=4), regularizer=[part]).double()
    batch, relaxed = images(generator), search.relax()
    if path:
        genotype = space.parse(PATH) if space.name == "nasbench201" else space.sample(generator)
        weights = {n: m.double() for n, m in space.one_hot(genotype).items()}
        relaxed = RelaxedWeights(weights)
    weights = {name: matrix.detach() for name, matrix in relaxed.weights.items()}
    active = {name: matrix != 0 for name, matrix in weights.items()}
    cells = [{n: m.clone().requires_grad_() for n, m in weights.items()} for _ in range(3)]
    loss = F.cross_entropy(search.supernet.by_cell(batch[0], cells, active), batch[1])
    flat = [matrix for cell in cells for matrix in cell.values()]
    slopes = torch.autograd.grad(loss, flat, create_graph=True, allow_unused=True)
    of_cells = [slopes[i : i + len(weights)] for i in range(0, len(slopes), len(weights))]
    total = 0.0
    for of_group in zip(*of_cells, strict=True):
        used = [g for g in of_group if g is not None]
        if len(used) > 1:
            total = total + alignment(used)
    exact = torch.autograd.grad(-0.125 * total, search.weight_list, allow_unused=True)
    found = part.gradients(search, batch, relaxed, LAST)
    one, two = (
        torch.cat(
            [
                torch.zeros_like(w).flatten() if g is None else g.flatten()
                for w, g in zip(search.weight_list, gs, strict=True)
            ]
        )
        for gs in (found, exact)
    )
    assert float(two.norm()) > 1e-3
    assert float((one - two).norm() / two.norm()) < 1e-6


def test_alignment_weight_grows_from_zero(cell_space, supernet, generator):
    search = OneShot(cell_space, supernet(cell_space), regularizer=[LayerAlignment()]).double()
    part, batch = search.regularizers[0], images(generator)
    assert part.gradients(search, batch, search.relax(), Epoch(0, 3)) is None
    half, full = (part.gradients(search, batch, search.relax(), Epoch(number, 3)) for number in (1, 2))
    pairs = [(a, b) for a, b in zip(half, full, strict=True) if a is not None]
    assert all(torch.equal(2 * a, b) for a, b in pairs)


def test_weight_steps_add_the_alignment(cell_space, supernet, generator):
    """And a step along it makes the cells agree more."""
    search = OneShot(cell_space, supernet(cell_space, channels=4), regularizer=[LayerAlignment()]).double()
    search.epoch = LAST
    batch = {"train": images(generator)}
    relaxed = RelaxedWeights({name: w.detach() for name, w in search.relax().weights.items()})
    both = search.weight_gradients(batch, relaxed)
    plain = torch.autograd.grad(search.loss_and_logits(batch["train"], relaxed)[0], search.weight_list)
    extra = search.regularizers[0].gradients(search, batch["train"], relaxed, LAST)
    for total, loss, term in zip(both, plain, extra, strict=True):
        torch.testing.assert_close(total, loss if term is None else loss + term)

    def aligned():
        cells = [{n: m.clone().requires_grad_() for n, m in relaxed.weights.items()} for _ in range(3)]
        loss = F.cross_entropy(search.supernet.by_cell(batch["train"][0], cells), batch["train"][1])
        return float(alignment(torch.autograd.grad(loss, [cell["cell"] for cell in cells])))

    before = aligned()
    with torch.no_grad():
        for weight, term in zip(search.weight_list, extra, strict=True):
            if term is not None:
                weight -= 0.01 * term
    assert aligned() > before


def test_the_same_weights_in_each_cell_are_those_of_all(cell_space, darts_space, supernet, generator):
    for space in (cell_space, darts_space):
        network, (x, _) = supernet(space).double(), images(generator)
        weights = {
            n: torch.rand(g.shape, generator=generator, dtype=torch.float64) for n, g in space.groups.items()
        }
        assert torch.equal(network.by_cell(x, [weights] * 3), network(x, weights))
        other = {name: matrix.flip(0) for name, matrix in weights.items()}
        outputs = [network.by_cell(x, [other if i == k else weights for i in range(3)]) for k in range(3)]
        assert len({tuple(out.flatten().tolist()) for out in outputs}) == 3


def test_alignment_needs_two_cells(darts_space, supernet):
    with pytest.raises(
        InputError, match="There must be at least two cells, whose gradients are aligned, got 1"
    ):
        OneShot(darts_space, supernet(darts_space, cells=1), regularizer=[LayerAlignment()])


def test_single_precision_is_enough_for_the_difference(cell_space, supernet, generator):
    search = OneShot(cell_space, supernet(cell_space, channels=4), regularizer=[LayerAlignment()])
    part, (x, y) = search.regularizers[0], images(generator)
    single = part.gradients(search, (x.float(), y), search.relax(), LAST)
    double = part.gradients(search.double(), (x, y), search.relax(), LAST)
    for one, two in zip(single, double, strict=True):
        if two is not None:
            assert float((one - two).norm()) < 0.01 * max(float(two.norm()), 0.1)
