"""Depth and width of published cells, and the gradients and bounds of linear cells."""

from fractions import Fraction

import pytest
import torch
from omegaconf import OmegaConf

from nas_lightning.genotype import Cell
from nas_lightning.options import config_folder
from nas_lightning.spaces import DartsSpace
from reproductions.thesis_topology import (
    depth,
    lipschitz,
    narrowest_gradients,
    products,
    smoothness_bounds,
    variance,
    variance_bound,
    widest_gradients,
    width,
)

PUBLISHED = {  # the thesis, tables 4.2 and 7.2
    "nasnet": (Fraction(5), 2),
    "amoebanet": (Fraction(4), 4),
    "enas": (Fraction(5), 2),
    "darts_v1": (Fraction(7, 2), 3),
    "snas_mild": (Fraction(4), 2),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_cells(name):
    genotype = DartsSpace().parse(
        OmegaConf.to_container(OmegaConf.load(config_folder() / "genotype" / f"{name}.yaml"))
    )
    assert (width(genotype["normal"]), depth(genotype["normal"])) == PUBLISHED[name]


def test_the_deepest_cell_and_a_single_output():
    chain = [
        ("a", 0, 2),
        ("a", 1, 2),
        ("a", 1, 3),
        ("a", 2, 3),
        ("a", 2, 4),
        ("a", 3, 4),
        ("a", 3, 5),
        ("a", 4, 5),
    ]
    cell = Cell(chain, inputs=2, output=[2, 3, 4, 5])
    assert (width(cell), depth(cell)) == (Fraction(3, 2), 5)
    assert depth(Cell([("a", 0, 1), ("a", 1, 2)], inputs=1, output=[2])) == 2


@pytest.fixture
def cells(generator):
    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    return [0.7 * draw(3, 3) for _ in range(4)], draw(5, 3), draw(4, 5, 3)


def test_gradients_are_those_of_autograd(cells):
    W, x, t = cells
    W = [matrix.clone().requires_grad_() for matrix in W]
    for narrow, gradients in ((False, widest_gradients(W, x, t)), (True, narrowest_gradients(W, x, t))):
        for sample in range(len(x)):
            y, loss = x[sample], 0.0
            for matrix, goal in zip(W, t[:, sample], strict=True):
                node = matrix @ (y if narrow else x[sample])
                loss = loss + 0.5 * (node - goal).square().sum()
                y = node
            wanted = torch.autograd.grad(loss, W)
            for got, g in zip(gradients, wanted, strict=True):
                torch.testing.assert_close(got[sample], g)


def test_constants(cells):
    W, x, _ = cells
    assert lipschitz(x) == pytest.approx(float(torch.linalg.eigvalsh(x.T @ x / 5)[-1]))
    g = torch.randn(7, 3, 3, dtype=torch.float64)
    assert variance(g) == pytest.approx(float(g.flatten(1).var(dim=0, correction=0).sum()))
    torch.testing.assert_close(products(W)[2], W[2] @ W[1] @ W[0])
    assert smoothness_bounds([2.0, 3.0, 5.0], 7.0, 1) == (14.0, 7 * (2**2 + 10**2))
    assert variance_bound([2.0, 3.0, 5.0], [0.1, 0.2, 0.3], 1) == pytest.approx(
        3 * (0.2 * 2**2 + 0.3 * 10**2)
    )


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.0])
def test_what_the_proofs_give_holds_and_what_is_printed_does_not(cells, scale, generator):
    """Theorem 4.3 for steps of any length, theorem 4.4 with the widest cell of the same outputs."""
    W, x, t = cells
    W = [scale * matrix for matrix in W]
    norms = [float(torch.linalg.matrix_norm(matrix, ord=2)) for matrix in W]
    L, broken = lipschitz(x), 0
    spread = [variance(g) for g in widest_gradients(products(W), x, t)]
    before = narrowest_gradients(W, x, t)
    for i in range(len(W)):
        step = torch.randn(3, 3, dtype=torch.float64, generator=generator)
        moved = [matrix + step if j == i else matrix for j, matrix in enumerate(W)]
        change = (narrowest_gradients(moved, x, t)[i] - before[i]).mean(dim=0)
        ratio = float(torch.linalg.matrix_norm(change, ord=2) / torch.linalg.matrix_norm(step, ord=2))
        printed, proved = smoothness_bounds(norms, L, i)
        assert ratio <= proved
        broken += ratio > printed
        assert variance(before[i]) <= variance_bound(norms, spread, i)
    assert (broken > 0) == (scale > 0.5)
