"""The second-order gradient against closed forms and against autograd through the virtual step.

The closed form: a quadratic bilevel problem with A symmetric,

    L_train(w, β) = ½ wᵀA w − wᵀB β,      g = ∇_w L_train = A w − B β,
    L_val(w, β)   = ½ ‖w − c‖² + ½ βᵀD β.

The virtual step is w' = w − ξ d, d = m v + κ(g) + γ w, where κ(g) = g min(1, C/‖g‖). β enters w' through κ:

    dw'/dβ = −ξ κ′(g) ∂g/∂β = ξ κ′(g) B,
    κ′(g) = I where ‖g‖ < C, else (C/‖g‖)(I − g gᵀ/‖g‖²), which is symmetric,

so the gradient for β is   D β + ξ Bᵀ κ′(g) (w' − c).   Finite differences of a quadratic are exact.
"""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nas_lightning.strategies import Adam, Darts
from nas_lightning.strategies.one_shot.unrolled import VirtualStep, unrolled_gradients

LR, MOMENTUM, DECAY = 0.3, 0.9, 0.07


class Quadratic:
    def __init__(self):
        draw = torch.Generator().manual_seed(3)

        def normal(*shape):
            return torch.randn(*shape, generator=draw, dtype=torch.float64)

        half = normal(5, 5)
        self.A, self.B, self.D = half @ half.T, normal(5, 3), torch.diag(normal(3))
        self.c, self.v = normal(5), normal(5)
        w, self.beta = normal(5), nn.Parameter(normal(3))
        self.parts = [nn.Parameter(w[:2].clone()), nn.Parameter(w[2:].clone())]

    @property
    def w(self):
        return torch.cat(list(self.parts))

    def train(self):
        return 0.5 * self.w @ self.A @ self.w - self.w @ self.B @ self.beta

    def valid(self):
        return 0.5 * (self.w - self.c).square().sum() + 0.5 * self.beta @ self.D @ self.beta

    def step(self, clip, buffers=True, nesterov=False):
        both = [self.v[:2], self.v[2:]] if buffers else [None, None]
        return VirtualStep(LR, MOMENTUM, DECAY, clip, both, nesterov)

    def found(self, clip, buffers=True, nesterov=False):
        step = self.step(clip, buffers, nesterov)
        (gradient,) = unrolled_gradients(self.train, self.valid, self.parts, [self.beta], step)
        return gradient

    @torch.no_grad()
    def closed_form(self, clip, buffers=True, nesterov=False):
        g = self.A @ self.w - self.B @ self.beta
        norm = g.norm()
        factor, projection = 1.0, torch.eye(5, dtype=torch.float64)
        if norm > clip:
            factor = clip / norm
            projection = factor * (projection - torch.outer(g, g) / norm**2)
        decayed = factor * g + DECAY * self.w
        d, times = MOMENTUM * self.v * buffers + decayed, 1.0
        if nesterov:
            d, times = decayed + MOMENTUM * d, 1 + MOMENTUM
        ahead = self.w - LR * d
        return self.D @ self.beta + LR * times * self.B.T @ projection @ (ahead - self.c)


@pytest.mark.parametrize("buffers", [True, False], ids=["momentum", "first step"])
@pytest.mark.parametrize("clip", [1e6, 0.5], ids=["free", "clipped"])
@pytest.mark.parametrize("nesterov", [False, True])
def test_quadratic_problem(clip, buffers, nesterov):
    problem = Quadratic()
    expected = problem.closed_form(clip, buffers, nesterov)
    # torch clips by C/(‖g‖ + 10⁻⁶), which moves the clipped case in the seventh digit
    torch.testing.assert_close(
        problem.found(clip, buffers, nesterov), expected, rtol=1e-5 if clip < 1 else 1e-9, atol=1e-9
    )


def test_virtual_step_is_the_step_of_torchs_nesterov_sgd():
    problem, twin = Quadratic(), Quadratic()
    optimizer = torch.optim.SGD(twin.parts, lr=LR, momentum=MOMENTUM, weight_decay=DECAY, nesterov=True)
    for buffer, weight in zip((twin.v[:2], twin.v[2:]), twin.parts, strict=True):
        optimizer.state[weight]["momentum_buffer"] = buffer.clone()
    twin.train().backward()
    optimizer.step()
    seen = []

    def valid():
        seen.append(problem.w.detach().clone())
        return problem.valid()

    unrolled_gradients(problem.train, valid, problem.parts, [problem.beta], problem.step(1e6, True, True))
    torch.testing.assert_close(seen[0], twin.w.detach(), rtol=1e-12, atol=0)


def test_the_quadratic_problem_tells_the_parts_apart():
    """Without momentum, clipping or the implicit part the closed form is another: the test sees each."""
    problem = Quadratic()
    whole = problem.closed_form(0.5)
    assert not torch.allclose(whole, problem.closed_form(1e6), rtol=0.01)
    assert not torch.allclose(whole, problem.closed_form(0.5, buffers=False), rtol=0.01)
    assert not torch.allclose(whole, problem.D @ problem.beta, rtol=0.01)


@pytest.mark.parametrize("scale", [1e-4, 0.01, 1.0])
def test_the_difference_is_divided_by_twice_epsilon(scale):
    """A quadratic has the same difference quotient at any ε; `/ 2 * ε` would scale with ε²."""
    problem = Quadratic()
    (gradient,) = unrolled_gradients(
        problem.train, problem.valid, problem.parts, [problem.beta], problem.step(1e6), scale=scale
    )
    torch.testing.assert_close(gradient, problem.closed_form(1e6), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("fails_at", [None, "train 1", "valid 1", "train 2", "train 3"])
def test_weights_come_back_bit_for_bit(fails_at):
    problem = Quadratic()
    before = problem.w.detach().clone()
    calls = {"train": 0, "valid": 0}

    def counted(name, loss):
        def evaluate():
            calls[name] += 1
            if f"{name} {calls[name]}" == fails_at:
                raise RuntimeError(fails_at)
            return loss()

        return evaluate

    losses = counted("train", problem.train), counted("valid", problem.valid)
    if fails_at is None:
        unrolled_gradients(*losses, problem.parts, [problem.beta], problem.step(0.5))
        assert calls == {"train": 3, "valid": 1}
    else:
        with pytest.raises(RuntimeError, match=fails_at):
            unrolled_gradients(*losses, problem.parts, [problem.beta], problem.step(0.5))
    assert torch.equal(problem.w, before)


def test_parameters_that_a_loss_does_not_reach():
    """A weight that only L_val sees neither moves in the virtual step nor breaks it, as in the optimizer."""
    w, idle = nn.Parameter(torch.tensor([1.0, 2.0]).double()), nn.Parameter(torch.tensor([3.0]).double())
    beta, unused = nn.Parameter(torch.tensor([0.5]).double()), nn.Parameter(torch.tensor([0.1]).double())
    step = VirtualStep(0.1, 0.0, 0.5, 1e6, [None, None])
    found = unrolled_gradients(
        lambda: (w.square() * beta).sum(), lambda: (w.sum() * idle).sum(), [w, idle], [beta, unused], step
    )
    # w' = w − ξ(2βw + γw), L_val = 3 Σw', d/dβ = 3·(−ξ)·2·Σw = −1.8
    assert float(found[0]) == pytest.approx(-1.8, rel=1e-9)
    assert found[1] is None
    assert idle.tolist() == [3.0]


def exact(darts, batch, step):
    """Autograd through w', which is a function of β here: no finite difference."""
    names = [name for name, _ in darts.supernet.named_parameters()]
    start = dict(zip(names, darts.weight_list, strict=True))

    def loss(values, part):
        x, y = batch[part]
        weights = darts.relax().weights
        return F.cross_entropy(torch.func.functional_call(darts.supernet, values, (x, weights)), y)

    slopes = torch.autograd.grad(loss(start, "train"), list(start.values()), create_graph=True)
    norm = torch.cat([slope.flatten() for slope in slopes]).norm()
    factor = (step.clip / (norm + 1e-6)).clamp(max=1.0)
    ahead = {}
    for (name, w), slope, buffer in zip(start.items(), slopes, step.buffers, strict=True):
        momentum = 0.0 if buffer is None else step.momentum * buffer
        ahead[name] = w - step.lr * (momentum + factor * slope + step.weight_decay * w.detach())
    return torch.autograd.grad(loss(ahead, "valid"), darts.arch_list)


@pytest.fixture
def smooth(monkeypatch):
    """Networks without kinks, where the difference quotient has a limit to be compared with."""

    def pool(x, kernel, stride, padding, *_, **__):
        return F.avg_pool2d(x, kernel, stride, padding)

    monkeypatch.setattr(F, "relu", lambda x, inplace=False: F.softplus(x))
    monkeypatch.setattr(F, "max_pool2d", pool)


@pytest.mark.usefixtures("smooth")
@pytest.mark.parametrize("clip", [1e6, 0.2], ids=["free", "clipped"])
@pytest.mark.parametrize("space_of", ["cell_space", "darts_space"])
def test_supernet_against_exact_differentiation(request, supernet, space_of, clip, generator):
    space = request.getfixturevalue(space_of)
    darts = Darts(space, supernet(space), order=2).double()
    batch = {
        side: (torch.randn(6, 1, 8, 8, generator=generator).double(), torch.arange(6) % 3)
        for side in ("train", "valid")
    }
    buffers = [0.1 * torch.randn(w.shape, generator=generator).double() for w in darts.weight_list]
    step = VirtualStep(0.025, MOMENTUM, 3e-4, clip, buffers)
    found = unrolled_gradients(
        lambda: darts.loss_and_logits(batch["train"], darts.relax())[0],
        lambda: darts.loss_and_logits(batch["valid"], darts.relax())[0],
        darts.weight_list,
        darts.arch_list,
        step,
        scale=1e-4,
    )
    first_order = torch.autograd.grad(
        darts.loss_and_logits(batch["valid"], darts.relax())[0], darts.arch_list
    )
    for mine, theirs, first in zip(found, exact(darts, batch, step), first_order, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5 * float(theirs.abs().max()))
        assert not torch.allclose(first, theirs, rtol=1e-2)  # which the first order would not pass


class Recorded(Darts):
    """Keeps what the third architecture step descends, and what it started from."""

    def arch_gradients(self, batch):
        if self.trainer.global_step != 2:
            return super().arch_gradients(batch)
        optimizer = self.stepper(0).optimizer
        buffers = [optimizer.state[w]["momentum_buffer"].clone() for w in self.weight_list]
        lr = optimizer.param_groups[0]["lr"]
        step = VirtualStep(lr, self.momentum, self.weight_decay, self.clip, buffers)
        self.expected = exact(self, batch, step)
        before = copy.deepcopy(self.supernet.state_dict())
        self.found = super().arch_gradients(batch)
        assert all(torch.equal(value, before[name]) for name, value in self.supernet.state_dict().items())
        return self.found


@pytest.mark.usefixtures("smooth")
def test_in_a_search_it_uses_the_optimizers_state(cell_space, supernet, data, trainer):
    """The learning rate, buffers, decay and clipping are those of the running search."""
    darts = Recorded(cell_space, supernet(cell_space), order=2, lr=0.2, lr_min=0.05, clip=0.5)
    trainer(1, precision="64-true").fit(darts, data())
    largest = float(darts.expected[0].abs().max())
    torch.testing.assert_close(darts.found[0], darts.expected[0], rtol=1e-3, atol=1e-3 * largest)


def test_bfloat16_does_not_silence_the_second_order(cell_space, supernet, data, trainer):
    """Autocast keeps copies of weights, which would make w' and w^± all equal to w."""

    def moved(order, precision):
        darts = Darts(
            cell_space, supernet(cell_space), order=order, lr=0.5, arch_optimizer=Adam(betas=(0.0, 0.999))
        )
        gradients = []
        own = darts.arch_gradients

        def arch_gradients(batch):
            gradients.append(own(batch)[0].clone())
            return [gradients[-1]]

        darts.arch_gradients = arch_gradients
        trainer(1, precision=precision, limit_train_batches=1).fit(darts, data())
        return gradients[0]

    full, half = moved(2, "32-true"), moved(2, "bf16-mixed")
    first = moved(1, "32-true")
    assert float((half - full).norm()) < 0.1 * float((full - first).norm())
