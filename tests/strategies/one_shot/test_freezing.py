"""OLES: cosines against torch's, the rule against a plain loop, and weights that stand still."""

import math

import pytest
import torch
from torch.nn import functional as F

from nas_lightning.strategies import GradientMatching, OneShot
from nas_lightning.strategies.one_shot.freezing import cosine
from nas_lightning.strategies.one_shot.parts import FreezeState


def start(ops):
    return FreezeState(
        torch.zeros(ops), torch.zeros(ops, dtype=torch.long), torch.zeros(ops, dtype=torch.bool)
    )


def test_the_cosine_is_that_of_the_flattened_gradients(generator):
    one = [torch.randn(3, 4, generator=generator), None, torch.randn(5, generator=generator)]
    two = [torch.randn(3, 4, generator=generator), torch.ones(2), torch.randn(5, generator=generator)]
    flat = [torch.cat([gradient[0].flatten(), gradient[2]]) for gradient in (one, two)]
    torch.testing.assert_close(cosine(one, two), F.cosine_similarity(*flat, dim=0))
    assert math.isnan(cosine([None], [torch.ones(2)]))
    assert math.isnan(cosine([torch.zeros(2)], [torch.ones(2)]))


def test_the_rule_is_a_mean_of_as_many_cosines(generator):
    """Against lists, an operation at a time; some steps leave some operations out."""
    rule, memory, ops = GradientMatching(threshold=0.1, steps=3), start(7), 7
    lists, frozen = [[] for _ in range(ops)], [False] * ops
    for _ in range(40):
        cosines = 2 * torch.rand(ops, generator=generator) - 1
        cosines[torch.rand(ops, generator=generator) < 0.3] = torch.nan
        memory = rule.update(memory, cosines)
        for op, value in enumerate(cosines.tolist()):
            lists[op] += [] if math.isnan(value) else [value]
            if len(lists[op]) == 3:
                frozen[op] |= sum(lists[op]) / 3 < 0.1
                lists[op] = []
        assert memory.frozen.tolist() == frozen
        assert memory.counts.tolist() == [len(values) for values in lists]
    assert any(frozen)


def batch_of(generator):
    return torch.randn(4, 1, 8, 8, generator=generator), torch.tensor([0, 1, 2, 0])


def test_a_step_compares_the_gradients_of_each_operation(cell_space, supernet, generator, data, trainer):
    """With those of named parameters, differentiated one by one."""
    seen = []

    class Spy(GradientMatching):
        def update(self, memory, cosines):
            seen.append(cosines)
            return super().update(memory, cosines)

    search = OneShot(cell_space, supernet(cell_space), freezing=Spy(), arch_lr=1e-9)
    weights = {name: matrix.detach() for name, matrix in search.relax().weights.items()}
    expected, before = [], {n: p.detach().clone() for n, p in search.supernet.named_parameters()}
    batches = []
    images = data(batch_size=4)
    search.supernet.register_forward_pre_hook(lambda _, args: batches.append(args[0].clone()))
    trainer(1, limit_train_batches=1).fit(search, images)
    assert len(batches) == 3  # the architecture's, the weights', and that of the comparison
    assert torch.equal(batches[0], batches[2])
    other = supernet(cell_space)
    other.load_state_dict(before)
    labels = {
        tuple(x.flatten().tolist()): y for side in ("train", "valid") for x, y in every_batch(images, side)
    }
    keys = sorted({name.rsplit(".", 2)[0] for name in before if ".ops." in name})
    found = {}
    for x in (batches[1], batches[2]):
        y = torch.stack([labels[tuple(image.flatten().tolist())] for image in x])
        loss = F.cross_entropy(other(x, weights), y)
        for key in keys:
            parameters = list(other.get_submodule(key).parameters())
            slopes = torch.autograd.grad(loss, parameters, retain_graph=True)
            found.setdefault(key, []).append(torch.cat([slope.flatten() for slope in slopes]))
    expected = sorted(float(F.cosine_similarity(*pair, dim=0)) for pair in found.values())
    assert sorted(seen[0].tolist()) == pytest.approx(expected, abs=1e-4)


def every_batch(data, side):
    """Each image with its label."""
    data.setup("fit")
    loader = data.train_dataloader()
    for batch in loader:
        for sided in [batch if isinstance(batch, dict) else batch[0]]:
            yield from zip(*sided[side], strict=True)


def test_frozen_weights_do_not_move(cell_space, supernet, data, trainer):
    """Through momentum and decay, from the step on in which it is frozen; all else moves."""

    class Every(GradientMatching):
        def update(self, memory, cosines):
            return memory._replace(frozen=torch.arange(len(cosines)) % 2 == 0)

    search = OneShot(cell_space, supernet(cell_space), freezing=Every(), weight_decay=0.1)
    still = {id(w) for op in search.operations.of_each[::2] for w in op}
    before = [weight.detach().clone() for weight in search.weight_list]
    trainer(2, limit_train_batches=2).fit(search, data())
    for weight, old in zip(search.weight_list, before, strict=True):
        assert torch.equal(weight, old) == (id(weight) in still)


def test_no_extra_passes_once_all_operations_are_frozen(cell_space, supernet, data, trainer):
    search = OneShot(cell_space, supernet(cell_space), freezing=GradientMatching(threshold=1.0, steps=1))
    calls = []
    search.supernet.register_forward_pre_hook(lambda *_: calls.append(1))
    trainer(1, limit_train_batches=3).fit(search, data())
    assert bool(search.operations.frozen.all())
    assert len(calls) == 3 + 2 + 2
