"""Kernels of linear networks, against torch's Jacobians and theorem 7.4."""

import pytest
import torch
from torch.func import jacrev

from nas_lightning.utils.randomness import generator
from reproductions.hnas import deep_kernel, orthonormal, wide_kernel


def by_jacobian(network, W, x):
    rows = jacrev(lambda w: network(w, x))(W).flatten(1)
    return rows @ rows.T


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_kernels_are_those_of_autograd(layers):
    random = generator(1)
    W = torch.randn(layers, 5, 5, dtype=torch.float64, generator=random)
    x = torch.randn(3, 5, dtype=torch.float64, generator=random)

    def deep(w, x):
        for matrix in w:
            x = x @ matrix.T
        return x.sum(dim=1)

    torch.testing.assert_close(deep_kernel(W, x), by_jacobian(deep, W, x))
    wide = by_jacobian(lambda w, x: (x @ w.sum(dim=0).T).sum(dim=1), W, x)
    torch.testing.assert_close(wide_kernel(W, x), wide)


def test_theorem_7_4():
    random, L, n = generator(2), 3, 4
    x = orthonormal(n, n, random)
    torch.testing.assert_close(x @ x.T, torch.eye(n, dtype=torch.float64))
    draws = torch.randn(4000, L, n, n, dtype=torch.float64, generator=random)
    mean = torch.stack([deep_kernel(W, x) for W in draws]).mean(dim=0) / (L * n**L)
    assert (mean - torch.eye(n)).abs().max() < 0.1
    assert (wide_kernel(draws[0], x) - L * n * torch.eye(n)).abs().max() < 1e-12
