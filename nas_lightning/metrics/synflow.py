"""Synaptic flow: how much of an all-ones input the weights let through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes.layers import BATCH_NORMS
from nas_lightning.metrics.passes.outputs import logits_of
from nas_lightning.metrics.passes.shared import Passes

NORMS = (
    *BATCH_NORMS,
    *(nn.LayerNorm, nn.GroupNorm, nn.RMSNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
)


@dataclass(frozen=True)
class Synflow(Metric):
    """Σ |θ| ⊙ ∂R/∂|θ|, R = Σ_c f_c(1; |θ|) (Tanaka et al. 2020, arXiv:2006.05467, equation 2).

    Without data, without labels; in float64, as the values grow with the depth. Norms are passed by, as
    batch norms are in Abdelfattah et al. (2021, arXiv:2101.08134): they would undo what the score measures.

    >>> network = torch.nn.Linear(3, 2, bias=False)
    >>> _ = torch.nn.init.constant_(network.weight, -0.5)
    >>> Synflow()(network, (torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))).item()  # six weights of size ½
    3.0
    """

    def compute(self, passes: Passes) -> Tensor:
        return synaptic_flow(passes.network, passes.x[:1])


def synaptic_flow(network: nn.Module, like: Tensor) -> Tensor:
    """The score for inputs of the shape of `like`, in evaluation mode."""
    norms = [module for module in network.modules() if isinstance(module, NORMS)]
    skipped = {id(parameter) for norm in norms for parameter in norm.parameters()}
    weights = {n: p.detach().double().abs().requires_grad_() for n, p in network.named_parameters()}
    buffers = {
        n: b.detach().double() if b.is_floating_point() else b.clone() for n, b in network.named_buffers()
    }
    ones = torch.ones_like(like, dtype=torch.float64)
    with _passed_by(norms):
        flow = logits_of(functional_call(network, {**weights, **buffers}, (ones,))).sum()
    trained = [weights[n] for n, p in network.named_parameters() if p.requires_grad and id(p) not in skipped]
    gradients = torch.autograd.grad(flow, trained, materialize_grads=True)
    return torch.stack([(w.detach() * g).sum() for w, g in zip(trained, gradients, strict=True)]).sum()


@contextmanager
def _passed_by(norms: Sequence[nn.Module]) -> Iterator[None]:
    """Norms return what they are given, also maps of one pixel, of which batch norms know no variance."""
    own = [(vars(norm), vars(norm).get("forward")) for norm in norms]
    try:
        for norm in norms:
            norm.forward = lambda x: x
        yield
    finally:
        for attributes, forward in own:
            del attributes["forward"]
            if forward is not None:
                attributes["forward"] = forward
