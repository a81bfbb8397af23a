"""The cell of PR-DARTS' theorems as a module (Zhou et al. 2020, arXiv:2006.16537, equations 3 to 6).

    X⁽⁰⁾ = conv(X),    conv(X) = σ(W ∗ X) / √m,    σ = softplus,    W ~ N(0, 1)
    X⁽ˡ⁾ = Σ_{s<l} g_skip⁽ˢˡ⁾ X⁽ˢ⁾ + g_conv⁽ˢˡ⁾ conv_s⁽ˡ⁾(X⁽ˢ⁾)
    u = Σ_s ⟨W_s, X⁽ˢ⁾⟩,    F = 1/(2n) Σ_i (u_i − y_i)²,    trained by gradient descent

Images are sequences of p positions. The shallow cell B of theorem 4 has two branches, nodes 0 … h/2 − 1 and
h/2 … h − 1, each fed by X alone; its gates are those of the deep cell A where it has the edge, and its λ is
that of theorem 1 over its edges: Σ_{s ≥ h/2} (g_conv⁽ˢ ʰ⁻¹⁾)² Π_{h/2 ≤ t < s} (g_skip⁽ᵗˢ⁾)².
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Gates(NamedTuple):
    """Of the edges s → l at [s, l], above the diagonal: (h, h) each.

    Args:
        skip: g_skip.
        conv: g_conv.
    """

    skip: Tensor
    conv: Tensor

    def shallow(self) -> Gates:
        """Those of cell B: no edge leads from the first branch to the second."""
        kept = torch.ones_like(self.skip)
        half = len(kept) // 2
        kept[:half, half:] = 0
        return Gates(self.skip * kept, self.conv * kept)


def draw_gates(nodes: int, generator: torch.Generator) -> Gates:
    """Uniform in (0, 1), independent."""
    both = torch.rand(2, nodes, nodes, dtype=torch.float64, generator=generator).triu(diagonal=1)
    return Gates(*both)


def rate(gates: Gates, first: int = 0) -> float:
    """Σ_s (g_conv⁽ˢ ʰ⁻¹⁾)² Π_{t<s} (g_skip⁽ᵗˢ⁾)² of theorem 1, over the nodes from `first` on."""
    last = len(gates.skip) - 1
    ends = range(first, last)
    return float(sum(gates.conv[s, last] ** 2 * gates.skip[first:s, s].square().prod() for s in ends))


class GatedCell:
    """The network of equation 5 with fixed gates, whose weights are trained.

    Args:
        gates: of its edges.
        channels: m.
        positions: p.
        inputs: channels of the images.
        seed: of the weights; cells with the same sizes and seed begin alike.
        branches: 2: the second half of the nodes begins from X again.

    >>> gates = draw_gates(4, torch.Generator().manual_seed(0))
    >>> cell = GatedCell(gates, channels=8, positions=6, inputs=2, seed=0)
    >>> cell(torch.ones(3, 2, 6, dtype=torch.float64)).shape
    torch.Size([3])
    """

    def __init__(
        self, gates: Gates, *, channels: int, positions: int, inputs: int, seed: int, branches: int = 1
    ) -> None:
        random = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=random).requires_grad_()

        h = self.nodes = len(gates.skip)
        self.gates, self.starts = gates, {0, h // 2} if branches == 2 else {0}
        self.stems = [normal(channels, inputs, 3) for _ in range(2)]
        self.convs = {(s, l): normal(channels, channels, 3) for l in range(h) for s in range(l)}  # noqa: E741
        self.outputs = [normal(channels, positions) for _ in range(h)]

    @property
    def weights(self) -> list[Tensor]:
        """All that is trained."""
        return [*self.stems, *self.convs.values(), *self.outputs]

    def __call__(self, x: Tensor) -> Tensor:
        """u: (n, inputs, p) → (n,)."""
        nodes: list[Tensor] = []
        for l in range(self.nodes):  # noqa: E741, as in the paper
            if l in self.starts:
                nodes.append(_conv(self.stems[min(l, 1)], x))
                continue
            first = max(start for start in self.starts if start <= l)
            node = torch.zeros_like(nodes[0])
            for s in range(first, l):
                node = node + self.gates.skip[s, l] * nodes[s]
                node = node + self.gates.conv[s, l] * _conv(self.convs[s, l], nodes[s])
            nodes.append(node)
        parts = [torch.einsum("mp,nmp->n", W, node) for W, node in zip(self.outputs, nodes, strict=True)]
        return torch.stack(parts).sum(dim=0)


def _conv(W: Tensor, x: Tensor) -> Tensor:
    return F.softplus(F.conv1d(x, W, padding=1)) / len(W) ** 0.5


def losses(cell: GatedCell, x: Tensor, y: Tensor, *, steps: int, eta: float) -> list[float]:
    """F before each step of gradient descent and after the last (equation 6)."""
    found = []
    for step in range(steps + 1):
        loss = 0.5 * (cell(x) - y).square().mean()
        found.append(float(loss.detach()))
        if step < steps:
            gradients = torch.autograd.grad(loss, cell.weights, allow_unused=True)
            with torch.no_grad():
                for W, gradient in zip(cell.weights, gradients, strict=True):
                    if gradient is not None:
                        W -= eta * gradient
    return found
