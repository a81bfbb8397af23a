"""Activation and skip search in a fully connected network (Zhu et al. 2022, arXiv:2209.07238, section 3.1).

    f_1 = σ_1(W_1 x),   f_l = σ_l(W_l f_{l−1}) + α_{l−1} f_{l−1},   f_L = ⟨W_L, f_{L−1}⟩        (equation 1)

Decisions are the L − 1 activations and the L − 2 connections α. The paper draws all W_l from N(0, 1/m), for
inputs of norm 1; here the first layer has N(0, 1/d), for inputs of norm √d, so that its outputs do not shrink
with the width, which would make every activation linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from nas_lightning.checks import at_least, below, checked
from nas_lightning.genotype import MOST_NODES
from nas_lightning.spaces.activations.base import ActivationSpace
from nas_lightning.spaces.activations.layers import ACTIVATIONS


class Mlp(ActivationSpace):
    """Activations, (L − 1) × 5, and skips, (L − 2) × 2: without and with the connection.

    Args:
        layers: L.
        activations: the candidates.

    >>> space = Mlp(layers=4)
    >>> {name: group.shape for name, group in space.groups.items()}
    {'activation': (3, 5), 'skip': (2, 2)}
    >>> space.notation(space.parse("relu|tanh+skip|swish"))
    'relu|tanh+skip|swish'
    """

    name: ClassVar[str] = "mlp"

    @checked
    def __init__(
        self,
        layers: Annotated[int, at_least(3), below(MOST_NODES)] = 10,
        activations: Sequence[str] = tuple(ACTIVATIONS),
    ) -> None:
        super().__init__(layers, activations, skips=True)
