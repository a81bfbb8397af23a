"""PR-DARTS' gated cell against plain computations, and cells with a share of skips."""

from functools import partial

import pytest
import pytorch_lightning as pl
import torch
from torch.nn.functional import softplus

from nas_lightning.data import Digits, SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import read_genotypes
from nas_lightning.spaces import DartsSpace
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.topology import topology_metrics
from nas_lightning.strategies.one_shot.convergence_rate import convergence_rate
from reproductions.pr_darts import (
    RANDOM,
    GatedCell,
    PathAblation,
    SkipConvergence,
    draw_gates,
    losses,
    rate,
    shallow_rate,
)

SIZES = {"channels": 3, "positions": 4, "inputs": 2, "seed": 1}


def conv(W, x):
    """W Φ(X) of one image, position by position, zeros outside."""
    m, p = len(W), x.shape[1]
    out = torch.zeros(m, p, dtype=x.dtype)
    for t in range(p):
        for k in range(3):
            if 0 <= t + k - 1 < p:
                out[:, t] += W[:, :, k] @ x[:, t + k - 1]
    return softplus(out) / m**0.5


@pytest.mark.parametrize("branches", [1, 2])
def test_outputs_are_the_equations(branches):
    gates = draw_gates(4, torch.Generator().manual_seed(0))
    gates = gates.shallow() if branches == 2 else gates
    cell = GatedCell(gates, **SIZES, branches=branches)
    x = torch.randn(2, 4, dtype=torch.float64)
    X = [conv(cell.stems[0], x)]
    for node in range(1, 4):
        if branches == 2 and node == 2:
            X.append(conv(cell.stems[1], x))
            continue
        sources = range(2, node) if branches == 2 and node > 2 else range(node)
        parts = [
            gates.skip[s, node] * X[s] + gates.conv[s, node] * conv(cell.convs[s, node], X[s])
            for s in sources
        ]
        X.append(sum(parts))
    u = sum(float((W * node).sum().detach()) for W, node in zip(cell.outputs, X, strict=True))
    assert float(cell(x[None])[0].detach()) == pytest.approx(u)


def test_the_rate_is_theorem_1():
    """As that of a search's cell with the same weights, and for the second branch alone by hand."""
    gates = draw_gates(4, torch.Generator().manual_seed(3))
    edges = tuple((s, t) for t in range(4) for s in range(t))
    alpha = torch.stack([torch.stack([gates.skip[e], gates.conv[e]]) for e in edges])
    group = Group(edges, ("skip_connect", "nor_conv_3x3"))
    assert rate(gates) == pytest.approx(float(convergence_rate(alpha, group).value))
    assert rate(gates, 2) == pytest.approx(float(gates.conv[2, 3] ** 2))


def test_the_shallow_rate_is_theorem_4():
    """λ_A + Σ_{s=h/2}^{h−2} (g_conv⁽ˢ ʰ⁻¹⁾)² Π_{t=h/2}^{s−1} (g_skip⁽ᵗˢ⁾)², h = 6, term by term."""
    skip, conv = gates = draw_gates(6, torch.Generator().manual_seed(3))
    second = conv[3, 5] ** 2 + conv[4, 5] ** 2 * skip[3, 4] ** 2
    assert shallow_rate(gates) == pytest.approx(rate(gates) + float(second))


def test_descent_follows_the_gradient():
    """A small step lowers F by η ‖∇F‖²."""
    x, y = torch.randn(3, 2, 4, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    gates = draw_gates(4, torch.Generator().manual_seed(0))
    cell = GatedCell(gates, **SIZES)
    loss = 0.5 * (cell(x) - y).square().mean()
    gradients = torch.autograd.grad(loss, cell.weights, allow_unused=True)
    norm = sum(float(g.square().sum()) for g in gradients if g is not None)
    before, after = losses(cell, x, y, steps=1, eta=1e-6)
    assert before == pytest.approx(float(loss.detach()))
    assert (before - after) / 1e-6 == pytest.approx(norm, rel=1e-3)


def test_skips_of_a_larger_share_include_those_of_a_smaller():
    study = SkipConvergence(shares=[0.625, 0.0, 0.375], draws=1)
    none, some, more = study.cells(DartsSpace(), 0).values()
    assert [g.ops.count("skip_connect") for g in (none, some, more)] == [0, 6, 10]
    edges = [[edge for _, cell in g for edge in cell.edges] for g in (none, some, more)]
    assert len({tuple(sorted((e.source, e.target) for e in found)) for found in edges}) == 1


def test_shares_above_one_are_refused():
    with pytest.raises(InputError, match="expected shares up to 1"):
        SkipConvergence(shares=[0.0, 1.5])


# The ablation of figure 1.


def test_ablation_resumes_and_reports_what_it_found(tmp_path, generator):
    space, data = DartsSpace(), SearchData(Digits(subset=64, batch_size=16))
    shape = {"in_channels": 1, "num_classes": 10, "channels": 2, "cells": 1, "stem_multiplier": 1}
    study = PathAblation(searches=["gates", "PR-DARTS"], repetitions=2, epochs=[1], seed=3)

    def run(trainer):
        parts = partial(space.supernet, **shape), partial(space.network, **shape, auxiliary=False)
        return study.run(space, *parts, data, trainer, tmp_path)

    options = {"accelerator": "cpu", "logger": False, "enable_model_summary": False}
    first = run(partial(pl.Trainer, max_epochs=1, **options))
    means, cells = first.tables
    assert [row[:2] for row in cells.rows] == [
        *([name, seed] for seed in (3, 4) for name in ("gates", "PR-DARTS")),
        *([RANDOM, seed] for seed in (3, 4)),
    ]
    for name, depth, *_ in means.rows:
        found = [row[2] for row in cells.rows if row[0] == name]
        assert depth.value == sum(found) / 2
    (genotype,) = read_genotypes(tmp_path / "searches" / "PR-DARTS_1.json")
    row = next(row for row in cells.rows if row[:2] == ["PR-DARTS", 4])
    measures = topology_metrics(genotype)
    assert row[2:5] == [measures[f"{what}/normal"] for what in ("depth", "width", "skips")]

    def not_again(**options):
        raise AssertionError("expected no search, because all have a file")

    assert [table.rows for table in run(not_again).tables] == [table.rows for table in first.tables]
    study.arch_lr = 0.5
    with pytest.raises(InputError, match=r"expected arch_lr=0.025, as before, got 0.5"):
        run(not_again)
