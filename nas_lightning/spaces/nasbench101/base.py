"""What NAS-Bench-101 and its sub-spaces have in common: genotypes, networks and notations of modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nas_lightning.checks import Cells, Channels, PositiveInt, Share, checked
from nas_lightning.errors import InputError
from nas_lightning.files import parse_json
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.nasbench101 import modules as modules101
from nas_lightning.spaces.nasbench101.modules import INPUT, OPS, OUTPUT, Module
from nas_lightning.spaces.nasbench101.network import ModuleBackbone
from nas_lightning.spaces.network import Network
from nas_lightning.spaces.ops import NONE, TRAIN_NORM, Norm, operation_names

GENOTYPES = "nasbench101"  # the space that every genotype of a module names, so that it can be looked up
_EXPECTED = 'expected "0110…:input,conv3x3-bn-relu,…,output" or JSON {"matrix": [[0, 1, …], …], "ops": […]}'


class ModuleSpace(SearchSpace):
    """A space of modules. A genotype may have vertices that lead nowhere; its network and its hash do not.

    Args:
        ops: names of the operations on vertices.
    """

    def __init__(self, ops: Sequence[str] = OPS) -> None:
        self.ops = operation_names(ops)
        if NONE in self.ops:
            raise InputError("expected no none among operations of vertices", got=self.ops, where="space.ops")

    @property
    def cells(self) -> tuple[str, ...]:
        return ("cell",)

    @checked
    def network(  # type: ignore[override]
        self,
        genotype: Genotype,
        *,
        in_channels: Channels,
        num_classes: PositiveInt,
        channels: Channels = 32,
        cells: Cells = 3,
        auxiliary: bool = False,
        dropout: Share = 0.0,
        norm: Norm = TRAIN_NORM,
    ) -> Network:
        """`channels` are those of the stem and the first stack, `cells` are counted per stack."""
        backbone = ModuleBackbone(self.module(genotype), norm, in_channels, channels, cells)
        return Network(backbone, num_classes, auxiliary=auxiliary, dropout=dropout)

    def module(self, genotype: Genotype) -> Module:
        """The genotype's module, without vertices that are not between input and output."""
        self.check(genotype)
        return modules101.prune(modules101.from_cell(genotype["cell"], self.ops))

    def hash(self, genotype: Genotype) -> str:
        """The architecture's name in the public benchmark, the same for all orders of its vertices."""
        return modules101.module_hash(self.module(genotype), self.ops)

    def check(self, genotype: Genotype) -> None:
        _check_names(genotype)
        modules101.check(modules101.prune(modules101.from_cell(genotype["cell"], self.ops)))

    def genotype(self, module: Module) -> Genotype:
        """A module as a genotype."""
        settings = {name: value for name, value in self.settings.items() if name == "ops"}
        return Genotype(GENOTYPES, {"cell": modules101.to_cell(module)}, settings)

    def notation(self, genotype: Genotype) -> str:
        """The matrix row by row and the operations, as the public benchmark's files have them."""
        self.check(genotype)
        module = modules101.from_cell(genotype["cell"], self.ops)
        digits = "".join(str(value) for row in module.matrix for value in row)
        return f"{digits}:{','.join((INPUT, *module.ops, OUTPUT))}"


def read_module(text: str | Mapping[str, Any], candidates: Sequence[str] = OPS) -> Module:
    """A module from the public benchmark's matrix and operations, or from our own JSON; not pruned."""
    data = parse_json(text, _EXPECTED) if isinstance(text, str) and text.lstrip().startswith("{") else text
    if isinstance(data, Mapping) and "cells" in data:
        genotype = Genotype.from_dict({"space": GENOTYPES, **data})
        _check_names(genotype)
        return modules101.from_cell(genotype["cell"], candidates)
    matrix, ops = _compact(data) if isinstance(data, str) else _parts(data)
    return modules101.module_of(matrix, ops, candidates)


def _check_names(genotype: Genotype) -> None:
    if genotype.space != GENOTYPES:
        raise InputError(f"expected a genotype of the space {GENOTYPES!r}", got=genotype.space)
    names = [name for name, _ in genotype]
    if names != ["cell"]:
        raise InputError("expected one cell of the name 'cell'", got=", ".join(names))


def _compact(text: str) -> tuple[list[list[int]], list[str]]:
    digits, _, ops = text.strip().partition(":")
    size = int(len(digits) ** 0.5)
    if not digits or set(digits) - {"0", "1"} or size * size != len(digits):
        raise InputError(_EXPECTED, got=text)
    rows = [[int(digit) for digit in digits[size * row : size * (row + 1)]] for row in range(size)]
    return rows, [op.strip() for op in ops.split(",") if op.strip()]


def _parts(data: object) -> tuple[list[list[int]], list[str]]:
    if isinstance(data, Mapping):
        matrix = data.get("matrix", data.get("module_adjacency"))
        ops = data.get("ops", data.get("module_operations"))
        rows = isinstance(matrix, (list, tuple)) and all(isinstance(row, (list, tuple)) for row in matrix)
        texts = isinstance(ops, (list, tuple)) and all(isinstance(op, str) for op in ops)
        if rows and texts and all(type(value) is int for row in matrix for value in row):
            return [list(row) for row in matrix], list(ops)
    raise InputError(_EXPECTED, got=data)
