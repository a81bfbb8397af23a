"""The blocks of a network: the modules that it is a chain of, whose outputs are its features level by level.

A block is an element of the network's outermost lists of modules (`nn.ModuleList`, and `nn.Sequential` of
modules that have parts themselves), or a child that stands beside such lists. Of our networks these are the
stem and the cells, of torchvision's or timm's ResNets the stem's layers and the residual blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn


def blocks(network: nn.Module) -> list[nn.Module]:
    """The blocks in the order of registration; activations and the like, which hold nothing, are none.

    >>> network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    >>> [type(block).__name__ for block in blocks(network)]
    ['Conv2d', 'Linear']
    """
    return [block for block in _parts(network) if _has(block.parameters()) or _has(block.children())]


def _parts(module: nn.Module, *, of_list: bool = False) -> Iterator[nn.Module]:
    for child in module.children():
        if _is_list(child):
            yield from _parts(child, of_list=True)
        elif not of_list and any(map(_is_list, child.children())):
            yield from _parts(child)
        else:
            yield child


def _is_list(module: nn.Module) -> bool:
    if isinstance(module, nn.Sequential):
        return all(_has(part.children()) for part in module)
    return isinstance(module, nn.ModuleList)


def _has(items: Iterator[object]) -> bool:
    return any(True for _ in items)


class Features:
    """The outputs of the blocks in one forward pass, in its order; the logits are none of them.

    Args:
        network: whose blocks are watched.
        samples: images of the batch.
    """

    def __init__(self, network: nn.Module, samples: int) -> None:
        self.network, self.samples = network, samples
        self.all: list[Tensor] = []

    def __enter__(self) -> Features:
        self._handles = [block.register_forward_hook(self._note) for block in blocks(self.network)]
        return self

    def __exit__(self, *exception: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _note(self, block: nn.Module, args: object, output: object) -> None:
        if isinstance(output, Tensor) and output.dim() > 1 and len(output) == self.samples:
            self.all.append(output)

    def before(self, logits: Tensor) -> list[Tensor]:
        """The outputs but that which is the logits."""
        return [output for output in self.all if output is not logits]


def spectral_entropy(features: Tensor) -> Tensor:
    """(m, c, …) → the entropy of the normalised spectrum of the channels' covariance.

    >>> spectral_entropy(torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])).exp()
    tensor(2., dtype=torch.float64)
    """
    rows = features.detach().movedim(1, -1).flatten(0, -2)  # (m · positions, c)
    rows = rows - rows.mean(dim=0)
    values = torch.linalg.eigvalsh((rows.T @ rows).double()).clamp(min=0)
    shares = values / values.sum()
    return torch.special.entr(shares).sum()
