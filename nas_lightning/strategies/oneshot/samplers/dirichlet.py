"""DrNAS' weights: a sample of a Dirichlet distribution (Chen et al. 2021, arXiv:2006.10355).

    w ~ Dir(c),   c = elu(β) + 1                                                             (section 2.2)

A sample is a row of Gamma variables divided by their sum. Here each is its quantile at a uniform number,
x_o = F⁻¹(u_o; c_o), a pure function of parameters and noise, whose derivative

    ∂x/∂c = −(∂F(x; c)/∂c) / p(x; c)

is the implicit reparametrisation of the paper (Figurnov et al. 2018, arXiv:1805.08498, equation 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from nas_lightning.spaces.group import Group
from nas_lightning.strategies.oneshot.parts import Sampler
from nas_lightning.strategies.oneshot.values import Epoch

_SMALLEST = 1e-30  # of a Gamma variable: what is below has no weight beside any other


class Dirichlet(Sampler):
    """w ~ Dir(elu(β) + 1); the genotype follows from the mean.

    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> Dirichlet().probabilities(torch.tensor([[0.0, 2.0]]), Epoch(0, of=2), group)  # of (1, 3)
    tensor([[0.2500, 0.7500]])
    """

    noises: ClassVar[int] = 1

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        gammas = gamma_quantile(concentration(beta).double(), noise[0].double())
        return (gammas / gammas.sum(dim=-1, keepdim=True)).to(beta.dtype)

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        """E[w] = c / Σ c."""
        c = concentration(beta)
        return c / c.sum(dim=-1, keepdim=True)


def concentration(beta: Tensor) -> Tensor:
    """c = elu(β) + 1 > 0: (edges, ops)."""
    return (F.elu(beta) + 1).clamp_min(torch.finfo(beta.dtype).tiny)


def gamma_quantile(c: Tensor, u: Tensor) -> Tensor:
    """F⁻¹(u; c) of the Gamma distribution with shape c and scale 1.

    >>> gamma_quantile(torch.tensor([1.0]), torch.tensor([0.5])).item()  # −ln(1 − u) where c = 1
    0.6931471824645996
    """
    return _GammaQuantile.apply(c, u)


class _GammaQuantile(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, c: Tensor, u: Tensor) -> Tensor:
        from scipy.special import gammaincinv  # half a second to import

        quantiles = gammaincinv(c.detach().cpu().double().numpy(), u.detach().cpu().double().numpy())
        x = torch.as_tensor(quantiles).to(c).clamp_min(_SMALLEST)
        ctx.save_for_backward(c, x)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        c, x = ctx.saved_tensors
        slope = torch._standard_gamma_grad(c, x)
        return gradients[0] * torch.where(x > _SMALLEST, slope, torch.zeros_like(slope)), None
