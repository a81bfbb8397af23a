"""Spaces of activation functions: perceptrons and two-layer networks (Zhu et al. 2022, arXiv:2209.07238).

    f_1 = σ_1(W_1 x),   f_l = σ_l(W_l f_{l−1}) + α_{l−1} f_{l−1},   f_L = ⟨W_L, f_{L−1}⟩        (equation 1)

The decisions are the L − 1 activations and the L − 2 connections α. The paper draws all W_l from N(0, 1/m),
for inputs of norm 1; here W_1 is drawn from N(0, 1/d), for inputs of norm √d, so that outputs do not shrink
with the width, which would make every activation linear.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import MOST_NODES, Cell, Edge, Genotype
from nas_lightning.spaces.base import SearchSpace, best
from nas_lightning.spaces.graph import Mixtures, weighted_sum
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.network import Backbone, Network
from nas_lightning.spaces.operations import NONE, SKIP
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.utils.files import parse_json
from nas_lightning.utils.randomness import choose
from nas_lightning.validation import Cells, Channels, ImageSide, PositiveInt, at_least, below, checked

# Activations (table 1) and layers

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

Parametrization = Literal["standard", "ntk"]
"""`standard`: W ~ N(0, 1/fan-in). `ntk`: W ~ N(0, 1), with x/√d for x and √(2/m) σ for σ."""


class Layer(nn.Module):
    """f ↦ c Σ_k w_k σ_k(W f) + α f, with c = √(2/m) or 1.

    Args:
        row: of the layer's activation in its group; its skip has the row before in the group of skips.
        linear: W.
        names: the activations; a single one in a derived network.
        skip: whether f is added; None: weighted by a mixture.
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
        assert mixtures is not None, "a supernet has architecture weights"
        mixture, row, column = mixtures[SKIPS], self.row - 1, SKIP_OPS.index(SKIP)
        if not mixture.active[row][column]:
            return g
        return g + f if mixture.weights is None else torch.addcmul(g, f, mixture.weights[row][column])


class LayeredBackbone(Backbone):
    """f_0 = x, f_l = σ_l(W_l f_{l−1}) + α_{l−1} f_{l−1} for l < L (equation 1); the head is the last layer.

    Images are averaged to `side` × `side` pixels and flattened. The candidates have no parameters: all paths
    share every W_l.

    Args:
        activations: the candidates of each layer; a single one in a derived network.
        skips: whether each layer after the first has a skip connection; None: weighted by a mixture.
        in_channels: channels of the images.
        width: m.
        side: height and width of the averaged images.
        parametrization: see `Parametrization`.
    """

    head_bias = False

    def __init__(
        self,
        activations: Sequence[Sequence[str]],
        skips: Sequence[bool | None],
        in_channels: int,
        width: int,
        side: int,
        parametrization: Parametrization = "standard",
    ) -> None:
        super().__init__()
        if width < 1 or side < 1 or in_channels < 1:
            got = f"width={width}, side={side}, in_channels={in_channels}"
            raise InputError("Sizes must be at least 1", got=got)
        if parametrization not in get_args(Parametrization):
            expected = f"Unknown parametrization ({near_match(parametrization, get_args(Parametrization))})"
            raise InputError(expected, got=parametrization)
        self.side, self.ntk = side, parametrization == "ntk"
        sizes = [in_channels * side**2, *[width] * (len(activations) - 1)]
        scale = math.sqrt(2 / width) if self.ntk else 1.0
        self.layers = nn.ModuleList(
            Layer(row, self.draw_weights(nn.Linear(size, width, bias=False)), names, skip, scale)
            for row, (size, names, skip) in enumerate(zip(sizes, activations, [False, *skips], strict=True))
        )
        self.widths = [width] * len(activations)
        self.auxiliary_at = 0

    def draw_weights(self, linear: nn.Linear) -> nn.Linear:
        """Draw the weights of a layer, or of the head, at the scale of the parametrization."""
        nn.init.normal_(linear.weight, std=1.0 if self.ntk else linear.in_features**-0.5)
        return linear

    def vectors(self, x: Tensor) -> Tensor:
        """Return the images as vectors: (b, c, h, w) → (b, d)."""
        return F.adaptive_avg_pool2d(x, self.side).flatten(1)

    def cells_outputs(self, x: Tensor, mixtures: Sequence[Mixtures] | None = None) -> Iterator[Tensor]:
        """Yield f_1, …, f_{L−1} as maps of one pixel: (b, m, 1, 1)."""
        f = self.vectors(x)
        if self.ntk:
            f = f / math.sqrt(f.shape[1])
        for index, layer in enumerate(self.layers):
            f = self.run(layer, f, None if mixtures is None else mixtures[index])
            yield f[:, :, None, None]

    @property
    def decisions(self) -> tuple[list[str], list[bool]]:
        """The activation of each layer of a derived network, and whether each after the first has a skip."""
        layers: list[Layer] = list(self.layers)  # type: ignore[arg-type]
        return [layer.names[0] for layer in layers], [bool(layer.skip) for layer in layers[1:]]


# Spaces

CELL = "layers"
_EXPECTED = 'Layers must be like "relu|tanh+skip" or JSON {"activations": […], "skips": [0, 1, …]}'


class ActivationSpace(SearchSpace):
    """An activation for each layer before the last, and optionally a skip connection after the first.

    Args:
        layers: L, including the last layer.
        activations: the candidates.
        skips: whether skip connections are searched.
    """

    shown_by_cells = frozenset({"layers", "activations"})
    repeated = False

    @checked
    def __init__(self, layers: Cells, activations: Sequence[str], skips: bool) -> None:
        for name in activations:
            if name not in ACTIVATIONS:
                expected = f"Unknown activation ({near_match(name, ACTIVATIONS)})"
                raise InputError(expected, got=name, where="space.activations")
        if len(activations) < 2:
            raise InputError("There must be at least two activations", got=list(activations), where="space")
        self.layers, self.activations = layers, tuple(activations)
        self.rows = tuple((layer,) for layer in range(1, layers))
        self.skip_rows = self.rows[1:] if skips else ()

    @property
    def groups(self) -> Mapping[str, Group]:
        found = {ACTIVATION: Group(self.rows, self.activations)}
        return {**found, SKIPS: Group(self.skip_rows, SKIP_OPS)} if self.skip_rows else found

    @property
    def cells(self) -> tuple[str, ...]:
        return (CELL,)

    @checked
    def supernet(  # type: ignore[override]
        self,
        *,
        in_channels: Channels,
        num_classes: PositiveInt,
        width: Channels = 256,
        side: ImageSide = 8,
    ) -> Supernet:
        """Build the supernet; images are averaged to `side` × `side` pixels."""
        candidates = [self.activations] * len(self.rows)
        skips = [None if self.skip_rows else False] * (len(self.rows) - 1)
        backbone = LayeredBackbone(candidates, skips, in_channels, width, side)
        supernet = Supernet(backbone, num_classes)
        backbone.draw_weights(supernet.head)
        return supernet

    @checked
    def network(  # type: ignore[override]
        self,
        genotype: Genotype,
        *,
        in_channels: Channels,
        num_classes: PositiveInt,
        width: Channels = 256,
        side: ImageSide = 8,
        parametrization: Parametrization = "standard",
    ) -> Network:
        """Build the network; `parametrization="ntk"` has kernels of finite limits for infinite width."""
        activations, skips = self.decisions(genotype)
        candidates = [[name] for name in activations]
        backbone = LayeredBackbone(candidates, skips, in_channels, width, side, parametrization)
        network = Network(backbone, num_classes)
        backbone.draw_weights(network.head)
        return network

    def decisions(self, genotype: Genotype) -> tuple[list[str], list[bool]]:
        """Return the activation of each layer, and whether each after the first has a skip."""
        self.check(genotype)
        edges = genotype[CELL].edges
        activations = [edge.op for edge in edges if edge.op != SKIP]
        kept = {edge.target for edge in edges if edge.op == SKIP}
        return activations, [layer in kept for (layer,) in self.rows[1:]]

    def of(self, activations: Sequence[str], skips: Sequence[bool]) -> Genotype:
        """Return the genotype of these decisions; the inverse of `decisions`."""
        if len(activations) != len(self.rows) or len(skips) != len(self.rows) - 1:
            got = f"{len(activations)} and {len(skips)}"
            raise InputError(f"There must be {len(self.rows)} activations, and one skip less", got=got)
        edges = [Edge(name, layer, layer + 1) for layer, name in enumerate(activations)]
        edges += [Edge(SKIP, layer, layer + 1) for layer, kept in enumerate(skips, 1) if kept]
        genotype = self.genotype_of({CELL: Cell(edges, inputs=1, output=[len(self.rows)])})
        self.check(genotype)
        return genotype

    def check(self, genotype: Genotype) -> None:
        super().check(genotype)
        cell = genotype[CELL]
        allowed = {layer for (layer,) in self.skip_rows}
        for (layer,) in self.rows:
            ops = [edge.op for edge in cell.into(layer) if edge.op != SKIP]
            if len(ops) != 1 or ops[0] not in self.activations:
                expected = f"Layer {layer} must have one of {', '.join(self.activations)}"
                raise InputError(expected, got=", ".join(ops) or "none")
        skips = [edge.target for edge in cell.edges if edge.op == SKIP]
        if len(set(skips)) < len(skips) or not set(skips) <= allowed:
            raise InputError(f"Only layers {sorted(allowed) or 'none'} can have skips", got=skips)
        straight = all(edge.target == edge.source + 1 for edge in cell.edges)
        if not straight or (cell.inputs, cell.output) != (1, (len(self.rows),)):
            raise InputError(f"The cell must be a chain of {len(self.rows)} layers", got=cell)

    def one_hot(self, genotype: Genotype) -> dict[str, Tensor]:
        activations, skips = self.decisions(genotype)
        chosen = {ACTIVATION: activations, SKIPS: [SKIP_OPS[kept] for kept in skips]}
        weights = {}
        for name, group in self.groups.items():
            weights[name] = torch.zeros(group.shape)
            for row, op in enumerate(chosen[name]):
                weights[name][row, group.column(op)] = 1.0
        return weights

    def discretize(self, scores: Mapping[str, Tensor]) -> Genotype:
        """Choose the activation with the largest score; keep a skip if its score is larger than of none."""
        self.check_scores(scores)
        found = {
            name: [best(dict(zip(group.ops, row, strict=True)))[0] for row in scores[name].tolist()]
            for name, group in self.groups.items()
        }
        skips = found.get(SKIPS, [SKIP_OPS[0]] * (len(self.rows) - 1))
        return self.of(found[ACTIVATION], [op == SKIP for op in skips])

    def sample(self, generator: torch.Generator) -> Genotype:
        activations = [choose(self.activations, generator) for _ in self.rows]
        free = [choose((False, True), generator) for _ in self.skip_rows]
        return self.of(activations, free or [False] * (len(self.rows) - 1))

    def neighbors(self, genotype: Genotype) -> list[Genotype]:
        """Return the genotypes with another activation of one layer, or one skip more or less."""
        activations, skips = self.decisions(genotype)
        others = [(i, op) for i, old in enumerate(activations) for op in self.activations if op != old]
        found = [self.of([*activations[:i], op, *activations[i + 1 :]], skips) for i, op in others]
        for i in range(len(self.skip_rows)):
            found.append(self.of(activations, [*skips[:i], not skips[i], *skips[i + 1 :]]))
        return found

    def notation(self, genotype: Genotype) -> str:
        """Write the activation of each layer, and `+skip` if it has one: `relu|tanh+skip|…`."""
        activations, skips = self.decisions(genotype)
        pairs = zip(activations, chain([False], skips), strict=True)
        return "|".join(f"{name}+skip" if kept else name for name, kept in pairs)

    def parse(self, text: str | Mapping[str, Any]) -> Genotype:
        """Read `relu|tanh+skip|…`, JSON {"activations", "skips"}, or our JSON."""
        if isinstance(text, str) and not text.lstrip().startswith("{"):
            tokens = [token.strip().partition("+") for token in text.split("|")]
            if tokens[0][1] or any(
                rest not in ("", "skip") or bool(rest) != bool(plus) for _, plus, rest in tokens
            ):
                raise InputError(_EXPECTED, got=text)
            return self.of([name for name, _, _ in tokens], [bool(plus) for _, plus, _ in tokens[1:]])
        data = parse_json(text, _EXPECTED) if isinstance(text, str) else text
        if not isinstance(data, Mapping):
            raise InputError(_EXPECTED, got=data)
        if "activations" in data:
            names, skips = data["activations"], data.get("skips", [])
            if not (isinstance(names, list) and isinstance(skips, list)) or not set(map(str, skips)) <= {
                "0",
                "1",
            }:
                raise InputError(_EXPECTED, got=data)
            return self.of([str(name) for name in names], [skip == 1 for skip in skips])
        return self.genotype_from_dict(data)


class Mlp(ActivationSpace):
    """Activations and skips of a fully connected network, equation 1 (section 3.1).

    The groups are activations, (L − 1) × 5, and skips, (L − 2) × 2: without and with the connection.

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


class TwoLayer(ActivationSpace):
    """The activation of a two-layer network (Roberts et al. 2022, section 3).

        f(x) = vᵀ Σ_i α_i σ_i(W x),   α on the simplex

    GAEA (`strategy=gaea`) searches it; `study=two_layer` compares the order of α with that of the candidates.

    Args:
        activations: the candidates' names.

    >>> TwoLayer(("relu", "tanh")).groups["activation"].shape
    (1, 2)
    """

    name: ClassVar[str] = "two_layer"

    def __init__(self, activations: Sequence[str] = tuple(ACTIVATIONS)) -> None:
        super().__init__(2, activations, skips=False)
