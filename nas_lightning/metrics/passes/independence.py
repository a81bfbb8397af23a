"""Whether a network treats its samples apart: what the layer by layer kernel takes for granted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from nas_lightning.metrics.passes.calls import Call, Calls
from nas_lightning.metrics.passes.layers import BATCH_NORMS, IncompleteError
from nas_lightning.metrics.passes.outputs import logits_of
from nas_lightning.spaces.network import Network

_PROBE = 2


def check_independence(network: nn.Module, x: Tensor, logits: Tensor, calls: Calls) -> None:
    """Raise unless two samples go through the layers alone as they do among the others, and so come out.

    Batch norms mix samples, which is known: they have fixed statistics here. The networks of our spaces are
    known to have no other mixing.
    """
    if isinstance(network, Network):
        return
    norms = [module for module in network.modules() if _uses_batch(module)]
    few = x[: min(_PROBE, len(x) - 1)].detach()
    alone = Calls(network, few)
    with _fixed_statistics(norms), torch.enable_grad():
        try:
            alone.record(lambda: logits_of(network(few)))
        except Exception as error:  # of any kind: it is somebody's network
            raise IncompleteError(f"it does not take {len(few)} of {len(x)} samples") from error
        if norms:
            calls = Calls(network, x)
            logits = calls.record(lambda: logits_of(network(x)))
        mixed = _see_others(calls, logits, len(few))  # in here: checkpoints compute the pass anew
    if [call.layer for call in alone.parametric_calls] != [call.layer for call in calls.parametric_calls]:
        raise IncompleteError("other layers are called for other batches")
    for call in alone.parametric_calls:
        if len(call.input) != len(few):
            where = f"{type(call.layer).__name__} {call.name!r}"
            raise IncompleteError(f"samples are not the first axis in {where}")
    if mixed:
        raise IncompleteError("samples are mixed")


def _see_others(calls: Calls, logits: Tensor, few: int) -> bool:
    """Whether the first samples' logits depend on what a layer returned for other samples, however little."""
    cotangent = torch.zeros_like(logits)
    own = cotangent[:few]  # which get shares that no softmax adds up to a constant
    own.copy_(torch.arange(own.numel()).cos().view_as(own))
    others: list[bool] = []

    def listener(call: Call, gradient: Tensor) -> None:
        others.append(bool(call.trained) and bool(gradient[few:].any()))

    calls.backward(logits, cotangent, listener)
    return any(others)


def _uses_batch(module: nn.Module) -> bool:
    return isinstance(module, BATCH_NORMS) and (module.training or module.running_mean is None)


@contextmanager
def _fixed_statistics(norms: Sequence[Any]) -> Iterator[None]:
    """Batch norms in evaluation mode, those that keep no statistics with mean 0 and variance 1."""
    kept = [(norm, norm.training, norm.running_mean, norm.running_var) for norm in norms]
    try:
        for norm in norms:
            norm.training = False
            if norm.running_mean is None:
                like = next(norm.parameters(), torch.zeros(()))
                norm.running_mean, norm.running_var = (
                    like.new_zeros(norm.num_features),
                    like.new_ones(norm.num_features),
                )
        yield
    finally:
        for norm, training, mean, variance in kept:
            norm.training, norm.running_mean, norm.running_var = training, mean, variance
