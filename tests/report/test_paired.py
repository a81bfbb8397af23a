"""The tests behind a comparison, against scipy, against tables that are printed, and by their definitions."""

import itertools
import math

import pytest
import torch
from scipy import stats

from nas_lightning.report.paired import (
    RankComparison,
    compare_ranks,
    critical_difference,
    holm,
    least_p,
    needed_pairs,
    permutation,
    t_interval,
    t_test,
    wilcoxon,
)


def normal(count, seed=0, shift=0.3):
    return (shift + torch.randn(count, generator=torch.Generator().manual_seed(seed))).double().tolist()


@pytest.mark.parametrize("count", [2, 3, 6, 13, 40])
def test_signed_ranks_are_scipys(count):
    differences = normal(count)
    expected = stats.wilcoxon(differences, method="exact").pvalue
    assert wilcoxon(differences) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("differences", [[1, 1, 1, -1], [2, -2, 2, 5, 5, -1, 0], [0.5, 0.5, 0.5], [0, 0, 1]])
def test_signed_ranks_with_shared_ones_are_what_all_signs_give(differences):
    kept = [d for d in differences if d]
    ranks = stats.rankdata([abs(d) for d in kept])
    center = sum(ranks) / 2
    sums = [sum(r for r, up in zip(ranks, signs, strict=True) if up) for signs in signs_of(len(kept))]
    seen = abs(sum(r for r, d in zip(ranks, kept, strict=True) if d > 0) - center)
    assert wilcoxon(differences) == sum(abs(s - center) >= seen for s in sums) / len(sums)


def signs_of(count):
    return list(itertools.product((False, True), repeat=count))


@pytest.mark.parametrize("count", [2, 3, 8, 12])
def test_permutations_are_scipys(count):
    differences = normal(count, seed=1)
    expected = stats.permutation_test(
        (differences,), sum, permutation_type="samples", n_resamples=math.inf, alternative="two-sided"
    )
    assert permutation(differences) == pytest.approx(expected.pvalue, rel=1e-12)


def test_equal_sums_count_though_they_are_rounded():
    assert permutation([0.1, 0.2, 0.3]) == 0.25  # 0.1 + 0.2 + 0.3 ≠ 0.3 + 0.2 + 0.1 in the last bit
    assert permutation([0.1] * 10) == least_p(10)


@pytest.mark.parametrize("count", [2, 5, 30])
def test_students_t_is_scipys(count):
    differences = normal(count, seed=2)
    expected = stats.ttest_1samp(differences, 0)
    assert t_test(differences) == pytest.approx(expected.pvalue, rel=1e-9)
    assert t_interval(differences) == pytest.approx(tuple(expected.confidence_interval()), rel=1e-9)


def test_without_spread_only_nothing_is_like_nothing():
    assert (t_test([0.0, 0.0]), t_test([0.1, 0.1])) == (1.0, 0.0)


@pytest.mark.parametrize("seed", range(5))
def test_holm_is_the_closed_test_of_bonferronis(seed):
    p = torch.rand(5, generator=torch.Generator().manual_seed(seed)).pow(3).double().tolist()
    subsets = [s for n in range(1, 6) for s in itertools.combinations(range(5), n)]
    expected = [max(min(1.0, len(s) * min(p[j] for j in s)) for s in subsets if i in s) for i in range(5)]
    assert holm(p) == pytest.approx(expected, rel=1e-12)
    assert holm([]) == []


@pytest.mark.parametrize("pairs", range(1, 9))
def test_no_differences_give_less_than_the_least_p(pairs):
    assert wilcoxon([float(i) for i in range(1, pairs + 1)]) == least_p(pairs)
    assert permutation([1.0] * pairs) == least_p(pairs)


def test_three_seeds_show_nothing_and_six_are_needed():
    assert least_p(3) == 0.25
    assert least_p(5) > 0.05 >= least_p(6)
    assert needed_pairs(0.05) == 6
    assert needed_pairs(0.05, comparisons=10) == 9  # 10 · 2⁻⁸ = 0.039, 10 · 2⁻⁷ = 0.078


# Over data sets


Q = {2: 1.960, 3: 2.343, 4: 2.569, 5: 2.728, 6: 2.850, 7: 2.949, 8: 3.031, 9: 3.102, 10: 3.164}
"""Table 5(a) of Demšar 2006."""


@pytest.mark.parametrize("ways", Q)
def test_critical_differences_are_those_of_demsars_table(ways):
    q = critical_difference(ways, sets=1) / math.sqrt(ways * (ways + 1) / 6)
    assert round(q, 3) == pytest.approx(Q[ways], abs=0.0011)


@pytest.mark.parametrize("decimals", [6, 1])  # and with ties
def test_friedmans_test_is_scipys(decimals):
    table = torch.rand(4, 9, generator=torch.Generator().manual_seed(3)).double().round(decimals=decimals)
    scores = dict(zip("abcd", table.tolist(), strict=True))
    ranked = compare_ranks(scores)
    assert ranked.p == pytest.approx(stats.friedmanchisquare(*table.tolist()).pvalue, rel=1e-9)
    expected = stats.rankdata(-table.numpy(), axis=0).mean(axis=1)
    assert [*ranked.ranks.values()] == pytest.approx(expected)


def test_ways_that_are_equal_everywhere_are_not_told_apart():
    ranked = compare_ranks({"a": [1.0, 2.0], "b": [1.0, 2.0]})
    assert (ranked.p, ranked.ranks) == (1.0, {"a": 1.5, "b": 1.5})
    assert ranked.cliques() == [("a", "b")]


@pytest.mark.parametrize(
    ("ranks", "difference", "cliques"),
    [
        ({"a": 1.0, "b": 2.5, "c": 4.0}, 1.4, []),
        ({"c": 3.0, "a": 1.0, "b": 2.0}, 1.4, [("a", "b"), ("b", "c")]),
        ({"a": 1.0, "b": 1.2, "c": 1.4, "d": 5.0}, 1.4, [("a", "b", "c")]),
        ({"a": 1.0, "b": 1.2, "c": 2.3, "d": 2.5}, 1.31, [("a", "b", "c"), ("b", "c", "d")]),
    ],
)
def test_bars_join_the_largest_groups_alone(ranks, difference, cliques):
    assert RankComparison(ranks, 3, 0.01, difference).cliques() == cliques
