"""Evolution over inherited weights, where the best architecture is known."""

import pytest
import torch
from torch import nn

from nas_lightning.genotype import Genotype
from nas_lightning.spaces import DartsSpace, Mlp, NasBench1Shot1, NasBench201
from nas_lightning.strategies.one_shot.selection import InheritedEvolution, RandomCandidates, cross_over

SPACES = [NasBench201(), DartsSpace(nodes=3), NasBench1Shot1(2), Mlp(layers=4)]


class Distance(nn.Module):
    """A supernet whose loss grows with the decisions in which a path differs from a wanted one."""

    def __init__(self, wanted):
        super().__init__()
        self.wanted, self.idle = wanted, nn.Parameter(torch.zeros(()))
        self.calls = 0

    def forward(self, x, weights, active=None):
        self.calls += 1
        wrong = sum(float((weights[name] - matrix).abs().sum()) for name, matrix in self.wanted.items()) / 2
        return torch.tensor([[-wrong, 0.0]]).expand(len(x), 2)


BATCHES = [(torch.zeros(2, 1), torch.zeros(2, dtype=torch.long))]


def test_evolution_finds_what_a_random_search_of_its_size_does_not():
    space = NasBench201()
    wanted = space.one_hot(space.sample(torch.Generator().manual_seed(5)))
    errors = {}
    for name, part in (
        ("evolution", InheritedEvolution(population=20, generations=10, parents=5)),
        ("random", RandomCandidates(200)),
    ):
        errors[name] = []
        for seed in range(3):
            supernet = Distance(wanted)
            best, judgment = part.best(space, supernet, BATCHES, torch.Generator().manual_seed(seed))
            found = space.one_hot(best)["cell"]
            errors[name].append(int((found - wanted["cell"]).abs().sum()) // 2)
            assert judgment.loss == pytest.approx(
                nn.functional.softplus(torch.tensor(errors[name][-1] * 1.0)).item(), rel=1e-4
            )
            assert supernet.calls <= 200
    assert sum(errors["evolution"]) <= 1
    assert sum(errors["random"]) >= 3


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_a_child_takes_each_decision_from_a_parent(space, generator):
    for _ in range(20):
        one, two = space.sample(generator), space.sample(generator)
        child = cross_over(space, one, two, generator)
        assert isinstance(child, Genotype)
        space.check(child)
        a, b, c = (space.one_hot(g) for g in (one, two, child))
        for name in a:
            assert bool(((c[name] > 0) <= ((a[name] + b[name]) > 0)).all())
    assert cross_over(space, one, one, generator) == one


def test_children_are_of_both_parents():
    space, draw = NasBench201(), torch.Generator().manual_seed(0)
    one, two = (
        space.parse(f"|{op}~0|+|{op}~0|{op}~1|+|{op}~0|{op}~1|{op}~2|") for op in ("none", "skip_connect")
    )
    share = torch.zeros(6)
    for _ in range(400):
        share += torch.tensor([float(op == "none") for op in cross_over(space, one, two, draw).ops])
    assert bool(((share / 400 - 0.5).abs() < 0.1).all())


def test_a_space_that_is_exhausted_ends_the_evolution():
    space = Mlp(layers=3, activations=("relu", "tanh"))
    supernet = Distance(space.one_hot(space.sample(torch.Generator().manual_seed(0))))
    InheritedEvolution(population=10, generations=4).best(
        space, supernet, BATCHES, torch.Generator().manual_seed(1)
    )
    assert supernet.calls == 2**3
