"""Metrics from the gradient of the loss at initialisation (thesis of Shu, equations 7.2 and 7.3).

The sums over samples are inside the norms and products, so all follow from the gradient g = ∇_θ of the
batch's mean loss. Splitting the batch would change them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes.shared import Needs, Passes


@dataclass(frozen=True)
class GradNorm(Metric):
    """‖ (1/m) Σ ∇_θ ℓ_i ‖₂ (equation 7.2), by default as the sum of the norms of the parameter tensors.

    The sum is what Abdelfattah et al. (2021, arXiv:2101.08134, section 3.2.1) and the public code of the
    thesis compute, and ranks cells of NAS-Bench-201 better; `per_layer=False` is the equation.

    Args:
        per_layer: add up the norms of the parameter tensors; False: the norm of all together.

    >>> import torch
    >>> from torch import nn
    >>> network, batch = nn.Linear(2, 2, bias=False), (torch.eye(2), torch.tensor([0, 1]))
    >>> _ = nn.init.eye_(network.weight)
    >>> round(GradNorm()(network, batch).item(), 4)  # four entries of ±1/(2 + 2e)
    0.2689
    """

    per_layer: bool = True

    def compute(self, passes: Passes) -> Tensor:
        squares = [(g.double() ** 2).sum() for g in passes.gradients]
        return _total([s.sqrt() for s in squares]) if self.per_layer else _total(squares).sqrt()


@dataclass(frozen=True)
class Snip(Metric):
    """|(1/m) Σ θᵀ ∇_θ ℓ_i| (equation 7.3), by default with the absolute value of each weight's product.

    Σ |θ ⊙ g| is what SNIP (Lee et al. 2019, arXiv:1810.02340, equation 6), Abdelfattah et al. and the public
    code of the thesis compute. `per_weight=False` is the equation; a convolution with batch norm behind it
    has θᵀg = 0, so that it only sees the other parameters, and it does not rank such networks.

    Args:
        per_weight: take the absolute value of each weight's product; False: of their sum.

    >>> import torch
    >>> from torch import nn
    >>> network, batch = nn.Linear(2, 2, bias=False), (torch.eye(2), torch.tensor([0, 1]))
    >>> _ = nn.init.eye_(network.weight)
    >>> round(Snip()(network, batch).item(), 4)  # two entries 1 with gradients −1/(2 + 2e)
    0.2689
    """

    per_weight: bool = True

    def compute(self, passes: Passes) -> Tensor:
        pairs = zip(passes.parameters, passes.gradients, strict=True)
        products = [p.detach().double() * g.double() for p, g in pairs]
        if self.per_weight:
            return _total([product.abs().sum() for product in products])
        return _total([product.sum() for product in products]).abs()


@dataclass(frozen=True)
class Grasp(Metric):
    """|θᵀ H g|, H the Hessian of the batch's mean loss (equation 7.3), θ the weights.

    As in the public code, H and g are those of the whole batch, where the equation has a sample's, and of the
    weights of convolutions and linear layers, without biases and batch norms, whose share would hide theirs.
    `signed` keeps GraSP's sign, Σ −θ ⊙ (H g) (Wang et al. 2020, arXiv:2002.07376, equation 8).

    Args:
        signed: keep GraSP's sign; False: the absolute value.

    >>> import torch
    >>> from torch import nn
    >>> network, batch = nn.Linear(2, 2, bias=False), (torch.eye(2), torch.tensor([0, 1]))
    >>> _ = nn.init.eye_(network.weight)
    >>> bool(Grasp(signed=True)(network, batch).abs() == Grasp()(network, batch))
    True
    """

    signed: bool = False
    needs: ClassVar[Needs] = Needs.HESSIAN

    def compute(self, passes: Passes) -> Tensor:
        product = passes.curvature
        return -product if self.signed else product.abs()


def _total(terms: list[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
