"""The loop that the bilevel strategies share, as DARTS runs it, against a plain loop in PyTorch."""

import copy
import math

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.strategies import Darts, FairDarts, Gaea

LR, LR_MIN, EPOCHS = 0.2, 0.01, 3


def plain_search(supernet, arch, data, clip, warmup=0):
    """First-order DARTS in float64 as one would write it down; returns α after every step."""
    weights = list(supernet.parameters())
    sgd = torch.optim.SGD(weights, lr=LR, momentum=0.9, weight_decay=3e-4)
    adam = torch.optim.Adam(list(arch.values()), lr=3e-2, betas=(0.5, 0.999), weight_decay=1e-3)
    history = []
    for epoch in range(EPOCHS):
        sgd.param_groups[0]["lr"] = LR_MIN + (LR - LR_MIN) * (1 + math.cos(math.pi * epoch / EPOCHS)) / 2
        for batch in data.train_dataloader().source.batches(epoch, 0, len(data.train_dataloader())):
            if epoch >= warmup:
                adam.zero_grad()
                plain_loss(supernet, arch, batch["valid"]).backward()
                adam.step()
            sgd.zero_grad()
            plain_loss(supernet, arch, batch["train"]).backward()
            torch.nn.utils.clip_grad_norm_(weights, clip)
            sgd.step()
            history.append({name: alpha.detach().clone() for name, alpha in arch.items()})
    return history


def plain_loss(supernet, arch, batch):
    softmax = {name: alpha.exp() / alpha.exp().sum(dim=1, keepdim=True) for name, alpha in arch.items()}
    return F.cross_entropy(supernet(batch[0].double(), softmax), batch[1])


@pytest.mark.parametrize(
    ("space_of", "clip", "warmup"), [("cell_space", 5.0, 0), ("cell_space", 0.3, 1), ("darts_space", 5.0, 0)]
)
def test_equals_a_plain_loop(request, supernet, data, trainer, space_of, clip, warmup):
    space = request.getfixturevalue(space_of)
    settings = {"lr": LR, "lr_min": LR_MIN, "arch_lr": 3e-2, "clip": clip, "warmup_epochs": warmup}
    darts = Darts(space, supernet(space), **settings)
    plain = copy.deepcopy(darts.supernet).double()
    arch = {name: alpha.detach().double().requires_grad_() for name, alpha in darts.arch.items()}
    start = {name: alpha.detach().clone() for name, alpha in arch.items()}
    history = plain_search(plain, arch, data(augment=True), clip, warmup)
    trainer(EPOCHS, precision="64-true").fit(darts, data(augment=True))
    for name, alpha in darts.arch.items():
        torch.testing.assert_close(alpha.data, arch[name].data, rtol=0, atol=1e-11)
        assert float((alpha - start[name]).detach().abs().max()) > 0.01
        for step in history[: 4 * warmup]:
            assert torch.equal(step[name], start[name])
    for mine, theirs in zip(darts.supernet.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.data, theirs.data, rtol=0, atol=1e-10)


@pytest.mark.parametrize("order", [1, 2])
def test_warm_up_leaves_the_architecture_alone(cell_space, supernet, data, trainer, order):
    darts = Darts(cell_space, supernet(cell_space), warmup_epochs=2, order=order)
    start = darts.arch["cell"].detach().clone()
    moved = []
    end = darts.on_train_epoch_end

    def on_train_epoch_end():
        moved.append(not torch.equal(darts.arch["cell"], start))
        end()

    darts.on_train_epoch_end = on_train_epoch_end
    fit = trainer(3)
    fit.fit(darts, data())
    assert moved == [False, False, True]
    assert fit.optimizers[1].state[darts.arch["cell"]]["step"] == 4  # no step of Adam was taken before


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Darts, {}),
        (Darts, {"warmup_epochs": 1}),
        (FairDarts, {}),
        (Gaea, {"single_level": True}),
        (Gaea, {}),
    ],
)
def test_accumulated_batches_are_one_batch(bare, cell_space, supernet, data, trainer, kind, settings):
    """Without batch norm: twice four images and once eight take the same steps, of both levels."""
    ends = []
    for batch_size, together in ((8, 1), (4, 2)):
        strategy = kind(cell_space, supernet(cell_space), lr=LR, accumulate_grad_batches=together, **settings)
        bare(strategy.supernet)
        fit = trainer(2, precision="64-true")
        fit.fit(strategy, data(batch_size=batch_size))
        assert fit.global_step == 4
        ends.append(strategy)
    for one, two in zip(ends[0].parameters(), ends[1].parameters(), strict=True):
        torch.testing.assert_close(one.data, two.data, rtol=0, atol=1e-12)


def test_what_is_left_of_an_epoch_is_a_step_of_its_own(bare, cell_space, supernet, data, trainer):
    """Three batches by twos: the last one counts in full, and nothing waits for the next epoch."""
    ends = []
    for settings in ({"accumulate_grad_batches": 3}, {"accumulate_grad_batches": 7}):
        strategy = Darts(cell_space, supernet(cell_space), lr=LR, **settings)
        bare(strategy.supernet)
        fit = trainer(2, precision="64-true")
        fit.fit(strategy, data(train_size=24))
        assert fit.global_step == 2
        ends.append(strategy)
    for one, two in zip(ends[0].parameters(), ends[1].parameters(), strict=True):
        assert torch.equal(one, two)


def test_clipping_is_of_the_weights_alone(cell_space, supernet, data, trainer):
    """However large the architecture's gradients are, the weights' step is the same."""
    ends = []
    for arch_scale in (1.0, 1e6):
        darts = Darts(cell_space, supernet(cell_space), clip=0.1, arch_lr=1e-12, arch_weight_decay=0.0)
        own = darts.arch_gradients

        def scaled(batch, own=own, arch_scale=arch_scale):
            return [arch_scale * gradient for gradient in own(batch)]

        darts.arch_gradients = scaled
        trainer(1, precision="64-true").fit(darts, data())
        ends.append([weight.detach() for weight in darts.weight_list])
    for one, two in zip(*ends, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-9)  # α differs by its learning rate, 10⁻¹²


def test_scores_are_the_softmax(darts_space, supernet):
    darts = Darts(darts_space, supernet(darts_space))
    for name, alpha in darts.arch.items():
        rows = [[math.exp(a) for a in row] for row in alpha.tolist()]
        expected = torch.tensor([[a / sum(row) for a in row] for row in rows])
        torch.testing.assert_close(darts.scores()[name], expected)
        assert torch.equal(darts.relax().weights[name].detach(), darts.scores()[name])


def test_a_loss_that_is_not_finite_ends_the_search(cell_space, supernet, data, trainer, refusal):
    darts = Darts(cell_space, supernet(cell_space))
    with torch.no_grad():
        darts.supernet.head.bias[0] = torch.inf
    message = refusal(lambda: trainer(2).fit(darts, data()))
    assert message.startswith("expected a finite loss in epoch 0: lower the learning rate")


@pytest.mark.parametrize("order", [0, 3, 1.5])
def test_orders_that_do_not_exist(cell_space, supernet, order):
    with pytest.raises(InputError, match="`order` must be 1 or 2"):
        Darts(cell_space, supernet(cell_space), order=order)


def test_logged_numbers(cell_space, supernet, data, trainer):
    """Entropy and weights as they are at the end; the losses are the means of the last epoch's steps."""
    darts = Darts(cell_space, supernet(cell_space))
    losses = []
    own = darts.cross_entropy

    def cross_entropy(batch, relaxed):
        found = own(batch, relaxed)
        losses.append(float(found[0].detach()))
        return found

    darts.cross_entropy = cross_entropy
    fit = trainer(2)
    fit.fit(darts, data())
    logged = fit.callback_metrics
    second = losses[2 * 4 :]
    assert float(logged["valid_loss"]) == pytest.approx(sum(second[::2]) / 4, rel=1e-6)
    assert float(logged["train_loss"]) == pytest.approx(sum(second[1::2]) / 4, rel=1e-6)
    scores = darts.scores()["cell"]
    group = cell_space.groups["cell"]
    for row, (source, target) in enumerate(group.edges):
        for column, op in enumerate(group.ops):
            assert float(logged[f"weights/cell/{source}_{target}/{op}"]) == float(scores[row, column])
    shares = [-sum(p * math.log(p) for p in row) / math.log(5) for row in scores.tolist()]
    assert float(logged["entropy/cell"]) == pytest.approx(sum(shares) / 6, rel=1e-6)


@pytest.mark.parametrize("space_of", ["cell_space", "darts_space"])
def test_cells_that_are_computed_again_change_no_bit(request, supernet, space_of, generator):
    """`checkpoint_cells` keeps the outputs of cells only: less memory, the same gradients."""
    space = request.getfixturevalue(space_of)
    network = supernet(space).double()
    x = torch.randn(4, 1, 8, 8, generator=generator, dtype=torch.float64)
    found, kept = [], []
    for again in (False, True):
        strategy = Darts(space, network, checkpoint_cells=again).double()
        for matrix in strategy.arch_list:
            matrix.data.copy_(torch.linspace(-1, 1, matrix.numel()).view_as(matrix))
        saved = []
        with saved_tensors_hooks(lambda tensor, saved=saved: saved.append(tensor) or tensor, lambda t: t):
            loss = F.cross_entropy(network(x, strategy.relax().weights), torch.arange(4) % 2)
        kept.append(sum(tensor.numel() for tensor in saved))
        found.append(torch.autograd.grad(loss, [*strategy.arch_list, *strategy.weight_list]))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert kept[1] < kept[0] / 2
