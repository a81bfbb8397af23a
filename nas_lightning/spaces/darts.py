"""The DARTS space (Liu et al. 2019, arXiv:1806.09055): notation, supernet, and derived network."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from operator import getitem
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.genotype import MOST_NODES, Cell, Edge, Genotype
from nas_lightning.spaces.base import SearchSpace, best
from nas_lightning.spaces.graph import CellGraph, Mixtures, concatenate
from nas_lightning.spaces.group import Group, real_ops
from nas_lightning.spaces.network import Backbone, Network
from nas_lightning.spaces.operations import (
    NONE,
    SEARCH_NORM,
    TRAIN_NORM,
    FactorizedReduce,
    Norm,
    conv_norm,
    find_operation,
    operation_names,
)
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.utils.files import parse_json
from nas_lightning.utils.randomness import choose
from nas_lightning.validation import Cells, Channels, PositiveInt, Share, at_least, at_most, checked

INPUTS = 2
MAX_INNER_NODES = 100  # far above any published cell; prevents a typo from filling the memory
InnerNodes = Annotated[int, at_least(1), at_most(MAX_INNER_NODES)]
Stem = Literal["cifar", "imagenet"]

# The notation of DARTS' code, parsed without evaluating it

_EXPECTED = (
    "A genotype is "
    "Genotype(normal=[('sep_conv_3x3', 0), …], normal_concat=[…], reduce=[…], reduce_concat=[…])"
)


def read_fields(text: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of `Genotype(…)`, or the entries of JSON, by name."""
    fields = _fields(text) if isinstance(text, str) else text
    if not isinstance(fields, Mapping):
        raise InputError(_EXPECTED, got=text)
    return fields


def render(genotype: Genotype) -> str:
    """Write a genotype; the inverse of `read_fields` and `read_cell`."""
    parts = []
    for kind, cell in genotype:
        pairs = [(edge.op, edge.source) for edge in cell.edges]
        parts += [f"{kind}={pairs}", f"{kind}_concat={list(cell.output)}"]
    return f"Genotype({', '.join(parts)})"


def _fields(text: str) -> Mapping[str, Any]:
    if text.lstrip().startswith("{"):
        return parse_json(text, f"{_EXPECTED} or JSON")
    try:
        with warnings.catch_warnings():  # of invalid escape sequences
            warnings.simplefilter("ignore")
            (statement,) = ast.parse(text.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(_EXPECTED, got=text) from None
    call = statement.value if isinstance(statement, (ast.Assign, ast.Expr)) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id != "Genotype":
        raise InputError(_EXPECTED, got=text)
    names = ("normal", "normal_concat", "reduce", "reduce_concat")
    values = dict(zip(names, call.args, strict=False))
    values.update({keyword.arg: keyword.value for keyword in call.keywords if keyword.arg})
    return {name: _literal(node, text) for name, node in values.items()}


def _literal(node: ast.expr, text: str) -> Any:
    """Evaluate a literal, or `range(…)` of literals."""
    try:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("range", "list")
        ):
            arguments = [_literal(argument, text) for argument in node.args]
            return list(range(*arguments)[:MOST_NODES]) if node.func.id == "range" else arguments[0]
        return ast.literal_eval(node)
    except (ValueError, TypeError, IndexError, SyntaxError, RecursionError, MemoryError):
        raise InputError(_EXPECTED, got=text) from None


def read_cell(fields: Mapping[str, Any], kind: str, inputs: int) -> Cell:
    """Build a cell from two (operation, source) pairs per inner node, in the order of the nodes."""
    pairs = fields.get(kind)
    if not _is_list(pairs) or not pairs or len(pairs) % 2:
        raise InputError(f"{kind!r} must have two (operation, source) pairs for every inner node", got=pairs)
    edges = [Edge(*_pair(pair, kind), target=inputs + index // 2) for index, pair in enumerate(pairs)]
    output = fields.get(f"{kind}_concat", range(inputs, inputs + len(pairs) // 2))
    if not _is_list(output):
        raise InputError(f"'{kind}_concat' must be a list of nodes", got=output)
    return Cell(edges, inputs, output)


def _pair(pair: Any, kind: str) -> tuple[str, int]:
    if not _is_list(pair) or len(pair) != 2 or not isinstance(pair[0], str):
        raise InputError(f"{kind!r} must have (operation, source) pairs", got=pair)
    return pair[0], pair[1]


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def check_cell(kind: str, cell: Cell, inputs: int) -> None:
    """Raise unless the notation can express the cell: known operations, two edges into each inner node."""
    if cell.inputs != inputs:
        raise InputError(f"{kind!r} must have {inputs} input nodes", got=cell.inputs)
    for node in range(inputs, cell.nodes):
        edges = len(cell.into(node))
        if edges != 2:
            raise InputError(f"{kind!r} must have two edges into node {node}", got=edges)
    for edge in cell.edges:
        if edge.op != NONE:
            find_operation(edge.op, f"Unknown operation in {kind!r}")


# Networks of DARTS' cells (section 3.1), searched or derived


class DartsCell(nn.Module):
    """Project two rectified inputs to the same width and resolution, then run the graph (DARTS, section 3.1).

    Args:
        graph: from two inputs to all nodes.
        output: the nodes that are concatenated.
        norm: of the two projections.
        c_in: channels of the two inputs.
        c: channels of every node.
        after_reduction: whether the first input has twice the resolution of the second.
    """

    def __init__(
        self,
        graph: nn.Module,
        output: Sequence[int],
        norm: Norm,
        c_in: tuple[int, int],
        c: int,
        after_reduction: bool,
    ) -> None:
        super().__init__()
        self.output = list(output)
        self.pre0 = (
            FactorizedReduce(c_in[0], c, norm) if after_reduction else conv_norm(c_in[0], c, 1, 1, norm)
        )
        self.pre1 = conv_norm(c_in[1], c, 1, 1, norm)
        self.graph = graph

    def forward(self, r0: Tensor, r1: Tensor, mixture: Any) -> Tensor:
        nodes = self.graph([self.pre0(r0), self.pre1(r1)], mixture)
        return concatenate([nodes[node] for node in self.output])


class DartsBackbone(Backbone):
    """A stem and `cells` cells; those at one and two thirds halve the resolution and double the channels.

    Args:
        graph: builds the module of a cell's nodes from its kind and width: (inputs, mixture) → all nodes.
        outputs: the nodes that each kind of cell returns.
        norm: the batch norms.
        in_channels: of the images.
        channels: of the first cells.
        cells: number of cells.
        stem: `cifar` keeps the resolution, `imagenet` divides it by 8.
        stem_multiplier: channels of the cifar stem, in multiples of `channels`.
        stem_stride: of the cifar stem.
        pooled: max-pool both inputs of a reduction cell, instead of a stride in its edges.
        mixture_of: selects the mixture of a kind of cell from those of all groups.
    """

    def __init__(
        self,
        graph: Callable[[str, int], nn.Module],
        outputs: Mapping[str, Sequence[int]],
        norm: Norm,
        in_channels: int,
        channels: int,
        cells: int,
        stem: Stem,
        stem_multiplier: int,
        stem_stride: int = 1,
        *,
        pooled: bool = False,
        mixture_of: Callable[[Mixtures, str], Any] = getitem,
    ) -> None:
        super().__init__()
        if cells < 1 or channels < 2:
            raise InputError(
                "There must be at least 1 cell and 2 channels", got=f"cells={cells}, channels={channels}"
            )
        if stem == "imagenet":
            self.stem: nn.ModuleList = imagenet_stem(in_channels, channels, norm)
            width_before = width = channels
        elif stem == "cifar":
            width_before = width = channels * stem_multiplier
            conv = nn.Conv2d(in_channels, width, 3, stem_stride, padding=1, bias=False)
            self.stem = nn.ModuleList([nn.Sequential(conv, norm.outside_cells(width))])
        else:
            raise InputError("`stem` must be 'cifar' or 'imagenet'", got=stem)
        self.auxiliary_second_norm = stem != "imagenet"
        self.auxiliary_at = 2 * cells // 3
        self.pooled, self.mixture_of = pooled, mixture_of
        self.widths, self.kinds = [], []
        self.cells = nn.ModuleList()
        after_reduction = stem == "imagenet"
        for index in range(cells):
            kind = "reduce" if index in (cells // 3, 2 * cells // 3) else "normal"
            if kind == "reduce":
                channels *= 2
            cell = DartsCell(
                graph(kind, channels), outputs[kind], norm, (width_before, width), channels, after_reduction
            )
            self.cells.append(cell)
            after_reduction = kind == "reduce" and not pooled
            width_before, width = width, len(outputs[kind]) * channels
            self.widths.append(width)
            self.kinds.append(kind)

    def cells_outputs(self, x: Tensor, mixtures: Sequence[Mixtures] | None = None) -> Iterator[Tensor]:
        state = self.stem[0](x)
        r0 = r1 = F.relu(state)  # once for both cells that read it
        if len(self.stem) == 2:
            r1 = F.relu(self.stem[1](state))
        for index, (kind, cell) in enumerate(zip(self.kinds, self.cells, strict=True)):
            if index:
                r0, r1 = r1, F.relu(state)
            if self.pooled and kind == "reduce":
                r0, r1 = (F.max_pool2d(x, 2, ceil_mode=True) for x in (r0, r1))
            state = self.run(
                cell, r0, r1, None if mixtures is None else self.mixture_of(mixtures[index], kind)
            )
            yield state


def imagenet_stem(in_channels: int, channels: int, norm: Norm) -> nn.ModuleList:
    """Build two steps from 224×224 to 56×56 and 28×28, the first two cell inputs (DARTS' public code)."""
    half = channels // 2
    first = nn.Sequential(
        nn.Conv2d(in_channels, half, 3, stride=2, padding=1, bias=False),
        norm.outside_cells(half),
        nn.ReLU(),
        nn.Conv2d(half, channels, 3, stride=2, padding=1, bias=False),
        norm.outside_cells(channels),
    )
    second = nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, stride=2, padding=1, bias=False),
        norm.outside_cells(channels),
    )
    return nn.ModuleList([first, second])


STRIDES: dict[str, Callable[[int], int]] = {
    "normal": lambda source: 1,
    "reduce": lambda source: 2 if source < INPUTS else 1,
}
"""The stride of the edges that leave a node, by the kind of the cell."""


# Spaces


class TwoCellSpace(SearchSpace):
    """Base of the spaces with a normal and a reduction cell, whose nodes sum two operations on earlier nodes.

    Args:
        nodes: inner nodes of a cell.
        ops: the candidates: names of operations, or dotted names of the user's own.
    """

    shown_by_cells = frozenset({"nodes", "ops", "edge_ops"})

    @checked
    def __init__(self, nodes: InnerNodes, ops: Sequence[str]) -> None:
        self.nodes, self.ops = nodes, operation_names(ops)
        self.inner = range(INPUTS, INPUTS + nodes)

    @property
    def cells(self) -> tuple[str, ...]:
        return "normal", "reduce"

    @checked
    def network(  # type: ignore[override]
        self,
        genotype: Genotype,
        *,
        in_channels: Channels,
        num_classes: PositiveInt,
        channels: Channels = 16,
        cells: Cells = 8,
        stem: Stem = "cifar",
        stem_multiplier: PositiveInt = 3,
        stem_stride: PositiveInt = 1,
        auxiliary: bool = True,
        dropout: Share = 0.0,
        norm: Norm = TRAIN_NORM,
    ) -> Network:
        self.check(genotype)

        def graph(kind: str, width: int) -> CellGraph:
            cell = genotype[kind]
            return CellGraph(
                [(edge.source, edge.target) for edge in cell.edges],
                [[edge.op] for edge in cell.edges],
                inputs=INPUTS,
                nodes=cell.nodes,
                channels=width,
                norm=norm,
                stride=STRIDES[kind],
                drop_path=True,
            )

        outputs = {kind: cell.output for kind, cell in genotype}
        backbone = DartsBackbone(
            graph, outputs, norm, in_channels, channels, cells, stem, stem_multiplier, stem_stride
        )
        return Network(backbone, num_classes, auxiliary=auxiliary, dropout=dropout)

    def check(self, genotype: Genotype) -> None:
        super().check(genotype)
        for kind, cell in genotype:
            check_cell(kind, cell, INPUTS)

    def parse(self, text: str | Mapping[str, Any]) -> Genotype:
        """Read DARTS' `Genotype(normal=[('sep_conv_3x3', 0), …], …)` as text or mapping, or our JSON."""
        fields = read_fields(text)
        if "cells" in fields:
            return self.genotype_from_dict(fields)
        genotype = self.genotype_of({kind: read_cell(fields, kind, INPUTS) for kind in self.cells})
        self.check(genotype)
        return genotype

    def notation(self, genotype: Genotype) -> str:
        return render(genotype)


OPS = (
    "none",
    "max_pool_3x3",
    "avg_pool_3x3",
    "skip_connect",
    "sep_conv_3x3",
    "sep_conv_5x5",
    "dil_conv_3x3",
    "dil_conv_5x5",
)


class DartsSpace(TwoCellSpace):
    """The space of DARTS: a normal and a reduction cell (section 3.1).

    A cell has two inputs, the outputs of the two cells before it, and inner nodes that are joined to all
    earlier nodes: 14 edges × 8 operations by default. Its output is the concatenation of the inner nodes. A
    derived cell keeps two edges per node, from different nodes, with one operation each.

    Args:
        nodes: inner nodes of a cell.
        ops: the candidates of every edge: names of operations, or dotted names of the user's own.
        edge_ops: the candidates of each edge by the kind of the cell, the same number each and all of them in
            `ops`; None: all edges have `ops`.

    >>> space = DartsSpace()
    >>> space.groups["normal"].shape
    (14, 8)
    >>> genotype = space.sample(torch.Generator().manual_seed(0))
    >>> space.parse(space.notation(genotype)) == genotype
    True
    """

    name: ClassVar[str] = "darts"

    @checked
    def __init__(
        self,
        nodes: InnerNodes = 4,
        ops: Sequence[str] = OPS,
        edge_ops: Mapping[str, Sequence[Sequence[str]]] | None = None,
    ) -> None:
        super().__init__(nodes, ops)
        self.edge_ops = edge_ops
        edges = tuple((source, target) for target in self.inner for source in range(target))
        self.group = Group(edges, self.ops)
        self._groups = dict.fromkeys(self.cells, self.group)
        if edge_ops is not None:
            self._groups = groups_of_edges(self.group, edge_ops, self.cells)

    @property
    def groups(self) -> Mapping[str, Group]:
        return self._groups

    @checked
    def supernet(  # type: ignore[override]
        self,
        *,
        in_channels: Channels,
        num_classes: PositiveInt,
        channels: Channels = 8,
        cells: Cells = 5,
        stem: Stem = "cifar",
        stem_multiplier: PositiveInt = 3,
        partial: PositiveInt = 1,
    ) -> Supernet:
        def graph(kind: str, width: int) -> CellGraph:
            return CellGraph(
                self.group.edges,
                self.groups[kind].candidates,
                inputs=INPUTS,
                nodes=self.inner.stop,
                channels=width,
                norm=SEARCH_NORM,
                stride=STRIDES[kind],
                partial=partial,
            )

        outputs = {kind: tuple(self.inner) for kind in self.groups}
        backbone = DartsBackbone(
            graph, outputs, SEARCH_NORM, in_channels, channels, cells, stem, stem_multiplier
        )
        return Supernet(backbone, num_classes)

    def one_hot(self, genotype: Genotype) -> dict[str, Tensor]:
        for kind, cell in genotype:
            if set(cell.output) != set(self.inner):
                raise InputError(f"{kind!r} must return all {len(self.inner)} inner nodes", got=cell)
        return super().one_hot(genotype)

    def discretize(self, scores: Mapping[str, Tensor]) -> Genotype:
        """Keep two edges per node, by the largest score of an operation other than `none` (section 2.4)."""
        self.check_scores(scores)
        cells = {kind: self._strongest(matrix, self.groups[kind]) for kind, matrix in scores.items()}
        return self.genotype_of(cells)

    def _strongest(self, scores: Tensor, group: Group) -> Cell:
        pairs = zip(group.candidates, scores.tolist(), strict=True)
        table = [dict(zip(names, row, strict=True)) for names, row in pairs]
        edges = []
        for node in self.inner:
            candidates = []
            for row, (source, target) in enumerate(group.edges):
                if target == node:
                    op, score = best({op: table[row][op] for op in real_ops(group.candidates[row])})
                    candidates.append((score, Edge(op, source, target)))
            candidates.sort(key=lambda item: -item[0])  # stable: ties go to the earlier edge
            edges += [edge for _, edge in candidates[:2]]
        return Cell(edges, INPUTS, self.inner)

    def sample(self, generator: torch.Generator) -> Genotype:
        return self.genotype_of({kind: self._sample_cell(kind, generator) for kind in self.groups})

    def _sample_cell(self, kind: str, generator: torch.Generator) -> Cell:
        edges = []
        for node in self.inner:
            sources = choose(combinations(range(node), 2), generator)
            edges += [
                Edge(choose(self._ops(kind, source, node), generator), source, node) for source in sources
            ]
        return Cell(edges, INPUTS, self.inner)

    def _ops(self, kind: str, source: int, target: int) -> list[str]:
        """Return the operations that a derived edge may have."""
        group = self.groups[kind]
        return real_ops(group.candidates[group.edges.index((source, target))])

    def neighbors(self, genotype: Genotype) -> list[Genotype]:
        """Return the genotypes with another operation on one edge, or with another source of one edge.

        An edge from another source has the same operation; any, if the two edges have no candidate in common.
        """
        self.check(genotype)
        neighbors = []
        for kind, cell in genotype:
            for index, edge in enumerate(cell.edges):
                others = [e for i, e in enumerate(cell.edges) if i != index]
                free = set(range(edge.target)) - {e.source for e in others if e.target == edge.target}
                changes = {source: self._changes(kind, edge, source) for source in free}
                for op, source in product(real_ops(self.ops), sorted(free)):
                    if op in changes[source]:
                        changed = Cell([*others, Edge(op, source, edge.target)], cell.inputs, cell.output)
                        neighbors.append(self.genotype_of({**dict(genotype), kind: changed}))
        return neighbors

    def _changes(self, kind: str, edge: Edge, source: int) -> list[str]:
        """Return the operations that an edge may have if it starts from `source`."""
        here, there = (self._ops(kind, node, edge.target) for node in (edge.source, source))
        if source == edge.source:
            return [op for op in there if op != edge.op]
        return [op for op in there if op == edge.op] if {*here} & {*there} else there


def groups_of_edges(
    group: Group, edge_ops: Mapping[str, Sequence[Sequence[str]]], cells: Sequence[str]
) -> dict[str, Group]:
    """Return the group of each kind of cell, with different candidates on each edge."""
    if set(edge_ops) != set(cells):
        raise InputError(
            f"`edge_ops` must have operations for {', '.join(cells)}",
            got=list(edge_ops),
            where="space.edge_ops",
        )
    return {
        kind: Group(group.rows, group.ops, own=tuple(map(operation_names, edge_ops[kind]))) for kind in cells
    }
