"""Measuring without a trace: whatever a metric does to a network in here is undone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from nas_lightning.metrics.passes.layers import BATCH_NORMS


@contextmanager
def preserve_state(network: nn.Module, *, batch_statistics: bool = True) -> Iterator[None]:
    """Evaluation mode, batch norms with the batch's statistics; modes, buffers and random state come back.

    Dropout and drop path are off, so that a score depends on weights and batch alone. Gradients are enabled
    within, and none is written to `.grad` by the metrics, which ask `torch.autograd.grad` for them. What
    layers keep while they are evaluated, as some attentions keep biases, is computed anew: `train` drops it.
    """
    modes = [(module, module.training) for module in network.modules()]
    buffers = [
        (module, name, buffer, buffer.detach().clone())
        for module in network.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    devices = {p.device.index for p in network.parameters() if p.is_cuda}
    with torch.random.fork_rng(devices=sorted(devices)), torch.enable_grad():
        try:
            network.train()
            network.eval()
            for module in network.modules():
                if isinstance(module, BATCH_NORMS):
                    module.train(batch_statistics)
            yield
        finally:
            network.train()
            network.train(modes[0][1])
            for module, mode in modes:
                module.training = mode
            with torch.no_grad():
                for module, name, buffer, value in buffers:
                    # what is as it was is not written: a graph may hold it, and would count a change
                    same = buffer.is_meta or torch.equal(buffer, value)
                    setattr(module, name, buffer if same else buffer.copy_(value))
