"""Activation search in a network of two layers (Roberts et al. 2022, section 3).

    f(x) = vᵀ Σ_i α_i σ_i(W x),   α on the simplex

which GAEA (`strategy=gaea`) searches; `study=two_layer` asks when the order of α is that of the candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from nas_lightning.spaces.activations.base import ActivationSpace
from nas_lightning.spaces.activations.layers import ACTIVATIONS


class TwoLayer(ActivationSpace):
    """One decision, among h activations.

    Args:
        activations: the candidates' names.

    >>> TwoLayer(("relu", "tanh")).groups["activation"].shape
    (1, 2)
    """

    name: ClassVar[str] = "two_layer"

    def __init__(self, activations: Sequence[str] = tuple(ACTIVATIONS)) -> None:
        super().__init__(2, activations, skips=False)
