"""Architectures as frozen, hashable values with JSON files.

A `Genotype` has the name of its space, the settings that differ from the space's defaults, and one `Cell` per
kind of cell. A cell is a directed acyclic graph: the first `inputs` nodes are its inputs, every edge carries
one operation, and the cell returns the nodes in `output`. Cells are equal if they describe the same graph, in
whatever order their edges were given. Decisions outside of cells are named `choices`.

>>> cell = Cell(edges=[("skip_connect", 1, 2), ("sep_conv_3x3", 0, 2)], inputs=2, output=[2])
>>> genotype = Genotype("darts", {"normal": cell, "reduce": cell}, settings={"nodes": 1})
>>> Genotype.from_dict(genotype.to_dict()) == genotype
True
>>> print(genotype["normal"])
sep_conv_3x3(0)→2, skip_connect(1)→2 ⇒ [2]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nas_lightning.errors import InputError
from nas_lightning.frozen_map import FrozenMap
from nas_lightning.utils.files import json_text, parse_json, read_text, write_whole

FILE_NAME = "genotype.json"
MOST_NODES = 1000  # far above any published cell; prevents a typo from filling the memory


class Edge(NamedTuple):
    """An operation from node `source` to node `target`.

    Args:
        op: the name of the operation.
        source: the node that it reads.
        target: the node to which it contributes.

    >>> Edge("skip_connect", source=0, target=1).op
    'skip_connect'
    """

    op: str
    source: int
    target: int


@dataclass(frozen=True)
class Cell:
    """A cell: its edges sorted by (target, source, op), its input nodes, and its output nodes.

    Args:
        edges: in any order.
        inputs: number of input nodes.
        output: the nodes that the cell returns.
    """

    edges: tuple[Edge, ...]
    inputs: int
    output: tuple[int, ...]

    def __init__(self, edges: Iterable[Iterable[Any]], inputs: int, output: Iterable[int]) -> None:
        checked = sorted((_edge(edge) for edge in edges), key=lambda e: (e.target, e.source, e.op))
        object.__setattr__(self, "edges", tuple(checked))
        object.__setattr__(self, "inputs", _count(inputs, "the number of input nodes"))
        object.__setattr__(self, "output", tuple(_count(node, "an output node") for node in output))
        self._validate()

    def _validate(self) -> None:
        if self.inputs < 1:
            raise InputError("A cell must have at least one input node", got=self.inputs)
        for edge in self.edges:
            if not 0 <= edge.source < edge.target or edge.target < self.inputs:
                raise InputError("An edge must lead from an earlier node to a later inner node", got=edge)
        if not self.output or len(set(self.output)) != len(self.output):
            raise InputError(
                "Output nodes must be distinct, and there must be at least one", got=list(self.output)
            )
        fed = {edge.target for edge in self.edges} | set(range(self.inputs))
        for node in (*self.output, *(edge.source for edge in self.edges)):
            if node not in fed:
                raise InputError(f"Node {node} is used but has no incoming edge")

    @property
    def nodes(self) -> int:
        """Number of nodes, inputs included."""
        return 1 + max(*self.output, *(edge.target for edge in self.edges), self.inputs - 1)

    def into(self, node: int) -> tuple[Edge, ...]:
        """Return the edges that end in `node`."""
        return tuple(edge for edge in self.edges if edge.target == node)

    def __str__(self) -> str:
        edges = ", ".join(f"{edge.op}({edge.source})→{edge.target}" for edge in self.edges)
        return f"{edges} ⇒ {list(self.output)}"


@dataclass(frozen=True)
class Genotype:
    """An architecture.

    Args:
        space: the name of its space.
        cells: by name.
        settings: arguments of the space that differ from its defaults.
        choices: decisions outside of cells, by name.
    """

    space: str
    cells: tuple[tuple[str, Cell], ...]
    settings: FrozenMap
    choices: FrozenMap

    def __init__(
        self,
        space: str,
        cells: Mapping[str, Cell],
        settings: Mapping[str, Any] = {},
        choices: Mapping[str, Any] = {},
    ) -> None:
        if not cells and not choices:
            raise InputError("A genotype must have at least one cell or choice")
        object.__setattr__(self, "space", space)
        object.__setattr__(self, "cells", tuple(sorted(cells.items())))
        object.__setattr__(self, "settings", FrozenMap(settings))
        object.__setattr__(self, "choices", FrozenMap(choices))

    def __getitem__(self, name: str) -> Cell:
        return dict(self.cells)[name]

    def __iter__(self) -> Iterator[tuple[str, Cell]]:
        return iter(self.cells)

    def __str__(self) -> str:
        choices = (f"{name}={value}" for name, value in self.choices.to_dict().items())
        return "\n".join([*(f"{name}: {cell}" for name, cell in self.cells), *choices])

    @property
    def ops(self) -> tuple[str, ...]:
        """The operation of every edge of every cell."""
        return tuple(edge.op for _, cell in self.cells for edge in cell.edges)

    def to_dict(self) -> dict[str, Any]:
        """Convert to containers for JSON or YAML; empty settings and choices are omitted."""
        cells = {
            name: {"edges": [list(e) for e in cell.edges], "inputs": cell.inputs, "output": list(cell.output)}
            for name, cell in self.cells
        }
        further = {"settings": self.settings.to_dict(), "choices": self.choices.to_dict()}
        kept = {name: values for name, values in further.items() if values}
        return {"space": self.space, **kept, "cells": cells}

    @classmethod
    def from_dict(cls, data: object, where: object = None) -> Genotype:
        """Invert `to_dict`; raise an `InputError` for other data."""
        expected = "A genotype must be {'space': …, 'cells': {name: {'edges', 'inputs', 'output'}}}"
        if not (isinstance(data, Mapping) and isinstance(data.get("space"), str)):
            raise InputError(expected, got=data, where=where)
        cells, further = data.get("cells"), [data.get(name, {}) for name in ("settings", "choices")]
        if not isinstance(cells, Mapping) or not all(_is_cell(cell) for cell in cells.values()):
            raise InputError(expected, got=data, where=where)
        if not all(isinstance(values, Mapping) for values in further):
            raise InputError("`settings` and `choices` of a genotype must be mappings", got=data, where=where)
        try:
            built = {str(n): Cell(c["edges"], c["inputs"], c["output"]) for n, c in cells.items()}
            return cls(data["space"], built, *({str(n): v for n, v in values.items()} for values in further))
        except InputError as error:
            raise InputError(str(error), where=where) from None
        except RecursionError:
            raise InputError("The settings are nested too deeply", where=where) from None


def _is_cell(data: object) -> bool:
    return (
        isinstance(data, Mapping)
        and {"edges", "inputs", "output"} <= set(data)
        and all(isinstance(data[key], (list, tuple)) for key in ("edges", "output"))
    )


def _edge(edge: Any) -> Edge:
    parts = tuple(edge) if isinstance(edge, (list, tuple)) else ()
    if len(parts) != 3 or not isinstance(parts[0], str):
        raise InputError("An edge must be [operation, source, target]", got=edge)
    return Edge(parts[0], _count(parts[1], "an edge's source"), _count(parts[2], "an edge's target"))


def _count(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MOST_NODES:
        raise InputError(f"{what} must be an integer from 0 to {MOST_NODES - 1}", got=value)
    return value


def write_genotypes(path: Path, genotypes: Iterable[Genotype], **facts: Any) -> Path:
    """Write the genotypes of a run, with `facts` about it (strategy, seed, versions, scores)."""
    content = {**facts, "genotypes": [genotype.to_dict() for genotype in genotypes]}
    return write_whole(path, json_text(content, 2) + "\n")


def read_genotypes(path: str | Path) -> list[Genotype]:
    """Read the genotypes in a run's folder, or in a file of `write_genotypes` or `Genotype.to_dict`."""
    path = Path(path)
    try:
        file = path / FILE_NAME if path.is_dir() else path
        text = read_text(file)
    except UnicodeDecodeError as error:
        raise InputError(f"The file must be JSON: {error}", where=file) from None
    except (OSError, ValueError):  # missing, unreadable, or an invalid name
        raise InputError(
            "`genotype.path` must be the folder of a run or a genotype file",
            got=str(path),
            where="genotype.path",
        ) from None
    data = parse_json(text, where=file)
    found = data.get("genotypes") if isinstance(data, dict) and "genotypes" in data else [data]
    if not isinstance(found, list) or not found:
        raise InputError("The file must have at least one genotype", got=found, where=file)
    return [Genotype.from_dict(item, where=file) for item in found]
