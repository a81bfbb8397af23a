"""β-DARTS' regularisation (Ye et al. 2022, arXiv:2203.01665).

    L_Beta = (1/E) Σ_edges ln Σ_o exp(α_o)                                                  (equation 14)

a smooth maximum of each row, whose gradient is the row's softmax: it decays the weights β = softmax(α) that
are large instead of the parameters. Its weight λ grows linearly from 0 to 50 (section 4.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from nas_lightning.checks import NonNegativeFloat, checked
from nas_lightning.errors import InputError
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.strategies.oneshot.parts import Parts, Regulariser
from nas_lightning.strategies.oneshot.values import Arch, Epoch, Groups


@checked
@dataclass(frozen=True)
class BetaDecay(Regulariser):
    """λ L_Beta over the rows of all groups.

    Args:
        weight_start: λ in the first epoch.
        weight_end: and in the last.

    >>> from nas_lightning.spaces.group import Group
    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> arch = {"cell": torch.zeros(1, 2)}
    >>> BetaDecay().term(arch, {}, Epoch(1, of=2), {"cell": group}) / 50  # ln 2
    tensor(0.6931)
    """

    weight_start: NonNegativeFloat = 0.0
    weight_end: NonNegativeFloat = 50.0

    def check(self, parts: Parts, space: SearchSpace) -> None:
        if not parts.sampler.softmax:
            name = type(parts.sampler).__name__
            reason = "because beta decay acts on the logits of a softmax"
            raise InputError(f"expected a sampler with a softmax, {reason}", got=name, where="sampler")

    def term(self, arch: Arch, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups) -> Tensor:
        return epoch.between(self.weight_start, self.weight_end) * beta_loss([arch[name] for name in groups])

    def metrics(
        self, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups
    ) -> Mapping[str, float | Tensor]:
        return {"lambda_beta": epoch.between(self.weight_start, self.weight_end)}


def beta_loss(alphas: list[Tensor]) -> Tensor:
    """L_Beta of all rows together: (edges, ops) each → scalar."""
    return torch.cat([alpha.logsumexp(dim=-1) for alpha in alphas]).mean()
