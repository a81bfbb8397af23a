"""Fronts, crowding, knees and hypervolumes, against what their definitions say when written out."""

from itertools import combinations

import numpy as np
import pytest

from nas_lightning.errors import InputError
from nas_lightning.metrics import NTKCondition, Params
from nas_lightning.objectives.fronts import (
    Candidate,
    Objectives,
    crowded_order,
    crowding,
    front_of,
    front_ranks,
    fronts_of,
    hypervolume,
    knee_of,
)


def points(seed: int, count: int, objectives: int, *, levels: int = 6) -> np.ndarray:
    """On a grid, so that many are equal in some objective and some in all."""
    return np.random.default_rng(seed).integers(levels, size=(count, objectives)).astype(float)


def dominates(a: np.ndarray, b: np.ndarray) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))


def ranks_by_definition(values: np.ndarray) -> list[int]:
    """The longest chain of points that dominates each."""
    ranks: dict[int, int] = {}

    def rank(i: int) -> int:
        if i not in ranks:
            above = [rank(j) for j in range(len(values)) if dominates(values[j], values[i])]
            ranks[i] = max(above, default=-1) + 1
        return ranks[i]

    return [rank(i) for i in range(len(values))]


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(5))
def test_ranks_equal_the_definition(seed, objectives):
    values = points(seed, 40, objectives)
    assert front_ranks(values).tolist() == ranks_by_definition(values)


def test_ranks_do_not_depend_on_the_order_of_the_points():
    values = points(1, 60, 3)
    order = np.random.default_rng(0).permutation(len(values))
    assert front_ranks(values[order]).tolist() == front_ranks(values)[order].tolist()


def test_fronts_are_every_point_once_and_the_first_is_the_front():
    values = points(2, 50, 3)
    found = list(fronts_of(values))
    assert sorted(np.concatenate(found).tolist()) == list(range(50))
    assert found[0].tolist() == front_of(values).tolist()
    firsts = values[front_of(values)].tolist()
    assert firsts == sorted(firsts)


def test_empty_front():
    assert front_of(np.empty((0, 2))).tolist() == []
    assert list(fronts_of(np.empty((0, 2)))) == []


def test_crowding_is_the_half_perimeter_of_the_neighbors():
    values = np.array([[0.0, 10.0], [1.0, 6.0], [4.0, 5.0], [10.0, 0.0]])
    # (4 − 0)/10 + (10 − 5)/10 and (10 − 1)/10 + (6 − 0)/10
    assert crowding(values) == pytest.approx([np.inf, 0.9, 1.5, np.inf])


def test_constant_objective_adds_no_crowding():
    values = np.array([[0.0, 1.0], [1.0, 1.0], [4.0, 1.0]])
    assert crowding(values)[1] == 1.0


def test_the_order_is_by_rank_first_and_by_crowding_then():
    values = points(3, 60, 2, levels=20)
    order, ranks = crowded_order(values), front_ranks(values)
    assert sorted(order.tolist()) == list(range(60))
    assert ranks[order].tolist() == sorted(ranks.tolist())
    for rank in np.unique(ranks):
        rows = np.flatnonzero(ranks == rank)
        distance = dict(zip(rows.tolist(), crowding(values[rows]).tolist(), strict=True))
        ordered = [distance[row] for row in order.tolist() if ranks[row] == rank]
        assert ordered == sorted(ordered, reverse=True)


def test_the_knee_is_farthest_from_the_line_through_the_ends():
    x = np.linspace(0.1, 3.0, 30)
    values = np.stack([x, 1 / x], axis=1)
    ends = values[[0, -1]]
    scaled = (values - values.min(axis=0)) / (values.max(axis=0) - values.min(axis=0))
    a, b = (ends - values.min(axis=0)) / (values.max(axis=0) - values.min(axis=0))
    direction = (b - a) / np.linalg.norm(b - a)
    offset = scaled - a
    distance = np.abs(offset[:, 0] * direction[1] - offset[:, 1] * direction[0])
    assert knee_of(values) == int(distance.argmax())


def inclusion_exclusion(values: np.ndarray, reference: np.ndarray) -> float:
    """|∪ boxes| = Σ over subsets of (−1)^{k+1} |∩ boxes|."""
    total = 0.0
    for k in range(1, len(values) + 1):
        for subset in combinations(values, k):
            sides = reference - np.max(subset, axis=0)
            total += (-1) ** (k + 1) * float(np.prod(np.maximum(sides, 0.0)))
    return total


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_hypervolume_equals_inclusion_exclusion(seed, objectives):
    values = np.random.default_rng(seed).random((7, objectives))
    for reference in (np.ones(objectives), np.full(objectives, 0.6)):
        assert hypervolume(values, reference) == pytest.approx(inclusion_exclusion(values, reference))


def test_hypervolume_equals_monte_carlo():
    random = np.random.default_rng(0)
    values, drawn = random.random((60, 3)) + 0.2, random.random((40_000, 3)) * 1.2
    dominated = (values[None] <= drawn[:, None]).all(axis=2).any(axis=1)
    assert hypervolume(values, np.full(3, 1.2)) == pytest.approx(dominated.mean() * 1.2**3, abs=0.02)


def test_dominated_points_add_no_hypervolume():
    values, reference = np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([3.0, 3.0])
    more = np.concatenate([values, [[2.5, 2.5], [0.5, 3.0], [4.0, 0.0], [1.0, 2.0]]])
    assert hypervolume(more, reference) == hypervolume(values, reference) == 3.0
    assert hypervolume(np.empty((0, 2)), reference) == 0.0


def test_reference_of_wrong_length_raises():
    with pytest.raises(InputError, match="The reference must have one number per objective, got"):
        hypervolume(np.ones((2, 2)), np.ones(3))


# By their names


def pool(*rows: tuple[float, float, float]) -> list[Candidate]:
    return [
        Candidate({"params": p}, {"params": p, "kappa": k, "ntk_condition": k}, accuracy)
        for p, k, accuracy in rows
    ]


def objectives(*names: str, reference: tuple[float, ...] | None = None) -> Objectives:
    return Objectives(names, lambda genotype: {}, {"kappa": NTKCondition()}, reference)


def test_costs_and_condition_numbers_fall_rankings_and_accuracies_rise():
    made = objectives("params", "kappa", "ranking", "accuracy")
    columns = made.columns(pool((10.0, 5.0, 80.0), (20.0, 4.0, 90.0)), {"params": Params()})
    assert columns["accuracy"] == [80.0, 90.0]
    assert columns["ranking"] == [pytest.approx(np.log(0.5)), 0.0]
    signs = made.minimized(columns)[0] / [columns[name][0] for name in made.names]
    assert signs.tolist() == [1.0, 1.0, -1.0, -1.0]


def test_dead_networks_are_not_on_the_front():
    rows = pool((1.0, np.inf, 10.0), (10.0, 5.0, 80.0), (20.0, 4.0, 70.0), (30.0, 6.0, 60.0))
    assert objectives("params", "kappa").front(rows).tolist() == [1, 2]
    assert objectives("params", "kappa").order(rows).tolist()[-1] == 0


def test_a_summary_is_of_the_front_and_of_the_worst_that_was_looked_at(space_cells):
    rows = pool((10.0, 5.0, 80.0), (20.0, 4.0, 70.0), (30.0, 6.0, 60.0))
    found = objectives("params", "kappa").summary(space_cells, rows)
    assert found.columns == {"params": [10.0, 20.0], "kappa": [5.0, 4.0]}
    assert found.hypervolume == (30 - 10) * (6 - 5) + (30 - 20) * (5 - 4)
    with_reference = objectives("params", "kappa", reference=(20.0, 10.0)).summary(space_cells, rows)
    assert with_reference.hypervolume == (20 - 10) * (10 - 5)


def test_a_reference_of_what_rises_is_its_least(space_cells):
    rows = pool((10.0, 5.0, 80.0), (20.0, 4.0, 90.0))
    found = objectives("params", "accuracy", reference=(30.0, 50.0)).summary(space_cells, rows)
    assert found.hypervolume == (30 - 10) * (80 - 50) + (30 - 20) * (90 - 80)


@pytest.fixture
def space_cells():
    from nas_lightning.spaces import NasBench201

    space = NasBench201()
    return [
        space.parse(f"|{op}~0|+|none~0|none~1|+|none~0|none~1|none~2|") for op in space.groups["cell"].ops
    ]


@pytest.mark.parametrize(
    ("names", "reference", "message"),
    [
        (("params",), None, "`objectives` must have at least two entries"),
        ((), None, "`objectives` must have at least two entries"),
        (("params", "params"), None, "`objectives` must be distinct, got 'params'"),
        (("params", "zen"), None, "The metric must be one of the objectives, got 'zen'"),
        (("params", "macs"), (1.0,), "There must be 2 numbers, one per objective"),
        (("params", "macs"), (1.0, float("nan")), "There must be 2 numbers, one per objective"),
    ],
)
def test_bad_objectives_raise(names, reference, message):
    with pytest.raises(InputError, match=message):
        objectives(*names, reference=reference)


def test_a_pool_of_dead_networks_has_no_front(space_cells):
    with pytest.raises(
        InputError, match="At least one architecture must have finite objectives, got 'none of 1'"
    ):
        objectives("params", "kappa").summary(space_cells, pool((1.0, np.inf, 0.0)))
