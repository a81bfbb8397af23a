"""What spaces of activation functions have in common: genotypes, networks and notations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from nas_lightning.checks import Cells, Channels, ImageSide, PositiveInt, checked
from nas_lightning.errors import InputError, near_match
from nas_lightning.files import parse_json
from nas_lightning.genotype import Cell, Edge, Genotype
from nas_lightning.randomness import choose
from nas_lightning.spaces.activations.layers import (
    ACTIVATION,
    ACTIVATIONS,
    SKIP_OPS,
    SKIPS,
    LayeredBackbone,
    Parametrisation,
)
from nas_lightning.spaces.base import SearchSpace, best
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.network import Network
from nas_lightning.spaces.ops import SKIP
from nas_lightning.spaces.supernet import Supernet

CELL = "layers"
_EXPECTED = 'expected layers such as "relu|tanh+skip" or JSON {"activations": […], "skips": [0, 1, …]}'


class ActivationSpace(SearchSpace):
    """An activation for each of the layers before the last, and whether to go round those after the first.

    Args:
        layers: L, the last layer included.
        activations: the candidates.
        skips: whether connections round layers are searched.

    """

    shown_by_cells = frozenset({"layers", "activations"})
    repeated = False

    @checked
    def __init__(self, layers: Cells, activations: Sequence[str], skips: bool) -> None:
        for name in activations:
            if name not in ACTIVATIONS:
                expected = f"expected an activation ({near_match(name, ACTIVATIONS)})"
                raise InputError(expected, got=name, where="space.activations")
        if len(activations) < 2:
            raise InputError("expected two or more activations", got=list(activations), where="space")
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
        """`side` is that of the images, which others are averaged to."""
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
        parametrisation: Parametrisation = "standard",
    ) -> Network:
        """`parametrisation="ntk"` has the scale at which kernels have a limit (`metrics/infinite_ntk.py`)."""
        activations, skips = self.decisions(genotype)
        candidates = [[name] for name in activations]
        backbone = LayeredBackbone(candidates, skips, in_channels, width, side, parametrisation)
        network = Network(backbone, num_classes)
        backbone.draw_weights(network.head)
        return network

    def decisions(self, genotype: Genotype) -> tuple[list[str], list[bool]]:
        """The activation of each layer, and whether a connection goes round each after the first."""
        self.check(genotype)
        edges = genotype[CELL].edges
        activations = [edge.op for edge in edges if edge.op != SKIP]
        kept = {edge.target for edge in edges if edge.op == SKIP}
        return activations, [layer in kept for (layer,) in self.rows[1:]]

    def of(self, activations: Sequence[str], skips: Sequence[bool]) -> Genotype:
        """The genotype of these decisions, the inverse of `decisions`."""
        if len(activations) != len(self.rows) or len(skips) != len(self.rows) - 1:
            got = f"{len(activations)} and {len(skips)}"
            raise InputError(f"expected {len(self.rows)} activations, one skip less", got=got)
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
                expected = f"expected one of {', '.join(self.activations)} in layer {layer}"
                raise InputError(expected, got=", ".join(ops) or "none")
        skips = [edge.target for edge in cell.edges if edge.op == SKIP]
        if len(set(skips)) < len(skips) or not set(skips) <= allowed:
            raise InputError(f"expected skips round layers of {sorted(allowed) or 'none'}", got=skips)
        straight = all(edge.target == edge.source + 1 for edge in cell.edges)
        if not straight or (cell.inputs, cell.output) != (1, (len(self.rows),)):
            raise InputError(f"expected a chain of {len(self.rows)} layers", got=cell)

    def one_hot(self, genotype: Genotype) -> dict[str, Tensor]:
        activations, skips = self.decisions(genotype)
        chosen = {ACTIVATION: activations, SKIPS: [SKIP_OPS[kept] for kept in skips]}
        weights = {}
        for name, group in self.groups.items():
            weights[name] = torch.zeros(group.shape)
            for row, op in enumerate(chosen[name]):
                weights[name][row, group.column(op)] = 1.0
        return weights

    def discretise(self, scores: Mapping[str, Tensor]) -> Genotype:
        """The activation with the largest score; a skip is kept where its score is the larger one."""
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

    def neighbours(self, genotype: Genotype) -> list[Genotype]:
        """One layer with another activation, or one skip more or less."""
        activations, skips = self.decisions(genotype)
        others = [(i, op) for i, old in enumerate(activations) for op in self.activations if op != old]
        found = [self.of([*activations[:i], op, *activations[i + 1 :]], skips) for i, op in others]
        for i in range(len(self.skip_rows)):
            found.append(self.of(activations, [*skips[:i], not skips[i], *skips[i + 1 :]]))
        return found

    def notation(self, genotype: Genotype) -> str:
        """`relu|tanh+skip|…`: the activation of each layer, and whether a connection goes round it."""
        activations, skips = self.decisions(genotype)
        pairs = zip(activations, chain([False], skips), strict=True)
        return "|".join(f"{name}+skip" if kept else name for name, kept in pairs)

    def parse(self, text: str | Mapping[str, Any]) -> Genotype:
        """`relu|tanh+skip|…`, JSON {"activations", "skips"}, or our own JSON."""
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
