"""Whether a network treats its samples apart: what the layer by layer kernel takes for granted."""

from __future__ import annotations

from contextlib import ExitStack

import torch
from torch import Tensor, nn

from nas_lightning.metrics.passes.calls import Calls, IncompleteError
from nas_lightning.metrics.passes.layers import BATCH_NORMS
from nas_lightning.metrics.passes.outputs import logits_of
from nas_lightning.spaces.network import Network

_PROBE = 2
_TOLERANCE = 1e-2  # of the largest logit: rounding differs between sizes of batches, mixing is no rounding


def check_independence(network: nn.Module, x: Tensor, logits: Tensor, calls: Calls) -> None:
    """Raise unless two samples alone go through the layers, and come out, as they do among the others.

    Batch norms mix samples, which is known; so outputs are compared only where none uses the batch's
    statistics. The networks of our spaces are known to have no other mixing.
    """
    if isinstance(network, Network) or len(x) <= _PROBE:
        return
    norms = [module for module in network.modules() if isinstance(module, BATCH_NORMS) and module.training]
    few = x[:_PROBE].detach()
    alone = Calls(network, few)
    with ExitStack() as stack, torch.enable_grad():
        for norm in norms:
            norm.training = False
            stack.callback(setattr, norm, "training", True)
        apart = alone.record(lambda: logits_of(network(few)))
    if [call.layer for call in alone.parametric_calls] != [call.layer for call in calls.parametric_calls]:
        raise IncompleteError("other layers are called for other batches")
    for call in alone.parametric_calls:
        if len(call.input) != _PROBE:
            where = f"{type(call.layer).__name__} {call.name!r}"
            raise IncompleteError(f"samples are not the first axis in {where}")
    tolerance = _TOLERANCE * logits.detach().abs().max()
    if not norms and bool((apart.detach() - logits[:_PROBE].detach()).abs().max() > tolerance):
        raise IncompleteError("samples are mixed")
