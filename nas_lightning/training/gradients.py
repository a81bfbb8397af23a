"""Gradients of a step, averaged over the processes that share it.

A bilevel step differentiates two losses with respect to two sets of parameters, and a sampled path leaves
most of one set unused. DistributedDataParallel expects one backward pass that reaches every parameter, or
walks the graph at every step to find unused ones. Here gradients are taken with `autograd.grad` for the
needed parameters only, and averaged explicitly with one message per data type. All processes must reach the
same parameters, which a shared generator ensures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, distributed, nn

Gradients = list[Tensor | None]


def gradients(loss: Tensor, parameters: Sequence[Tensor]) -> Gradients:
    """Return ∂loss/∂θ of each parameter, averaged over processes; None if the loss does not reach it.

    A sampled path may reach none of them: `none` on every edge into the output.
    """
    if not loss.requires_grad:
        return [None] * len(parameters)
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    average([gradient for gradient in found if gradient is not None])
    return list(found)


@contextmanager
def constant(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Do not compute gradients of these parameters within the context."""
    held = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in held:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in held:
            parameter.requires_grad_(True)


def average(tensors: Sequence[Tensor]) -> None:
    """Replace each tensor by its mean over all processes; the order must be the same in all of them."""
    if (
        not distributed.is_available()
        or not distributed.is_initialized()
        or distributed.get_world_size() == 1
    ):
        return
    for dtype in {tensor.dtype: None for tensor in tensors}:  # in order of appearance
        same = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in same])
        distributed.all_reduce(flat)
        flat /= distributed.get_world_size()
        for tensor, part in zip(same, flat.split([t.numel() for t in same]), strict=True):
            tensor.copy_(part.view_as(tensor))


def accumulate(
    parameters: Sequence[nn.Parameter], grads: Iterable[Tensor | None], share: float = 1.0
) -> None:
    """Add `share` times the gradients to `.grad` of the parameters; None adds nothing."""
    for parameter, gradient in zip(parameters, grads, strict=True):
        if gradient is not None:
            scaled = gradient if share == 1.0 else gradient * share
            parameter.grad = scaled if parameter.grad is None else parameter.grad + scaled
