"""Operations of more channels that go on from narrower ones (Net2Net, Chen et al. 2016, arXiv:1511.05641).

A weight of n channels becomes one of n′ by a map g of its channels,

    W′[j] = W[g(j)],   g(j) = j for j < n, else drawn uniformly from the n,

along every dimension that grows. What it computes is not kept, as Net2Net would by dividing: the channels
that come in are others of the network's and not copies.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def widen(weight: Tensor, shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """The weight with these sizes.

    >>> widen(torch.tensor([5.0, 7.0]), (3,), torch.Generator().manual_seed(0))
    tensor([5., 7., 5.])
    """
    for dimension, (old, new) in enumerate(zip(weight.shape, shape, strict=True)):
        drawn = torch.randint(old, (max(0, new - old),), generator=generator)
        index = torch.cat([torch.arange(min(old, new)), drawn]).to(weight.device)
        weight = weight.index_select(dimension, index)
    last = torch.channels_last if weight.dim() == 4 else torch.contiguous_format
    return weight.contiguous(memory_format=last)


def resize(parameter: nn.Parameter, value: Tensor) -> None:
    """Give the parameter a value of another size.

    Whoever holds the node of the graph that accumulates its gradient, as DistributedDataParallel does, keeps
    one that knows the old size; torch makes a new node for another data type.
    """
    parameter.data = value.to(torch.float16 if value.dtype != torch.float16 else torch.float32)
    parameter.data = value


def adopt(wide: nn.Module, narrow: nn.Module, generator: torch.Generator) -> nn.Module:
    """The wide module with the parameters of the narrow one, widened in place: optimisers go on with them."""
    sizes = {name: parameter.shape for name, parameter in wide.named_parameters()}
    for name, parameter in narrow.named_parameters():
        resize(parameter, widen(parameter.data, sizes[name], generator))
        owner, _, leaf = name.rpartition(".")
        setattr(wide.get_submodule(owner), leaf, parameter)
    return wide.train(narrow.training)
