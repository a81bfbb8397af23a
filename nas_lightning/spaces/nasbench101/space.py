"""The space of NAS-Bench-101 (Ying et al. 2019, arXiv:1902.09635): modules of up to 7 vertices and 9 edges.

Operations stand on vertices. The network has three stacks of modules, with max pooling and twice the channels
from one to the next (section 2.2). Architectures are drawn and changed one by one; no supernet holds them
all, but those of its sub-spaces `nasbench1shot1` do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor

from nas_lightning.checks import Channels, PositiveInt, checked
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.nasbench101 import modules as modules101
from nas_lightning.spaces.nasbench101 import sampling as sampling101
from nas_lightning.spaces.nasbench101.base import GENOTYPES, ModuleSpace, read_module
from nas_lightning.spaces.supernet import Supernet


class NasBench101(ModuleSpace):
    """One module for all places in the network.

    Args:
        ops: the candidates of every vertex, by default the benchmark's: names, dotted names of a user's own.

    >>> space = NasBench101()
    >>> genotype = space.parse("010001000:input,maxpool3x3,output")
    >>> print(genotype)
    cell: maxpool3x3(0)→1 ⇒ [1]
    >>> space.notation(genotype)
    '010001000:input,maxpool3x3,output'
    """

    name: ClassVar[str] = GENOTYPES

    @property
    def groups(self) -> Mapping[str, Group]:
        return {}

    @checked
    def supernet(  # type: ignore[override]
        self, *, in_channels: Channels, num_classes: PositiveInt
    ) -> Supernet:
        _no_supernet()

    def one_hot(self, genotype: Genotype) -> dict[str, Tensor]:
        _no_supernet()

    def discretise(self, scores: Mapping[str, Tensor]) -> Genotype:
        _no_supernet()

    def sample(self, generator: torch.Generator) -> Genotype:
        """One of the 423,624, each as likely as any other."""
        return self.genotype(sampling101.draw(generator, self.ops))

    def neighbours(self, genotype: Genotype) -> list[Genotype]:
        """Another operation, an edge more or less, or a vertex of one edge in and one out more or less."""
        return [self.genotype(module) for module in modules101.variations(self.module(genotype), self.ops)]

    def parse(self, text: str | Mapping[str, Any]) -> Genotype:
        """The public benchmark's matrix and operations, compact or as JSON, or our own JSON; pruned."""
        module = modules101.prune(read_module(text, self.ops))
        modules101.check(module)
        return self.genotype(module)


def _no_supernet() -> NoReturn:
    raise InputError(
        "expected a space with a supernet, such as nasbench1shot1_s1", got="nasbench101", where="space"
    )
