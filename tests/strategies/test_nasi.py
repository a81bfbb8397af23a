"""NASI's gradient through a gradient, its one step, its constraint, and what it does not look at."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nas_lightning.data import Fake, SearchData
from nas_lightning.errors import InputError
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies import nasi
from nas_lightning.strategies.nasi import Nasi, parameters_without_biases, trace, trace_and_direction
from nas_lightning.strategies.one_shot.relaxations import uniform_noise

NO_IMAGES = SearchData(Fake())  # where a fresh mini-batch comes with each step


class Toy(Supernet):
    """logits = (θ s(w) x, 0) with s = Σ w ⊙ c. At θ = 0, for x = 2 and the first label:

    L = ln(1 + exp(−2 θ s)),   ∂L/∂θ = −s,   t = s²,   ∂t/∂w = 2 s c.
    """

    def __init__(self, c):
        nn.Module.__init__(self)
        self.c, self.theta = c, nn.Parameter(torch.zeros(()))
        self.head = nn.Linear(1, 2)  # takes no part

    def forward(self, x, weights, active=None):
        first = self.theta * (weights["cell"] * self.c).sum() * x.flatten(1).mean(dim=1)
        return torch.stack([first, torch.zeros_like(first)], dim=1)


BATCH = torch.full((3, 1, 2, 2), 2.0), torch.zeros(3, dtype=torch.long)


@pytest.fixture
def toy(cell_space, trainer):
    """`toy(**options)`: NASI on the toy, and c; the trainer counts no steps."""

    def make(**options):
        c = torch.randn(6, 5, generator=torch.Generator().manual_seed(3))
        strategy = Nasi(cell_space, Toy(c), NO_IMAGES, **options)
        strategy.theta = [strategy.supernet.theta]
        strategy.trainer = trainer(1)
        return strategy, c

    return make


def draw_weights(generator, tau=1.0):
    """The sample that comes next, by the definition: G = −ln(−ln u), one-hot of the largest, its softmax."""
    noise = uniform_noise(torch.zeros(6, 5), generator)
    gumbel = -(-noise.log()).log()
    soft = (gumbel / tau).exp() / (gumbel / tau).exp().sum(dim=1, keepdim=True)
    return F.one_hot(gumbel.argmax(dim=1), 5).float(), soft


def through_softmax(soft, v, tau=1.0):
    """Jᵀ v row by row: soft ⊙ (v − ⟨soft, v⟩)/τ."""
    return soft * (v - (soft * v).sum(dim=1, keepdim=True)) / tau


@pytest.mark.parametrize(("mu", "nu", "tau"), [(2.0, 1.0, 1.0), (2.0, 1e6, 1.0), (0.5, 0.01, 3.0)])
def test_a_sample_s_gradient_by_hand(toy, mu, nu, tau):
    strategy, c = toy(mu=mu, nu=nu, tau=tau)
    hard, soft = draw_weights(strategy.generator.clone_state(), tau)
    (G,), values = strategy.sample_gradient(*BATCH)
    s = (hard * c).sum()
    slope = 1 - mu if s**2 > nu else 1.0
    torch.testing.assert_close(values["trace"], s**2)
    torch.testing.assert_close(values["reward"], s**2 - mu * max(0.0, s**2 - nu))
    torch.testing.assert_close(values["train_loss"], torch.tensor(math.log(2)))
    torch.testing.assert_close(G, slope * through_softmax(soft, 2 * s * c, tau))


class Recorder:
    """Stands before `sample_gradient` and keeps what goes through."""

    def __init__(self, strategy, monkeypatch):
        self.batches, self.gradients, self.values = [], [], []
        original = strategy.sample_gradient

        def recorded(x, y):
            G, values = original(x, y)
            self.batches.append((x, y))
            self.gradients.append([gradient.clone() for gradient in G])
            self.values.append({name: float(value) for name, value in values.items()})
            return G, values

        monkeypatch.setattr(strategy, "sample_gradient", recorded)


@pytest.fixture
def fitted(cell_space, supernet, data, trainer, monkeypatch):
    """`fitted(epochs, **options)`: a small search that ran, and what its steps were."""

    def fit(epochs=2, search_data=None, limits=None, **options):
        images = data() if search_data is None else search_data
        strategy = Nasi(cell_space, supernet(cell_space), images, **{"nu_samples": 3} | options)
        recorder = Recorder(strategy, monkeypatch)
        fit_ = trainer(epochs, **(limits or {}))
        fit_.fit(strategy, images)
        return strategy, recorder

    return fit


ENDS = {"epochs": (2, {}, 8), "steps": (-1, {"max_steps": 6}, 6), "both": (50, {"max_steps": 9}, 9)}


@pytest.mark.parametrize(("epochs", "limits", "samples"), ENDS.values(), ids=ENDS)
def test_one_step_along_the_mean_gradient(fitted, epochs, limits, samples):
    """α* = ξ/T Σ G_t / max(‖G_1‖, …, ‖G_t‖) (equation 18), over what the steps gave; epochs have four."""
    strategy, recorder = fitted(epochs, limits=limits, xi=0.5)
    T, largest, expected = len(recorder.gradients), 0.0, torch.zeros(6, 5)
    for (G,) in recorder.gradients:
        largest = max(largest, float(G.norm()))
        expected += 0.5 / T * G / largest
    assert samples == T
    assert float(expected.norm()) > 0
    torch.testing.assert_close(strategy.arch["cell"].detach(), expected)
    assert float(strategy.largest) == pytest.approx(largest)
    derived = [strategy.space.groups["cell"].ops[column] for column in best_but_none(expected).tolist()]
    assert list(strategy.derive()[0].ops) == derived


def best_but_none(alpha):
    """The first column is `none`."""
    return 1 + alpha[:, 1:].argmax(dim=1)


def test_none_is_sampled_and_not_derived(toy):
    strategy, _ = toy()
    assert strategy.space.groups["cell"].ops[0] == "none"
    drawn = torch.stack([strategy.sample({"cell": torch.zeros(6, 5)})[0]["cell"] for _ in range(20)])
    assert bool(drawn[:, :, 0].any())
    with torch.no_grad():
        strategy.arch["cell"].copy_(torch.tensor([3.0, 0.0, 1.0, 2.0, -1.0]).repeat(6, 1))
    assert float(strategy.scores()["cell"][0, 0]) > 0.5
    assert set(strategy.derive()[0].ops) == {"nor_conv_3x3"}


def test_one_step_by_hand(fitted, cell_space, supernet, data, trainer, monkeypatch):
    """‖G‖ = 5, 1, 10, 0: divided by 5, 5, 10, 10 and by T = 4."""
    images = data()
    strategy = Nasi(cell_space, supernet(cell_space), images, nu=1.0)
    entries = iter([{(0, 1): 3.0, (0, 2): 4.0}, {(0, 2): 1.0}, {(5, 4): 10.0}, {}])

    def scripted(x, y):
        G = torch.zeros(6, 5)
        for place, value in next(entries).items():
            G[place] = value
        return [G], {name: torch.zeros(()) for name in ("train_loss", "trace", "nu", "reward")}

    monkeypatch.setattr(strategy, "sample_gradient", scripted)
    trainer(1).fit(strategy, images)
    expected = torch.zeros(6, 5)
    expected[0, 1], expected[0, 2], expected[5, 4] = 0.15, 0.25, 0.25
    torch.testing.assert_close(strategy.arch["cell"].detach(), expected)


def test_all_samples_are_taken_at_the_start(fitted):
    """α₀ stays 0 while α* moves: the operations that are drawn follow from the noise alone."""
    strategy, recorder = fitted(nu=1.0, seed=5, labels="random")
    other, again = fitted(nu=1.0, seed=5, labels="random", xi=1e6)
    assert [v["trace"] for v in recorder.values] == [v["trace"] for v in again.values]
    far, near = other.arch["cell"].detach(), strategy.arch["cell"].detach()
    torch.testing.assert_close(far, 1e6 * near)
    assert float(far.abs().max()) > 1e3


def test_fixed_nu_is_the_mean_over_random_architectures(toy):
    strategy, c = toy(nu_samples=7)
    generator = strategy.generator.clone_state()
    expected = sum(float((draw_weights(generator)[0] * c).sum() ** 2) for _ in range(7)) / 7
    assert strategy.typical_trace(*BATCH) == pytest.approx(expected)


def test_fixed_nu_is_a_quantile_over_random_architectures(toy):
    strategy, c = toy(nu_samples=5, nu_quantile=0.75)
    generator = strategy.generator.clone_state()
    traces = sorted(float((draw_weights(generator)[0] * c).sum() ** 2) for _ in range(5))
    assert strategy.typical_trace(*BATCH) == pytest.approx(traces[3])  # three of five are below it
    with pytest.raises(InputError, match=r"either `nu` or `nu_quantile`, got 'nu=1.0, nu_quantile=0.75'"):
        toy(nu=1.0, nu_quantile=0.75)


@pytest.mark.parametrize("nu", [None, 500.0])
@pytest.mark.parametrize("adaptive", [False, True])
def test_nu_during_a_run(fitted, nu, adaptive):
    _, recorder = fitted(nu=nu, adaptive=adaptive)
    start = recorder.values[0]["nu"]
    assert start == pytest.approx(500.0) if nu else 0 < start < 100
    for t, values in enumerate(recorder.values, 1):
        before = sum(earlier["trace"] for earlier in recorder.values[: t - 1])
        assert values["nu"] == pytest.approx((start + before) / t if adaptive else start, rel=1e-5)


@pytest.mark.parametrize("name", ["nasbench201", "darts"])
def test_the_gradient_through_a_gradient(name, cell_space, darts_space, supernet):
    """∇_w ‖∇_θ L‖² against central differences of ‖∇_θ L‖², float64, in random directions."""
    space = {"nasbench201": cell_space, "darts": darts_space}[name]
    generator = torch.Generator().manual_seed(0)
    net = supernet(space, channels=4).double()
    x = torch.randn(6, 1, 8, 8, dtype=torch.float64, generator=generator)
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    theta = parameters_without_biases(net)
    w = {
        name: torch.rand(group.shape, dtype=torch.float64, generator=generator).requires_grad_()
        for name, group in space.groups.items()
    }
    t, direction = trace_and_direction(F.cross_entropy(net(x, w), y), theta)
    slopes = torch.autograd.grad(direction, list(w.values()))

    def at(shift):
        moved = {name: w[name].detach() + shift * d for name, d in zip(w, directions, strict=True)}
        return float(trace(F.cross_entropy(net(x, moved), y), theta))

    assert float(t) == pytest.approx(float(trace(F.cross_entropy(net(x, w), y), theta)))
    for _ in range(3):
        directions = [torch.randn(s.shape, dtype=s.dtype, generator=generator) for s in slopes]
        along = sum(float((s * d).sum()) for s, d in zip(slopes, directions, strict=True))
        assert (at(1e-5) - at(-1e-5)) / 2e-5 == pytest.approx(along, rel=1e-5)


def test_processes_share_one_trace(cell_space, supernet, bare, monkeypatch):
    """The mean of two halves' slopes is the whole batch's once gradients are averaged, and only then."""
    net = bare(supernet(cell_space)).double()
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(6, 1, 8, 8, dtype=torch.float64, generator=generator), torch.tensor([0, 1, 2, 0, 1, 2])
    w = {"cell": torch.rand(6, 5, dtype=torch.float64, generator=generator).requires_grad_()}
    theta = parameters_without_biases(net)
    whole = [
        g
        for g in torch.autograd.grad(F.cross_entropy(net(x, w), y), theta, allow_unused=True)
        if g is not None
    ]

    def slope(rows):
        t, direction = trace_and_direction(F.cross_entropy(net(x[rows], w), y[rows]), theta)
        return t, torch.autograd.grad(direction, w["cell"])[0]

    t, expected = slope(slice(None))
    halves = [slice(0, 3), slice(3, 6)]
    alone = [slope(rows)[1] for rows in halves]
    assert not torch.allclose((alone[0] + alone[1]) / 2, expected, rtol=0.05)

    def averaged(tensors):
        for tensor, mean in zip(tensors, whole, strict=True):
            tensor.copy_(mean)

    monkeypatch.setattr(nasi, "average", averaged)
    shared = [slope(rows) for rows in halves]
    torch.testing.assert_close((shared[0][1] + shared[1][1]) / 2, expected)
    assert float(shared[0][0]) == float(shared[1][0]) == pytest.approx(float(t))


def test_only_the_sampled_operation_where_that_is_asked_for(cell_space, supernet, trainer):
    """The same t; of its slope by the weights what the drawn operations have, 0 for the others."""
    found = {}
    for computed in ("all", "sampled"):
        strategy = Nasi(
            cell_space, supernet(cell_space, channels=4).double(), NO_IMAGES, nu=1e9, computed=computed
        )
        strategy.double().trainer = trainer(1)
        x = torch.randn(4, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        y = torch.tensor([0, 1, 2, 0])
        hard, soft = (part.double() for part in draw_weights(strategy.generator.clone_state()))
        (G,), values = strategy.sample_gradient(x, y)
        found[computed] = G, float(values["trace"])
    weights = {"cell": hard.clone().requires_grad_()}
    theta = parameters_without_biases(strategy.supernet)
    _, direction = trace_and_direction(F.cross_entropy(strategy.supernet(x, weights), y), theta)
    v = torch.autograd.grad(direction, weights["cell"])[0]
    assert found["all"][1] == pytest.approx(found["sampled"][1])
    torch.testing.assert_close(found["all"][0], through_softmax(soft, v), rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(found["sampled"][0], through_softmax(soft, v * hard), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("options", "by_labels", "by_images"),
    [
        ({}, True, True),
        ({"labels": "random"}, False, True),
        ({"inputs": "gaussian"}, True, False),
        ({"labels": "random", "inputs": "gaussian"}, False, False),
        ({"labels": "random", "inputs": "gaussian", "fixed_batch": True}, False, False),
    ],
)
def test_what_the_search_depends_on(fitted, options, by_labels, by_images):
    """Other labels, or other images, change the architecture's parameters, or nothing at all."""

    class Others(SearchData):
        def __init__(self, images=1.0, labels=0):
            super().__init__(Fake(shape=(1, 8, 8), num_classes=3, train_size=32, batch_size=4, augment=False))
            for side in self.sides:
                side.samples.images[:] = (side.samples.images * images).to(torch.uint8)
                side.samples.labels[:] = (side.samples.labels + labels) % 3

    plain = fitted(1, Others(), **options)[0].arch["cell"]
    assert torch.equal(fitted(1, Others(labels=1), **options)[0].arch["cell"], plain) != by_labels
    assert torch.equal(fitted(1, Others(images=0.5), **options)[0].arch["cell"], plain) != by_images


def test_drawn_labels_and_inputs(fitted):
    _, recorder = fitted(6, labels="random", inputs="gaussian")
    x = torch.stack([x for x, _ in recorder.batches])
    y = torch.cat([y for _, y in recorder.batches])
    assert abs(float(x.mean())) < 0.1
    assert float(x.std()) == pytest.approx(1, abs=0.1)
    assert not torch.equal(x[0], x[1])
    counts = torch.bincount(y, minlength=3)
    assert int(counts.min()) > len(y) / 6
    assert len(counts) == 3


def test_a_fixed_batch_is_one(fitted):
    for options in ({}, {"labels": "random"}, {"inputs": "gaussian"}):
        _, fixed = fitted(fixed_batch=True, **options)
        _, fresh = fitted(**options)
        for recorder, count in ((fixed, 1), (fresh, 8)):
            assert len({(str(x.tolist()), str(y.tolist())) for x, y in recorder.batches}) == count


def test_the_weights_are_drawn_once_and_never_trained(cell_space, supernet, data, trainer):
    images = data()
    strategy = Nasi(cell_space, supernet(cell_space, channels=16), images, nu=1.0, seed=3)
    before = {name: value.clone() for name, value in strategy.supernet.state_dict().items()}
    trainer(1).fit(strategy, images)
    after = strategy.supernet.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    conv = dict(strategy.supernet.named_modules())["backbone.stages.2.0.graph.ops.0_1_nor_conv_3x3.0"]
    assert float(conv.weight.detach().std()) == pytest.approx((9 * 64) ** -0.5, rel=0.05)  # 1/√fan_in
    assert float(strategy.supernet.head.bias.detach().abs().max()) == 0
    assert not any(parameter is strategy.supernet.head.bias for parameter in strategy.theta)


def test_a_sample_without_a_path_has_no_gradient(cell_space, supernet, trainer, monkeypatch):
    """`none` on every edge, where only the sampled operations are computed."""
    strategy = Nasi(cell_space, supernet(cell_space), NO_IMAGES, nu=1.0, computed="sampled")
    strategy.trainer = trainer(1)
    original = strategy.sample

    def none(alpha):
        return original(alpha)[0], {"cell": F.one_hot(torch.zeros(6, dtype=torch.long), 5).bool()}

    monkeypatch.setattr(strategy, "sample", none)
    (G,), values = strategy.sample_gradient(torch.randn(4, 1, 8, 8), torch.tensor([0, 1, 2, 0]))
    assert float(G.abs().max()) == 0
    assert math.isfinite(float(values["trace"]))


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"mu": -1.0}, "mu"),
        ({"nu": 0.0}, "nu"),
        ({"nu": math.nan}, "nu"),
        ({"tau": 0.0}, "tau"),
        ({"xi": 0.0}, "xi"),
        ({"nu_samples": 0}, "nu_samples"),
        ({"computed": "some"}, "computed"),
        ({"labels": "none"}, "labels"),
        ({"inputs": "noise"}, "inputs"),
    ],
)
def test_impossible_options(cell_space, supernet, wrong, where):
    with pytest.raises(InputError, match=rf"\(in Nasi.{where}\)"):
        Nasi(cell_space, supernet(cell_space), NO_IMAGES, **wrong)


def test_an_endless_run_is_refused(cell_space, supernet, data, trainer):
    images = data()
    with pytest.raises(InputError, match=r"trainer\.max_epochs"):
        trainer(-1).fit(Nasi(cell_space, supernet(cell_space), images), images)
