"""Random search with shared weights: uniform paths, and the best of its candidates by brute force."""

import re
from collections import Counter

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from nas_lightning.errors import InputError
from nas_lightning.strategies import RandomWS


@pytest.fixture
def fitted(cell_space, supernet, data, trainer):
    search = data()
    strategy = RandomWS(cell_space, supernet(cell_space), search, candidates=30, valid_batches=3, seed=4)
    trainer(2).fit(strategy, search)
    return strategy


def test_paths_are_uniform_and_binary(cell_space, supernet, data):
    strategy = RandomWS(cell_space, supernet(cell_space), data())
    draws, counts = 3000, torch.zeros(6, 5)
    pairs = Counter()
    for _ in range(draws):
        relaxed = strategy.relax()
        assert relaxed.active is None
        path = relaxed.weights["cell"]
        assert path.sum(dim=1).tolist() == [1.0] * 6
        counts += path
        ops = path.argmax(dim=1).tolist()
        pairs[ops[0], ops[5]] += 1
    chi_square = ((counts - draws / 5) ** 2 / (draws / 5)).sum(dim=1)
    assert float(chi_square.max()) < 25.5  # 4 degrees of freedom, p = 4·10⁻⁵
    assert sum((pairs[a, b] - draws / 25) ** 2 / (draws / 25) for a in range(5) for b in range(5)) < 64  # 24


def test_only_the_path_is_trained(cell_space, supernet, data, trainer):
    strategy = RandomWS(cell_space, supernet(cell_space), data(), weight_decay=0.0)
    before = {name: w.detach().clone() for name, w in strategy.supernet.named_parameters()}
    drawn = []
    own = strategy.relax
    strategy.relax = lambda noise=None: drawn.append(own(noise)) or drawn[-1]
    trainer(1, limit_train_batches=1).fit(strategy, data())
    (path,) = [relaxed.weights["cell"] for relaxed in drawn]
    group = cell_space.groups["cell"]
    for name, weight in strategy.supernet.named_parameters():
        found = re.search(r"\.ops\.(\d)_(\d)_(\w+)\.", name)
        if found is not None:
            row = group.edges.index((int(found[1]), int(found[2])))
            trained = bool(path[row, group.column(found[3])])
            assert trained or torch.equal(weight, before[name]), name
    assert not torch.equal(strategy.supernet.head.weight, before["head.weight"])


def test_derived_is_the_best_candidate_by_brute_force(fitted, cell_space):
    draw = torch.Generator().manual_seed(1_000_003 * 4 + fitted.trainer.global_step)
    candidates = {cell_space.sample(draw) for _ in range(30)}
    batches = fitted.data.valid_batches(3)

    @torch.no_grad()
    def loss(genotype):
        weights = torch.zeros(6, 5)
        for op, source, target in genotype["cell"].edges:
            group = cell_space.groups["cell"]
            weights[group.edges.index((source, target)), group.ops.index(op)] = 1.0
        everything = torch.ones(6, 5, dtype=torch.bool)
        found = [
            F.cross_entropy(fitted.supernet(x, {"cell": weights}, {"cell": everything}), y)
            for x, y in batches
        ]
        return float(torch.stack(found).mean())

    losses = {genotype: loss(genotype) for genotype in candidates}
    (best,) = fitted.derive()
    assert losses[best] == pytest.approx(min(losses.values()), abs=1e-6)
    assert sorted(losses.values())[0] < sorted(losses.values())[1] - 1e-6  # so that there is one best


def test_deriving_is_a_function_of_weights_and_step(fitted, cell_space, data, trainer):
    """Neither how often it was asked nor what the generator drew in between matters."""
    first = fitted.derive()
    state = fitted.generator.get_state()
    fitted.selected._found = None
    for _ in range(10):
        fitted.relax()
    assert fitted.derive() == first
    fitted.generator.set_state(state)
    fitted.selected._found = None
    assert fitted.derive() == first
    assert torch.equal(fitted.generator.get_state(), state)  # and asking draws nothing from it


def test_other_weights_are_judged_anew(fitted, trainer, data):
    """A result that is kept holds for its step only."""
    _, before = fitted.best()
    with torch.no_grad():
        for weight in fitted.weight_list:
            weight.normal_(generator=torch.Generator().manual_seed(0))
    assert fitted.best()[1] is before  # the same step
    trainer(1).fit(fitted, data())
    assert fitted.best()[1] != before


def test_the_best_candidate_is_what_a_sweep_is_told(fitted):
    """The metric that a sweep maximizes is the accuracy of what is derived."""
    logged, judged = fitted.trainer.callback_metrics, fitted.best()[1]
    assert float(logged["valid_accuracy"]) == pytest.approx(judged.accuracy)
    assert float(logged["valid_loss"]) == pytest.approx(judged.loss)


def test_data_with_one_side_are_refused(cell_space, supernet, trainer, data):
    strategy = RandomWS(cell_space, supernet(cell_space), data())
    one_side = DataLoader(
        TensorDataset(torch.zeros(8, 1, 8, 8), torch.zeros(8, dtype=torch.long)), batch_size=4
    )
    with pytest.raises(InputError, match="expected batches with the sides 'train' and 'valid'"):
        trainer(1).fit(strategy, one_side)
