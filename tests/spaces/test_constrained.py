"""Constrained spaces against brute force: draws, derivation, expected costs."""

from collections import Counter

import pytest
import torch

from nas_lightning.errors import InputError
from nas_lightning.spaces import DartsNasi, DartsSpace, NasBench1Shot1, NasBench201, SearchSpace, constrained
from nas_lightning.spaces.constrained import (
    FEW_FITTED,
    HELD_OUT,
    Bounds,
    Constrained,
    check_bounds,
    limit_space,
    smallest,
)

PRICES = {
    "skip_connect": 1.0,
    "avg_pool_3x3": 2.0,
    "nor_conv_1x1": 5.0,
    "nor_conv_3x3": 9.0,
    "sep_conv_3x3": 7.0,
}
OPS = ("skip_connect", "avg_pool_3x3", "sep_conv_3x3")
SPACES: dict[str, SearchSpace] = {
    "nasbench201": NasBench201(("none", "skip_connect", "nor_conv_3x3")),
    "darts": DartsSpace(nodes=2, ops=OPS[:2]),
    "darts_nasi": DartsNasi(nodes=2, ops=OPS),
}


def price(genotype):
    """What adds up: operations, dearer on edges from later nodes; and a constant."""
    return {
        "price": 3.0 + sum(PRICES.get(e.op, 0.0) * (1 + e.source) for _, cell in genotype for e in cell.edges)
    }


def product(genotype):
    """What does not."""
    return {"price": 1.0 + price(genotype)["price"] * (1 + Counter(genotype.ops)["skip_connect"])}


def everything(space):
    """All genotypes of a space, by going to neighbors."""
    start = space.sample(torch.Generator().manual_seed(0))
    found, waiting = {start}, [start]
    while waiting:
        new = [near for near in space.neighbors(waiting.pop()) if near not in found]
        found.update(new)
        waiting += new
    return found


def limited(space, limit, measure=price) -> Constrained:
    return limit_space(space, Bounds(space, {"price": limit}, measure))


@pytest.fixture(params=SPACES)
def space(request):
    return SPACES[request.param]


def random_scores(space, seed):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.rand(group.shape, generator=generator) for name, group in space.groups.items()}


def worth(space, scores, genotype):
    hot = space.one_hot(genotype)
    return sum(float((scores[name].double() * hot[name]).sum()) for name in scores)


@pytest.mark.slow
def test_derivation_is_optimal_within_the_limit(space, monkeypatch):
    for measure in [price, product]:
        genotypes = everything(space)
        monkeypatch.setattr(constrained, "MAX_EVALUATED", 2 * len(genotypes))  # as much as a small space has
        costs = {genotype: measure(genotype)["price"] for genotype in genotypes}
        limit = sorted(costs.values())[len(costs) // 5]
        small = limited(space, limit, measure)
        for seed in range(3):
            scores = random_scores(space, seed)
            best = max(worth(space, scores, g) for g, cost in costs.items() if cost <= limit)
            found = small.discretize(scores)
            assert costs[found] <= limit
            assert worth(space, scores, found) == pytest.approx(best)


def test_derivation_is_optimal_in_a_small_space():
    space, costs = DartsSpace(nodes=1, ops=OPS), {}
    for genotype in everything(space):
        costs[genotype] = price(genotype)["price"]
    limit, scores = sorted(costs.values())[10], random_scores(space, 0)
    best = max(worth(space, scores, genotype) for genotype, cost in costs.items() if cost <= limit)
    assert worth(space, scores, limited(space, limit).discretize(scores)) == pytest.approx(best)


def test_repair_with_a_small_budget_is_within_the_limit(space, monkeypatch):
    monkeypatch.setattr(constrained, "MAX_EVALUATED", 2)
    costs = {genotype: price(genotype)["price"] for genotype in everything(space)}
    limit = sorted(costs.values())[3]
    small = limited(space, limit)
    assert all(costs[small.discretize(random_scores(space, seed))] <= limit for seed in range(5))


def test_derivation_within_the_limit_is_unchanged(space):
    scores = random_scores(space, 1)
    assert limited(space, 1e6).discretize(scores) == space.discretize(scores)


def test_table_of_additive_costs_is_exact(space):
    pairs = isinstance(space, DartsNasi)  # of an operation and an input, which have no place of their own
    assert Bounds(space, {"price": 1.0}, price).table.exact != pairs
    assert not Bounds(space, {"price": 1.0}, product).table.exact


def test_few_networks_are_counted_where_costs_add_up(space):
    genotypes = len({space.sample(torch.Generator().manual_seed(seed)) for seed in range(300)})
    for measure in (price, product):
        bounds = Bounds(space, {"price": 1.0}, measure)
        few = min(FEW_FITTED + HELD_OUT, genotypes)
        assert bounds.table.exact == (len(bounds.counted) <= few)
        possible = {name: mean > 0 for name, (_, mean) in bounds.table.rates.items()}
        assert all(bool(matrix.any(dim=-1).all()) for matrix in possible.values())


class Rare(NasBench201):
    """A space in which nobody draws a 3×3 convolution, though cells may have some."""

    def sample(self, generator):
        while "nor_conv_3x3" in (genotype := super().sample(generator)).ops:
            pass
        return genotype


def test_an_operation_that_was_never_counted_is_counted_when_it_comes():
    def measure(genotype):
        return {"cost": 1.0 + 10 * genotype.ops.count("nor_conv_3x3") + genotype.ops.count("nor_conv_1x1")}

    space = Rare()
    bounds = Bounds(space, {"cost": 20.0}, measure)
    scores = torch.zeros(6, 5)
    scores[:, space.ops.index("nor_conv_3x3")] = 1
    full = space.discretize({"cell": scores})
    assert bounds.table.exact
    assert bounds.guess_costs(full) == measure(full) == {"cost": 61.0}
    assert not bounds.holds(full)
    derived = limit_space(space, bounds).discretize({"cell": scores})
    assert measure(derived)["cost"] <= 20
    seen = space.parse("|nor_conv_1x1~0|+|none~0|nor_conv_1x1~1|+|skip_connect~0|none~1|nor_conv_1x1~2|")
    before = len(bounds.counted)
    assert bounds.excess(seen) == pytest.approx(4 / 20)
    assert len(bounds.counted) == before  # what the table knows is not counted


def test_derived_costs_are_measured():
    """Six convolutions cost more than six times one; no counted network has so many."""

    def measure(genotype):
        convs = genotype.ops.count("nor_conv_3x3")
        return {"cost": 1.0 + convs + 10 * (convs == 6)}

    space = NasBench201()
    scores = torch.zeros(6, 5)
    scores[:, space.ops.index("nor_conv_3x3")] = torch.linspace(1, 2, 6)
    full = space.discretize({"cell": scores})
    for derive in (lambda one: one.discretize({"cell": scores}), lambda one: one.keep_limits(full)):
        small = limit_space(space, Bounds(space, {"cost": 8.0}, measure))
        assert small.bounds.table.exact
        assert small.bounds.holds(full)
        assert derive(small).ops.count("nor_conv_3x3") == 5
        assert not small.bounds.table.exact
        assert not small.bounds.holds(full)


def test_no_genotype_over_the_limits_is_derived():
    space = SPACES["nasbench201"]
    with pytest.raises(
        InputError, match="At least one network must satisfy all limits together, got 1 price"
    ):
        limited(space, 1.0).keep_limits(space.sample(torch.Generator().manual_seed(0)))


def test_a_refusal_names_a_limit_that_is_enough(space):
    def measure(genotype):
        return {"price": price(genotype)["price"] * 1.00017}

    with pytest.raises(InputError) as error:
        check_bounds(space, Bounds(space, {"price": 0.01}, measure))
    named = str(error.value).partition("at least ")[2].partition(",")[0]
    check_bounds(space, Bounds(space, {"price": float(named)}, measure))


def test_a_known_genotype_within_the_limits_is_found_though_its_neighbors_are_far_over():
    space, far = DartsSpace(nodes=1, ops=OPS), {"price": 9.0}
    genotypes = sorted(everything(space), key=space.notation)
    alone = [genotypes[4], genotypes[-3]]

    def measure(genotype):
        return {"price": 1.0} if genotype in alone else far

    bounds = Bounds(space, {"price": 2.0}, measure, known=[*genotypes[:3], *alone])
    check_bounds(space, bounds)
    small = limit_space(space, bounds)
    assert {small.sample(torch.Generator().manual_seed(seed)) for seed in range(12)} == {*alone}
    assert small.discretize(random_scores(space, 0)) in alone


def test_the_smallest_is_the_smallest(space):
    genotypes = everything(space)
    bounds = Bounds(space, {"price": 1.0}, price)
    found = smallest(space, bounds, [max(genotypes, key=lambda g: price(g)["price"])], "price")
    assert price(found) == min(map(price, genotypes), key=lambda cost: cost["price"])


def test_limit_below_the_smallest_is_refused(space):
    least = min(price(genotype)["price"] for genotype in everything(space))
    check_bounds(space, Bounds(space, {"price": least}, price))
    with pytest.raises(InputError, match=f"at least {least:.0f}, as the smallest network of the space has"):
        check_bounds(space, Bounds(space, {"price": least - 0.5}, price))


def test_incompatible_limits_are_refused():
    space = SPACES["nasbench201"]

    def both(genotype):
        convs = sum(op == "nor_conv_3x3" for op in genotype.ops)
        return {"few": 1.0 + convs, "many": 7.0 - convs}

    check_bounds(space, Bounds(space, {"few": 4.0, "many": 4.0}, both))
    with pytest.raises(
        InputError, match="At least one network must satisfy all limits together, got 3 few, 3 many"
    ):
        check_bounds(space, Bounds(space, {"few": 3.0, "many": 3.0}, both))


def test_draws_are_uniform_within_the_limit():
    """As often each as its share says, up to five deviations of a count."""
    space = SPACES["nasbench201"]
    small, within = limited(space, 30.0), [g for g in everything(space) if price(g)["price"] <= 30.0]
    generator, draws = torch.Generator().manual_seed(0), 3000
    counts = Counter(small.sample(generator) for _ in range(draws))
    assert set(counts) <= set(within)
    mean = draws / len(within)
    assert all(abs(counts[genotype] - mean) < 5 * mean**0.5 + 5 for genotype in within)


def test_where_few_are_within_all_of_them_are_drawn():
    space = NasBench201()
    within = [g for g in space.all() if price(g)["price"] <= 5.0]
    assert len(within) < 40
    small, generator = limited(space, 5.0), torch.Generator().manual_seed(0)
    assert {small.sample(generator) for _ in range(600)} == set(within)


def test_draws_depend_on_the_generator_alone():
    """A search that goes on has a space that has drawn nothing yet, whatever was listed by then."""
    for limit in [4.0, 5.0, 9.0]:
        space, used = NasBench201(), []
        one, generator = limited(space, limit), torch.Generator().manual_seed(0)
        for _ in range(12):
            state = generator.get_state()
            used.append(one.sample(generator))
            again = torch.Generator()
            again.set_state(state)
            assert limited(space, limit).sample(again) == used[-1]


def test_neighbors_and_mutants_are_within_the_limit(space):
    small, generator = limited(space, 40.0), torch.Generator().manual_seed(0)
    genotype = small.sample(generator)
    near = [other for other in space.neighbors(genotype) if price(other)["price"] <= 40.0]
    assert small.neighbors(genotype) == near
    mutants = {small.mutate(genotype, generator) for _ in range(20 * len(near))}
    assert mutants == set(near)


def test_keep_limits(space):
    costs = {genotype: price(genotype)["price"] for genotype in everything(space)}
    limit = sorted(costs.values())[len(costs) // 3]
    small = limited(space, limit)
    for genotype in list(costs)[:20]:
        kept = small.keep_limits(genotype)
        assert costs[kept] <= limit
        assert costs[genotype] > limit or kept == genotype


def test_the_expected_cost_is_the_mean_over_independent_draws():
    space = NasBench201()
    small, p = (
        limited(space, 10.0),
        torch.softmax(torch.randn(6, 5, generator=torch.Generator().manual_seed(2)), 1),
    )
    of_op = torch.tensor([PRICES.get(op, 0.0) for op in space.ops])
    sources = torch.tensor([1.0 + source for source, _ in space.group.edges])
    mean = 3.0 + float((p * of_op * sources[:, None]).sum())  # each edge by itself
    assert float(small.expected_excess({"cell": p})["price"]) == pytest.approx(mean / 10.0 - 1, rel=1e-5)


def test_impossible_candidates_do_not_change_the_expected_cost():
    """`none` is derived from no scores in DARTS, so its probability changes no expectation."""
    space = DartsSpace(nodes=1, ops=("none", *OPS))
    small, excess = limited(space, 10.0), []
    for share in (0.1, 0.9):
        row = torch.tensor([share, *[(1 - share) / 3] * 3]).repeat(2, 1)
        excess.append(float(small.expected_excess({"normal": row, "reduce": row})["price"]))
    assert excess[0] == pytest.approx(excess[1])


def test_a_limited_space_is_its_space_in_all_else():
    space = NasBench1Shot1(1)
    small = limited(space, 60.0)
    assert isinstance(small, NasBench1Shot1)
    assert (small.name, small.settings, small.groups) == (space.name, space.settings, space.groups)
    genotype = small.sample(torch.Generator().manual_seed(0))
    assert space.notation(small.parse(small.notation(genotype))) == space.notation(genotype)
    assert small.unlimited is space
    assert space.limited == ()


def test_another_process_has_the_same_limits():
    import copy

    small = limited(SPACES["darts"], 30.0)
    again = copy.deepcopy(small)
    one, two = (s.sample(torch.Generator().manual_seed(3)) for s in (small, again))
    assert one == two
    assert again.bounds.limits == {"price": 30.0}
