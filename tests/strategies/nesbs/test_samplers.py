"""Sets of architectures: their loss by a loop, the best by brute force, and none twice."""

import math
from functools import partial
from itertools import combinations

import pytest
import torch

from nas_lightning.errors import InputError
from nas_lightning.objectives.inherited import InheritedWeights, Round, averaged_loss, forward_selection
from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.strategies.nesbs.posterior import Architectures
from nas_lightning.strategies.nesbs.samplers import (
    monte_carlo,
    nearest,
    nes_rs,
    rounds_by_delta,
    set_of_draws,
    set_of_particles,
)
from nas_lightning.strategies.nesbs.svgd import RelaxedArchitectures, svgd_rd


@pytest.fixture
def judge(cell_space, cell_supernet, batches):
    return InheritedWeights(cell_space, cell_supernet, batches)


def one_op(op):
    return NasBench201().parse(f"|{op}~0|+|{op}~0|{op}~1|+|{op}~0|{op}~1|{op}~2|")


def zeros(space):
    return {name: torch.zeros(group.shape, dtype=torch.float64) for name, group in space.groups.items()}


def test_loss_of_an_ensemble_by_a_loop(cell_space, cell_supernet, batches, judge, generator):
    """Image by image: the members' probabilities, their mean, its logarithm."""
    members = [cell_space.sample(generator) for _ in range(3)]
    loss = right = 0.0
    for x, y in batches:
        logits = []
        for member in members:
            weights = torch.zeros(6, 5)
            for op, source, target in member["cell"].edges:
                group = cell_space.groups["cell"]
                weights[group.edges.index((source, target)), group.ops.index(op)] = 1.0
            with torch.no_grad():
                logits.append(cell_supernet(x, {"cell": weights}).tolist())
        for image, label in enumerate(y.tolist()):
            mean = [0.0] * 3
            for of_member in logits:
                exponentials = [math.exp(value) for value in of_member[image]]
                for c in range(3):
                    mean[c] += exponentials[c] / sum(exponentials) / 3
            loss -= math.log(mean[label])
            right += mean.index(max(mean)) == label
    done = judge.judge(members, 0.5)
    assert done.loss == pytest.approx(loss / 24, rel=1e-5)
    assert done.accuracy == pytest.approx(right / 24)
    assert done.loss == judge.loss(members[::-1])
    assert set(done.members) == set(members)
    assert list(done.member_losses) == sorted(judge.loss([member]) for member in members)
    assert done.loss < sum(done.member_losses) / 3  # of convex losses, the mean's is below the mean
    assert Round.from_dict(done.to_dict()) == done


def test_an_impossible_label_is_no_infinity():
    assert bool(torch.isfinite(averaged_loss(torch.tensor([[[1.0, 0.0]]]), torch.tensor([1]))))


def test_an_architecture_predicts_once(cell_space, judge, cell_supernet):
    calls = []
    cell_supernet.register_forward_hook(lambda *args: calls.append(1))
    one, two = one_op("nor_conv_1x1"), one_op("nor_conv_3x3")
    judge.judge([one, two])
    judge.judge([two, one])
    assert len(calls) == 2 * 4


def test_processes_are_averaged(cell_space, cell_supernet, batches, judge):
    """Two processes with half of the batches each come to what one comes to with all."""
    members = [one_op("nor_conv_1x1"), one_op("skip_connect")]
    halves = [InheritedWeights(cell_space, cell_supernet, batches[rank::2]) for rank in (0, 1)]
    losses = torch.tensor([half.scores(members) for half in halves]).mean(dim=0)

    def average(tensors):
        tensors[0].copy_(losses.double())

    shared = InheritedWeights(cell_space, cell_supernet, batches[0::2], average)
    assert shared.scores(members) == pytest.approx(judge.scores(members), rel=1e-6)


def test_forward_selection_by_brute_force(generator):
    """Its first member and every step are the best there are; the best set of all is a lower bound."""
    probabilities = torch.rand(8, 30, 4, generator=generator, dtype=torch.float64).softmax(dim=2)
    labels = torch.randint(4, (30,), generator=generator)

    def loss(chosen):
        return float(averaged_loss(probabilities[list(chosen)], labels))

    chosen = forward_selection(range(8), 4, loss)
    assert len(set(chosen)) == 4
    for size in range(1, 5):
        extensions = {
            frozenset(every) for every in combinations(range(8), size) if set(chosen[: size - 1]) < set(every)
        }
        assert loss(chosen[:size]) == pytest.approx(min(loss(every) for every in extensions))
    pairs = {every: loss(every) for every in combinations(range(8), 2)}
    assert min(pairs.values()) <= loss(chosen[:2]) <= sorted(pairs.values())[len(pairs) // 2]


def test_duplicate_moves_to_the_nearest_free_architecture(cell_space, generator):
    """By the distance to all 15,625 architectures, each but the taken ones."""
    scores = {"cell": torch.randn(6, 5, dtype=torch.float64, generator=generator)}
    everything = torch.stack([cell_space.one_hot(g)["cell"] for g in cell_space.all()]).double()
    distances = (everything - scores["cell"]).square().sum(dim=(1, 2))
    genotypes = list(cell_space.all())
    order = [genotypes[index] for index in distances.argsort().tolist()]
    first = cell_space.discretize(scores)
    assert order[0] == first
    assert nearest(cell_space, first, scores, []) == first
    assert nearest(cell_space, first, scores, [first]) == order[1]


def test_sets_have_no_duplicates(cell_space, generator):
    """Also where the posterior knows one architecture only, and where particles meet."""
    sharp = zeros(cell_space)
    sharp["cell"][:, 3] = 50.0
    distribution = Architectures(cell_space)
    p = distribution.probabilities(sharp)
    draw = monte_carlo(cell_space, distribution, sharp, generator)
    drawn = set_of_draws(cell_space, draw, 3, p)
    relaxed = RelaxedArchitectures(distribution.decisions, p)
    met = set_of_particles(
        cell_space, relaxed, svgd_rd(relaxed.start(3, generator), relaxed.score, delta=-1.0)
    )
    mode = one_op("nor_conv_3x3")
    for found in (drawn, met):
        assert len(set(found)) == 3
        assert found[0] == mode
        assert set(found[1:]) <= set(cell_space.neighbors(mode))


def test_more_members_than_architectures():
    space = DartsSpace(nodes=1, ops=("none", "skip_connect"))
    with pytest.raises(InputError, match="too few architectures"):
        set_of_draws(space, lambda: space.discretize(zeros(space)), 2, zeros(space))


def test_uniform_sets_are_uniform(small_darts, every_cell, generator):
    """The members of pairs, χ² over the 48 normal cells."""
    counts = dict.fromkeys(every_cell, 0)
    draws = 2000
    for _ in range(draws // 2):
        for genotype in set_of_draws(
            small_darts, partial(small_darts.sample, generator), 2, zeros(small_darts)
        ):
            counts[genotype["normal"]] += 1
    statistic = sum((count - draws / 48) ** 2 / (draws / 48) for count in counts.values())
    assert statistic < 94  # 47 degrees of freedom, p = 6·10⁻⁵


def test_deltas(judge, cell_space, generator):
    """A grid over [−2, 1], one number, or Optuna's; the rounds know theirs."""
    asked = []

    def set_of(delta):
        asked.append(delta)
        return [cell_space.sample(generator) for _ in range(2)]

    grid = list(rounds_by_delta(judge, set_of, 4, "grid", seed=0))
    assert asked == [done.delta for done in grid] == [-2.0, -1.0, 0.0, 1.0]
    assert [done.delta for done in rounds_by_delta(judge, set_of, 1, "grid", seed=0)] == [0.0]
    assert [done.delta for done in rounds_by_delta(judge, set_of, 2, 0.3, seed=0)] == [0.3, 0.3]


def test_optuna_looks_where_the_loss_is_small():
    """On a loss that δ alone decides, its later rounds are nearer to the minimum, and a seed repeats them."""

    class Bowl:
        def judge(self, members, delta):
            return Round((), (), (), (delta - 0.4) ** 2, 0.0, delta)

    runs = [
        [done.delta for done in rounds_by_delta(Bowl(), lambda delta: [], 7, "optuna", seed)]
        for seed in (0, 0, 1)
    ]
    assert runs[0] == runs[1] != runs[2]
    assert all(-2 <= delta <= 1 for delta in runs[0])
    assert min(abs(delta - 0.4) for delta in runs[0][2:]) < 0.1


def test_nes_rs_selects_from_its_pool(judge, cell_space, generator):
    draw = partial(cell_space.sample, generator)
    done = nes_rs(judge, draw, size=2, pool=6)
    assert len(judge.predictions) == 6
    pool = list(judge.predictions)
    best = min(pool, key=lambda genotype: judge.loss([genotype]))
    with_best = [judge.loss([best, other]) for other in pool if other != best]
    assert best in done.members
    assert done.loss == pytest.approx(min(with_best))
