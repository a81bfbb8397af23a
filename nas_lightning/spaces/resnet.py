"""Residual networks of three stages: how wide and how deep each stage is (He et al. 2016, arXiv:1512.03385).

A block is y = relu(shortcut(x) + norm(conv(relu(norm(conv(x)))))), with 3×3 convolutions; the first one of
the second and the third stage halves the resolution, and a 1×1 convolution is the shortcut where the shape
changes. Searching widths and depths follows Radosavovic et al. (2020, arXiv:2003.13678), at a smaller scale.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, NoReturn

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.genotype import Cell, Edge, Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.graph import DropPath, Mixtures
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.network import Backbone, Network
from nas_lightning.spaces.operations import TRAIN_NORM, Norm
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.utils.files import parse_json
from nas_lightning.utils.randomness import choose
from nas_lightning.validation import DISTINCT, PositiveInt, Share, checked, entries

STAGES = ("stage1", "stage2", "stage3")
Stage = tuple[int, int]  # width and depth
Candidates = Annotated[Sequence[PositiveInt], entries(1), DISTINCT]
_EXPECTED = "The architecture must be width×depth of three stages, such as 4x2|4x1|6x3, or JSON"


class ResNet(SearchSpace):
    """A width and a depth for each of three stages: 5³ × 4³ architectures.

    Args:
        widths: candidates, in quarters of the stage's channels.
        depths: candidates, in blocks.

    >>> space = ResNet()
    >>> genotype = space.parse("4x2|5x1|6x3")
    >>> space.stages(genotype)
    [(4, 2), (5, 1), (6, 3)]
    >>> len(space.neighbors(genotype))
    21
    """

    name: ClassVar[str] = "resnet"
    ranked_by: ClassVar[str | None] = "params"  # other metrics grow with depth

    @checked
    def __init__(self, widths: Candidates = (2, 3, 4, 5, 6), depths: Candidates = (1, 2, 3, 4)) -> None:
        self.widths, self.depths = tuple(widths), tuple(depths)

    @property
    def groups(self) -> Mapping[str, Group]:
        return {}

    @property
    def cells(self) -> tuple[str, ...]:
        return STAGES

    @checked
    def supernet(  # type: ignore[override]
        self, *, in_channels: PositiveInt, num_classes: PositiveInt
    ) -> Supernet:
        _no_supernet()

    def one_hot(self, genotype: Genotype) -> dict[str, Tensor]:
        _no_supernet()

    def discretize(self, scores: Mapping[str, Tensor]) -> Genotype:
        _no_supernet()

    @checked
    def network(  # type: ignore[override]
        self,
        genotype: Genotype,
        *,
        in_channels: PositiveInt,
        num_classes: PositiveInt,
        channels: PositiveInt = 16,
        auxiliary: bool = False,
        dropout: Share = 0.0,
        norm: Norm = TRAIN_NORM,
    ) -> Network:
        """Build the network; `channels` of the stem, and of the first stage if its width is 4."""
        stages = [
            (max(1, width * channels * 2**number // 4), depth)
            for number, (width, depth) in enumerate(self.stages(genotype))
        ]
        backbone = ResidualBackbone(stages, norm, in_channels, channels)
        return Network(backbone, num_classes, auxiliary=auxiliary, dropout=dropout)

    def stages(self, genotype: Genotype) -> list[Stage]:
        """Return the width and the depth of each stage."""
        self.check(genotype)
        return [_stage(genotype[name]) for name in STAGES]

    def of(self, stages: Sequence[Stage]) -> Genotype:
        """Return the genotype of these widths and depths; the inverse of `stages`."""
        if len(stages) != len(STAGES):
            raise InputError(f"There must be {len(STAGES)} stages", got=len(stages))
        genotype = self.genotype_of({name: _chain(*s) for name, s in zip(STAGES, stages, strict=True)})
        self.check(genotype)
        return genotype

    def check(self, genotype: Genotype) -> None:
        super().check(genotype)
        for name in STAGES:
            width, depth = _stage(genotype[name])
            if width not in self.widths or depth not in self.depths:
                expected = f"{name} must have a width of {self.widths} and a depth of {self.depths}"
                raise InputError(expected, got=f"{width}x{depth}")
            if genotype[name] != _chain(width, depth):
                raise InputError(f"{name} must be a chain of {depth} blocks", got=genotype[name])

    def sample(self, generator: torch.Generator) -> Genotype:
        return self.of([(choose(self.widths, generator), choose(self.depths, generator)) for _ in STAGES])

    def neighbors(self, genotype: Genotype) -> list[Genotype]:
        """Return the genotypes with another width or another depth of one stage."""
        stages, near = self.stages(genotype), []
        for number, (width, depth) in enumerate(stages):
            others = [(other, depth) for other in self.widths if other != width]
            others += [(width, other) for other in self.depths if other != depth]
            near += [self.of([*stages[:number], other, *stages[number + 1 :]]) for other in others]
        return near

    def notation(self, genotype: Genotype) -> str:
        """Write `width×depth` of each stage: `4x2|5x1|6x3`."""
        return "|".join(f"{width}x{depth}" for width, depth in self.stages(genotype))

    def parse(self, text: str | Mapping[str, Any]) -> Genotype:
        """Read `4x2|5x1|6x3`, or our JSON."""
        if isinstance(text, str) and not text.lstrip().startswith("{"):
            found = [re.fullmatch(r"\s*(\d{1,3})x(\d{1,3})\s*", part) for part in text.split("|")]
            if not all(found):
                raise InputError(_EXPECTED, got=text)
            return self.of([(int(match[1]), int(match[2])) for match in found if match])
        data = parse_json(text, _EXPECTED) if isinstance(text, str) else text
        if not isinstance(data, Mapping):
            raise InputError(_EXPECTED, got=data)
        return self.genotype_from_dict(data)


def _no_supernet() -> NoReturn:
    raise InputError("This needs a space with a supernet, such as darts", got="resnet", where="space")


def _chain(width: int, depth: int) -> Cell:
    return Cell([Edge(f"residual_{width}", block, block + 1) for block in range(depth)], 1, [depth])


def _stage(cell: Cell) -> Stage:
    """Return the width and the depth of a chain of equal blocks; (0, 0) for other cells."""
    width = cell.edges[0].op.removeprefix("residual_") if cell.edges else ""
    return (int(width), len(cell.edges)) if re.fullmatch(r"\d{1,3}", width, re.ASCII) else (0, 0)


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut: (b, c_in, h, w) → (b, c_out, h/stride, w/stride).

    Args:
        c_in: channels of the input.
        c_out: channels of the output.
        stride: of the first convolution and the shortcut.
        norm: of the convolutions.

    >>> ResidualBlock(4, 8, stride=2, norm=TRAIN_NORM)(torch.zeros(2, 4, 8, 8)).shape
    torch.Size([2, 8, 4, 4])
    """

    def __init__(self, c_in: int, c_out: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1, bias=False)
        self.norm1, self.norm2, self.drop_path = norm(c_out), norm(c_out), DropPath()
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or c_in != c_out:
            self.shortcut = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False), norm(c_out))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(self.shortcut(x) + self.drop_path(inner))


class ResidualBackbone(Backbone):
    """A 3×3 stem and three stages of residual blocks.

    Args:
        stages: channels and blocks of each.
        norm: of the network.
        in_channels: of the images.
        channels: of the stem.

    >>> backbone = ResidualBackbone([(4, 2), (6, 1)], TRAIN_NORM, in_channels=3, channels=4)
    >>> [tuple(output.shape[1:]) for output in backbone.cells_outputs(torch.zeros(2, 3, 8, 8))]
    [(4, 8, 8), (4, 8, 8), (6, 4, 4)]
    """

    def __init__(self, stages: Sequence[Stage], norm: Norm, in_channels: int, channels: int) -> None:
        super().__init__()
        conv = nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
        self.stem = nn.Sequential(conv, norm.outside_cells(channels), nn.ReLU())
        self.widths = [width for width, depth in stages for _ in range(depth)]
        first = {sum(depth for _, depth in stages[:number]) for number in range(1, len(stages))}
        before = [channels, *self.widths[:-1]]
        self.blocks = nn.ModuleList(
            ResidualBlock(c_in, c_out, 2 if index in first else 1, norm)
            for index, (c_in, c_out) in enumerate(zip(before, self.widths, strict=True))
        )
        self.auxiliary_at = stages[0][1] + stages[1][1] - 1  # the end of the second stage

    def cells_outputs(self, x: Tensor, mixtures: Sequence[Mixtures] | None = None) -> Iterator[Tensor]:
        x = self.stem(x)
        for block in self.blocks:
            x = self.run(block, x)
            yield x
