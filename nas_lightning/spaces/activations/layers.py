"""Activation functions that are searched (Zhu et al. 2022, arXiv:2209.07238, table 1), and layers of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.errors import InputError, near_match
from nas_lightning.spaces.cells.choices import weighted_sum
from nas_lightning.spaces.cells.graph import Mixtures
from nas_lightning.spaces.network import Backbone
from nas_lightning.spaces.ops import NONE, SKIP

SLOPE = 0.01  # η of LeakyReLU, max(ηx, x)
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "leaky_relu": lambda x: F.leaky_relu(x, SLOPE),
    "sigmoid": lambda x: torch.sigmoid(x) - 0.5,
    "tanh": torch.tanh,
    "swish": F.silu,
}
ACTIVATION, SKIPS = "activation", "skip"  # the groups
SKIP_OPS = (NONE, SKIP)

Parametrisation = Literal["standard", "ntk"]
"""`standard`: W ~ N(0, 1/fan-in). `ntk`: W ~ N(0, 1), with x/√d for x and √(2/m) σ for σ."""


class Layer(nn.Module):
    """f ↦ c Σ_k w_k σ_k(W f) + α f, with c = √(2/m) or 1.

    Args:
        row: of the layer's activation in its group; its skip is the one before in that of skips.
        linear: W.
        names: the activations; one where the network is derived.
        skip: whether f is added; None: as a mixture weighs it.
        scale: c.

    """

    def __init__(
        self, row: int, linear: nn.Linear, names: Sequence[str], skip: bool | None, scale: float
    ) -> None:
        super().__init__()
        self.row, self.linear, self.names, self.skip, self.scale = row, linear, tuple(names), skip, scale

    def forward(self, f: Tensor, mixtures: Mixtures | None) -> Tensor:  # (b, d) → (b, m)
        z = self.linear(f)
        if mixtures is None:
            g = ACTIVATIONS[self.names[0]](z)
        else:
            g = weighted_sum(
                mixtures[ACTIVATION], self.row, lambda column: ACTIVATIONS[self.names[column]](z), z
            )
        return self._add_skip(self.scale * g, f, mixtures)

    def _add_skip(self, g: Tensor, f: Tensor, mixtures: Mixtures | None) -> Tensor:
        if self.skip is not None:
            return g + f if self.skip else g
        assert mixtures is not None, "a supernet weighs what it computes"
        mixture, row, column = mixtures[SKIPS], self.row - 1, SKIP_OPS.index(SKIP)
        if not mixture.active[row][column]:
            return g
        return g + f if mixture.weights is None else torch.addcmul(g, f, mixture.weights[row][column])


class LayeredBackbone(Backbone):
    """f_0 = x, f_l = σ_l(W_l f_{l−1}) + α_{l−1} f_{l−1} for l < L (equation 1); the head is the last layer.

    Images are averaged to `side` × `side` pixels, which changes nothing where they are as large, and made one
    vector. The candidates have no parameters: all paths share every W_l.

    Args:
        activations: the candidates of each layer; one where the network is derived.
        skips: whether a connection goes round each layer after the first; None: as a mixture weighs it.
        in_channels: channels of the images.
        width: m.
        side: pixels of the images' sides.
        parametrisation: see `Parametrisation`.

    """

    head_bias = False

    def __init__(
        self,
        activations: Sequence[Sequence[str]],
        skips: Sequence[bool | None],
        in_channels: int,
        width: int,
        side: int,
        parametrisation: Parametrisation = "standard",
    ) -> None:
        super().__init__()
        if width < 1 or side < 1 or in_channels < 1:
            got = f"width={width}, side={side}, in_channels={in_channels}"
            raise InputError("expected sizes of at least 1", got=got)
        if parametrisation not in get_args(Parametrisation):
            expected = (
                f"expected a parametrisation ({near_match(parametrisation, get_args(Parametrisation))})"
            )
            raise InputError(expected, got=parametrisation)
        self.side, self.ntk = side, parametrisation == "ntk"
        sizes = [in_channels * side**2, *[width] * (len(activations) - 1)]
        scale = math.sqrt(2 / width) if self.ntk else 1.0
        self.layers = nn.ModuleList(
            Layer(row, self.draw_weights(nn.Linear(size, width, bias=False)), names, skip, scale)
            for row, (size, names, skip) in enumerate(zip(sizes, activations, [False, *skips], strict=True))
        )
        self.widths = [width] * len(activations)
        self.auxiliary_at = 0

    def draw_weights(self, linear: nn.Linear) -> nn.Linear:
        """The layer, its weights at the scale of the parametrisation; the head's as well."""
        nn.init.normal_(linear.weight, std=1.0 if self.ntk else linear.in_features**-0.5)
        return linear

    def vectors(self, x: Tensor) -> Tensor:
        """The images as vectors, (b, c, h, w) → (b, d)."""
        return F.adaptive_avg_pool2d(x, self.side).flatten(1)

    def cells_outputs(self, x: Tensor, mixtures: Sequence[Mixtures] | None = None) -> Iterator[Tensor]:
        """f_1, …, f_{L−1} as maps of one pixel: (b, m, 1, 1)."""
        f = self.vectors(x)
        if self.ntk:
            f = f / math.sqrt(f.shape[1])
        for index, layer in enumerate(self.layers):
            f = self.run(layer, f, None if mixtures is None else mixtures[index])
            yield f[:, :, None, None]

    @property
    def decisions(self) -> tuple[list[str], list[bool]]:
        """The activation of each layer and whether a connection goes round it, of a derived network."""
        layers: list[Layer] = list(self.layers)  # type: ignore[arg-type]
        return [layer.names[0] for layer in layers], [bool(layer.skip) for layer in layers[1:]]
