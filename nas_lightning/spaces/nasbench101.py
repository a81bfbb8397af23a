"""The space of NAS-Bench-101 (Ying et al. 2019, arXiv:1902.09635): modules of up to 7 vertices and 9 edges.

Operations stand on vertices. The network has three stacks of modules, with max pooling and twice the channels
from one to the next (section 2.2). Architectures are drawn and changed one by one; no supernet holds them
all, but those of its sub-spaces `nasbench1shot1` do.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype, load_json
from nas_lightning.ops import TRAIN_NORM, Norm
from nas_lightning.spaces import modules101
from nas_lightning.spaces.base import Group, SearchSpace, choose
from nas_lightning.spaces.modules101 import INPUT, MOST_VERTICES, OPS, OUTPUT, Module
from nas_lightning.spaces.network import Network
from nas_lightning.spaces.network101 import ModuleBackbone
from nas_lightning.spaces.supernet import Supernet

_EXPECTED = 'expected "0110…:input,conv3x3-bn-relu,…,output" or JSON {"matrix": [[0, 1, …], …], "ops": […]}'


class NasBench101(SearchSpace):
    """One module for all places in the network.

    >>> space = NasBench101()
    >>> genotype = space.parse("010001000:input,maxpool3x3,output")
    >>> print(genotype)
    cell: maxpool3x3(0)→1 ⇒ [1]
    >>> space.notation(genotype)
    '010001000:input,maxpool3x3,output'
    """

    name: ClassVar[str] = "nasbench101"

    @property
    def groups(self) -> Mapping[str, Group]:
        return {}

    @property
    def cells(self) -> tuple[str, ...]:
        return ("cell",)

    def supernet(  # type: ignore[override]
        self, *, in_channels: int, num_classes: int
    ) -> Supernet:
        _no_supernet()

    def one_hot(self, genotype: Genotype) -> dict[str, Tensor]:
        _no_supernet()

    def discretise(self, scores: Mapping[str, Tensor]) -> Genotype:
        _no_supernet()

    def network(  # type: ignore[override]
        self,
        genotype: Genotype,
        *,
        in_channels: int,
        num_classes: int,
        channels: int = 128,
        cells: int = 3,
        auxiliary: bool = False,
        dropout: float = 0.0,
        norm: Norm = TRAIN_NORM,
    ) -> Network:
        """`channels` are those of the stem and the first stack, `cells` are counted per stack."""
        backbone = ModuleBackbone(self.module(genotype), norm, in_channels, channels, cells)
        return Network(backbone, num_classes, auxiliary=auxiliary, dropout=dropout)

    def module(self, genotype: Genotype) -> Module:
        """The genotype's module, without vertices that are not between input and output."""
        self.check(genotype)
        return modules101.prune(modules101.from_cell(genotype["cell"]))

    def hash(self, genotype: Genotype) -> str:
        """The architecture's name in the public benchmark, the same for all orders of its vertices."""
        return modules101.module_hash(self.module(genotype))

    def check(self, genotype: Genotype) -> None:
        super().check(genotype)
        modules101.check(modules101.prune(modules101.from_cell(genotype["cell"])))

    def sample(self, generator: torch.Generator) -> Genotype:
        """As the public benchmark draws: matrices of 7 vertices and operations until one is valid.

        They are pruned, so that this is not uniform over graphs: of 2,000 draws 5 had 7 vertices, as 85 % of
        the space has, and 193 none but input and output.
        """
        places = list(combinations(range(MOST_VERTICES), 2))
        while True:
            bits = torch.randint(2, (len(places),), generator=generator).tolist()
            ops = [choose(OPS, generator) for _ in range(MOST_VERTICES - 2)]
            matrix = [[0] * MOST_VERTICES for _ in range(MOST_VERTICES)]
            for (source, target), bit in zip(places, bits, strict=True):
                matrix[source][target] = bit
            try:
                module = modules101.prune(modules101.module_of(matrix, ops))
                modules101.check(module)
            except InputError:
                continue
            return self.genotype(module)

    def neighbours(self, genotype: Genotype) -> list[Genotype]:
        """Another operation, an edge more or less, or a vertex of one edge in and one out more or less."""
        return [self.genotype(module) for module in modules101.variations(self.module(genotype))]

    def genotype(self, module: Module) -> Genotype:
        """A module as a genotype of this space."""
        return Genotype(self.name, {"cell": modules101.to_cell(module)})

    def parse(self, text: str | Mapping[str, Any]) -> Genotype:
        """The public benchmark's matrix and operations, as JSON or compact, or our own JSON; pruned."""
        data = load_json(text, _EXPECTED) if isinstance(text, str) and text.lstrip().startswith("{") else text
        if isinstance(data, Mapping) and "cells" in data:
            genotype = Genotype.from_dict({"space": self.name, **data})
            self.check(genotype)
            return genotype
        matrix, ops = _compact(data) if isinstance(data, str) else _parts(data)
        module = modules101.prune(modules101.module_of(matrix, ops))
        modules101.check(module)
        return self.genotype(module)

    def notation(self, genotype: Genotype) -> str:
        """The matrix row by row and the operations, as the public benchmark's files have them."""
        self.check(genotype)
        module = modules101.from_cell(genotype["cell"])
        digits = "".join(str(value) for row in module.matrix for value in row)
        return f"{digits}:{','.join((INPUT, *module.ops, OUTPUT))}"


def _no_supernet() -> NoReturn:
    raise InputError(
        "expected a space with a supernet, such as nasbench1shot1_s1", got="nasbench101", where="space"
    )


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
