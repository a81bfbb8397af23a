"""Networks of stacked cells: the backbone of supernets and derived networks, and the derived network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.decoder import Decoder
from nas_lightning.spaces.graph import Candidates, CellGraph, DropPath, Mixtures
from nas_lightning.spaces.recomputation import save_all


class Backbone(nn.Module, ABC):
    """Stem and stacked cells; subclasses belong to a space and are independent of classes and strategies."""

    widths: list[int]
    """Output channels of each cell."""
    auxiliary_at: int
    """The index of the cell whose output feeds the auxiliary head: at two thirds of the depth."""
    auxiliary_second_norm: bool = True
    """Whether the auxiliary head has a second batch norm; DARTS' ImageNet head has none."""
    head_bias: bool = True
    """Whether the classifier has a bias."""
    checkpointed: bool = False
    """Whether the backward pass recomputes each cell (activation checkpointing)."""
    compiled: bool = False
    """Whether `torch.compile` compiles the cells; see `compile_cells`."""

    @abstractmethod
    def cells_outputs(self, x: Tensor, mixtures: Sequence[Mixtures] | None = None) -> Iterator[Tensor]:
        """Yield the output of each cell; `mixtures` has the weights of each cell, None: all operations."""

    def operations(self) -> list[nn.Module]:
        """Return the candidates of all cells that have parameters."""
        found = [op for cell in self.modules() if isinstance(cell, Candidates) for op in cell.operations()]
        return [op for op in found if any(True for _ in op.parameters())]

    @property
    def partial(self) -> int | None:
        """1/partial of the channels pass the operations; None if cells have no such setting."""
        found = {cell.partial for cell in self.modules() if isinstance(cell, CellGraph)}
        return found.pop() if len(found) == 1 else None

    def widen(self, partial: int, generator: torch.Generator) -> None:
        """Let 1/partial of the channels pass the operations of all cells from now on."""
        for cell in self.modules():
            if isinstance(cell, CellGraph):
                cell.widen(partial, generator)

    def run(self, cell: nn.Module, *inputs: Any) -> Tensor:
        """Return the output of a cell, checkpointed and compiled as set."""
        if self.compiled and id(cell) not in self._compiled_cells:
            self._compiled_cells.add(id(cell))
            cell.compile()
        if not (self.checkpointed and torch.is_grad_enabled()):
            return cell(*inputs)
        return checkpoint(_run_in_checkpoint, cell, *inputs, use_reentrant=False, preserve_rng_state=False)

    def compile_cells(self) -> None:
        """Let `torch.compile` compile each cell when it runs first; similar cells share a graph.

        The Python around the cells depends on values, which would break a graph of the whole network. A cell
        has one graph per set of parameters that a step differentiates, which exceeds torch's default limit.
        """
        import torch.compiler.config as config

        config.recompile_limit = max(config.recompile_limit, 4 * len(self.widths))
        self.compiled = True
        self._compiled_cells: set[int] = set()  # ids

    def final(self, x: Tensor) -> Tensor:
        """Apply the layers between the last cell and the pooling."""
        return x


def _run_in_checkpoint(cell: nn.Module, *inputs: Any) -> Tensor:
    with save_all():
        return cell(*inputs)


class AuxiliaryHead(nn.Module):
    """A second classifier on an inner feature map of any size (DARTS, appendix A.2.1).

    The pooling's two windows per side cover the map and have DARTS' sizes for the maps that DARTS has: 8×8
    (kernel 5, stride 3) and 7×7 (kernel 5, stride 2).

    Args:
        channels: of the feature map.
        num_classes: of the data set.
        second_norm: whether a batch norm follows the second convolution.

    >>> AuxiliaryHead(channels=4, num_classes=3)(torch.rand(2, 4, 8, 8)).shape
    torch.Size([2, 3])
    """

    def __init__(self, channels: int, num_classes: int, second_norm: bool = True) -> None:
        super().__init__()
        self.reduce = nn.Sequential(nn.Conv2d(channels, 128, 1, bias=False), nn.BatchNorm2d(128), nn.ReLU())
        norm = nn.BatchNorm2d(768) if second_norm else nn.Identity()
        self.expand = nn.Sequential(nn.Conv2d(128, 768, 2, bias=False), norm, nn.ReLU())
        self.classifier = nn.Linear(768, num_classes)

    def forward(self, x: Tensor) -> Tensor:  # (b, c, h, w) → (b, classes)
        x = _pool_to_2x2(F.relu(x))
        return self.classifier(self.expand(self.reduce(x)).flatten(1))


def _pool_to_2x2(x: Tensor) -> Tensor:
    if min(x.shape[-2:]) < 2:
        return F.adaptive_avg_pool2d(x, 2)
    kernel = [min((side + 1) // 2 + 1, side - 1) for side in x.shape[-2:]]
    stride = [side - k for side, k in zip(x.shape[-2:], kernel, strict=True)]
    return F.avg_pool2d(x, kernel, stride)


@runtime_checkable
class DerivedNetwork(Protocol):
    """The interface of the module that `SearchSpace.network` returns.

    Training uses the auxiliary head and sets the drop path rate; model files omit `auxiliary.*`; fine-tuning
    on other classes replaces `head` and may freeze `backbone` at first.

    Args:
        backbone: everything except the classifiers.
        head: the classifier.
        auxiliary: a second classifier for training; None: there is none.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> genotype = space.sample(torch.Generator().manual_seed(0))
    >>> network: DerivedNetwork = space.network(genotype, in_channels=1, num_classes=3, channels=4, cells=1)
    >>> network(torch.zeros(2, 1, 8, 8)).shape, network.head.out_features, network.auxiliary
    (torch.Size([2, 3]), 3, None)
    """

    backbone: nn.Module
    head: nn.Module
    auxiliary: nn.Module | None

    def __call__(self, x: Tensor) -> Tensor:
        """(b, c, h, w) → (b, classes)."""

    def forward_auxiliary(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the network and of its auxiliary head."""

    def set_drop_path(self, rate: float) -> None:
        """Set the rate at which operations are dropped in training."""


class Network(nn.Module):
    """A derived network: an ordinary module, independent of the search.

    Args:
        backbone: stem and cells.
        num_classes: outputs.
        auxiliary: whether to have a second classifier, for training only.
        dropout: rate before the classifier.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> genotype = space.sample(torch.Generator().manual_seed(0))
    >>> network = space.network(genotype, in_channels=3, num_classes=10, channels=8, cells=1)
    >>> network(torch.zeros(2, 3, 16, 16)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, backbone: Backbone, num_classes: int, *, auxiliary: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_outputs(num_classes)
        self.backbone = backbone
        self.dropout = nn.Dropout(dropout)
        self.head: Any = nn.Linear(backbone.widths[-1], num_classes, bias=backbone.head_bias)
        self.auxiliary: AuxiliaryHead | None = None
        if auxiliary:
            width = backbone.widths[backbone.auxiliary_at]
            self.auxiliary = AuxiliaryHead(width, num_classes, backbone.auxiliary_second_norm)
        self.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:  # (b, c, h, w) → (b, classes), dense: (b, classes, h, w)
        maps = self.backbone.cells_outputs(channels_last(x))
        if isinstance(self.head, Decoder):
            return decode(self.head, self.backbone, maps, x)
        return self._classify(list_last(maps))

    def forward_auxiliary(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the network and of its auxiliary head."""
        if self.auxiliary is None:
            raise RuntimeError("the network has no auxiliary head: build it with auxiliary=True")
        for index, features in enumerate(self.backbone.cells_outputs(channels_last(x))):
            if index == self.backbone.auxiliary_at:
                auxiliary = self.auxiliary(features)
        return self._classify(features), auxiliary

    def _classify(self, features: Tensor) -> Tensor:
        pooled = self.backbone.final(features).mean(dim=(2, 3))
        return self.head(self.dropout(pooled))

    def set_drop_path(self, rate: float) -> None:
        """Set the rate at which operations are dropped in training."""
        for module in self.modules():
            if isinstance(module, DropPath):
                module.drop_prob = rate


def channels_last(x: Tensor) -> Tensor:
    """Return images (b, c, h, w) in the memory format that makes convolutions fast."""
    return x.contiguous(memory_format=torch.channels_last)


def decode(head: Decoder, backbone: Backbone, maps: Iterator[Tensor], x: Tensor) -> Tensor:
    """Return an output per pixel of the images x (b, c, h, w), from the outputs of the cells."""
    *inner, last = maps
    return head([*inner, backbone.final(last)], x.shape[-2:])


def list_last(items: Iterator[Tensor]) -> Tensor:
    """Return the last item without keeping the others in memory."""
    for item in items:
        last = item
    return last


def check_outputs(count: int) -> None:
    """Raise unless the count is positive."""
    if count < 1:
        raise InputError("There must be at least one output", got=count)


NetworkFactory = Callable[[Genotype], nn.Module]
