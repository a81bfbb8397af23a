"""Metrics of gradients: grad_norm, SNIP, GraSP, Fisher, Synflow, ZiCo."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from nas_lightning.errors import InputError
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.curvature import check_twice
from nas_lightning.metrics.engine import Passes, row_norms
from nas_lightning.metrics.kernel import rowwise_kernel
from nas_lightning.metrics.layers import BATCH_NORMS, CONVOLUTIONS
from nas_lightning.metrics.recording import LAYERS, Needs, logits_of
from nas_lightning.utils.devices import double
from nas_lightning.validation import at_least, checked

# Metrics from the gradient of the loss at initialization (thesis of Shu, equations 7.2 and 7.3).
#
# All follow from the gradient g = ∇_θ of the batch's mean loss.


@dataclass(frozen=True)
class GradNorm(Metric):
    """‖ (1/m) Σ ∇_θ ℓ_i ‖₂ (equation 7.2), by default as the sum of the norms of the parameter tensors.

    The sum is what Abdelfattah et al. (2021, arXiv:2101.08134, section 3.2.1) and the public code of the
    thesis compute, and ranks cells of NAS-Bench-201 better; `per_layer=False` is the equation.

    Args:
        per_layer: the sum of the norms of the parameter tensors; False: the norm of all together.

    >>> import torch
    >>> from torch import nn
    >>> network, batch = nn.Linear(2, 2, bias=False), (torch.eye(2), torch.tensor([0, 1]))
    >>> _ = nn.init.eye_(network.weight)
    >>> round(GradNorm()(network, batch).item(), 4)  # four entries of ±1/(2 + 2e)
    0.2689
    """

    per_layer: bool = True

    def compute(self, passes: Passes) -> Tensor:
        squares = [(double(g) ** 2).sum() for g in passes.gradients]
        return _total([s.sqrt() for s in squares]) if self.per_layer else _total(squares).sqrt()


@dataclass(frozen=True)
class Snip(Metric):
    """|(1/m) Σ θᵀ ∇_θ ℓ_i| (equation 7.3), by default with the absolute value of each weight's product.

    Σ |θ ⊙ g| is what SNIP (Lee et al. 2019, arXiv:1810.02340, equation 6), Abdelfattah et al. and the public
    code of the thesis compute. `per_weight=False` is the equation; since θᵀg = 0 for a convolution followed
    by a batch norm, it depends on the other parameters only and does not rank such networks.

    Args:
        per_weight: the absolute value of each weight's product; False: of their sum.

    >>> import torch
    >>> from torch import nn
    >>> network, batch = nn.Linear(2, 2, bias=False), (torch.eye(2), torch.tensor([0, 1]))
    >>> _ = nn.init.eye_(network.weight)
    >>> round(Snip()(network, batch).item(), 4)  # two entries 1 with gradients −1/(2 + 2e)
    0.2689
    """

    per_weight: bool = True

    def compute(self, passes: Passes) -> Tensor:
        pairs = zip(passes.parameters, passes.gradients, strict=True)
        products = [double(p.detach()) * double(g) for p, g in pairs]
        if self.per_weight:
            return _total([product.abs().sum() for product in products])
        return _total([product.sum() for product in products]).abs()


@dataclass(frozen=True)
class Grasp(Metric):
    """|θᵀ H g|, H the Hessian of the batch's mean loss (equation 7.3), θ the weights.

    As in the public code, H and g are those of the whole batch instead of a sample, and of the weights of
    convolutions and linear layers, without biases and batch norms, whose terms would dominate.

    Args:
        signed: GraSP's sign, Σ −θ ⊙ (H g) (Wang et al. 2020, arXiv:2002.07376, equation 8); False: the
            absolute value.

    >>> import torch
    >>> from torch import nn
    >>> network, batch = nn.Linear(2, 2, bias=False), (torch.eye(2), torch.tensor([0, 1]))
    >>> _ = nn.init.eye_(network.weight)
    >>> bool(Grasp(signed=True)(network, batch).abs() == Grasp()(network, batch))
    True
    """

    signed: bool = False
    needs: ClassVar[Needs] = Needs.HESSIAN

    def compute(self, passes: Passes) -> Tensor:
        product = passes.curvature
        return -product if self.signed else product.abs()


def _total(terms: list[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


# Metrics of per-sample gradients (Y. Shu's thesis, 2022).


@dataclass(frozen=True)
class SampleGradNorm(Metric):
    """√(m⁻¹ Σ_x ‖∇_θ L_x‖²), whose square NASI uses in place of the kernel's trace (6.6).

    >>> from torch import nn
    >>> network, batch = nn.Linear(2, 2, bias=False), (torch.eye(2), torch.tensor([0, 1]))
    >>> _ = nn.init.eye_(network.weight)
    >>> round(SampleGradNorm()(network, batch).item() ** 2, 6)  # 2 (1 + e)⁻², of (−1, 1)/(1 + e) at one input
    0.144659
    """

    def compute(self, passes: Passes) -> float:
        m = len(passes.x)
        # L is the mean of the L_x, so ∂L_x/∂z = m ∂L/∂z
        (slope,) = torch.autograd.grad(passes.loss, passes.logits, retain_graph=True)
        norms = row_norms(passes, [m * slope])
        if norms is None:
            norms = rowwise_kernel(passes.parameters, passes.logits, [m * slope]).diagonal()
        return math.sqrt(float(norms.mean()))


@dataclass(frozen=True)
class SampleGrasp(Metric):
    """|m⁻¹ Σ_x θᵀ H_x g_x| over all parameters θ, with H_x and g_x of a sample's loss (equation 7.3).

    `Grasp` has those of the batch, as the public code. Takes two backward passes per sample.

    >>> from nas_lightning.metrics import Grasp
    >>> from torch import nn
    >>> network = nn.Linear(2, 2, bias=False)
    >>> _ = nn.init.eye_(network.weight)
    >>> both = [(torch.eye(2), torch.tensor([0, 1])), (torch.eye(2), torch.tensor([0, 0]))]
    >>> [round(metric(network, batch).item(), 4) for metric in (Grasp(), SampleGrasp()) for batch in both]
    [0.0529, 0.0454, 0.1058, 0.0909]
    """

    needs: ClassVar[Needs] = Needs.HESSIAN

    def compute(self, passes: Passes) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for place in range(len(passes.x)):
            some = slice(place, place + 1)
            loss = passes.loss_of(passes.logits[some], passes.labels[some])
            g = torch.autograd.grad(loss, passes.parameters, create_graph=True, materialize_grads=True)
            square = torch.stack([(one**2).sum() for one in g]).sum()
            check_twice(square)
            # H g = ½ ∇‖g‖²
            products = torch.autograd.grad(
                square / 2, passes.parameters, retain_graph=True, materialize_grads=True
            )
            pairs = zip(passes.parameters, products, strict=True)
            total += sum((double(p.detach()) * double(hg)).sum().cpu() for p, hg in pairs)
        return (total / len(passes.x)).abs()


# Fisher saliency of the layers' output channels.


@dataclass(frozen=True)
class Fisher(Metric):
    """Σ_c Δ_c, Δ_c = (1/2m) Σ_i (Σ_hw a_ichw ∂L/∂a_ichw)² (Turner et al. 2020, arXiv:1906.04113, equation 4).

    a are the outputs of convolutions and linear layers, c their channels, L the batch's mean loss, as in
    Abdelfattah et al. (2021, arXiv:2101.08134).

    >>> network, batch = torch.nn.Linear(2, 2, bias=False), (torch.eye(2), torch.tensor([0, 1]))
    >>> _ = torch.nn.init.eye_(network.weight)
    >>> round(Fisher()(network, batch).item(), 4)  # two channels: (1/4) (1/(2 + 2e))²
    0.009
    """

    needs: ClassVar[Needs] = Needs.SALIENCY

    def compute(self, passes: Passes) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for call, gradient in passes.saliency:
            if type(call.layer) not in (*CONVOLUTIONS, nn.Linear):
                continue
            # channels first: (m, c, …); a linear layer's are last
            axes = tuple(range(2, gradient.dim())) if type(call.layer) in CONVOLUTIONS else ()
            products = call.saved_output() * gradient
            products = products.sum(dim=axes) if axes else products
            total += (double(products) ** 2).mean(dim=0).sum().cpu() / 2
        return total


# Synaptic flow: the response of the absolute weights to an input of ones.

NORMS = (
    *BATCH_NORMS,
    *(nn.LayerNorm, nn.GroupNorm, nn.RMSNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
)


@dataclass(frozen=True)
class Synflow(Metric):
    """Σ |θ| ⊙ ∂R/∂|θ|, R = Σ_c f_c(1; |θ|) (Tanaka et al. 2020, arXiv:2006.05467, equation 2).

    Needs no data and no labels; computed in float64, as the values grow with the depth. Norms are skipped, as
    batch norms are in Abdelfattah et al. (2021, arXiv:2101.08134), since they would undo the scale.

    >>> network = torch.nn.Linear(3, 2, bias=False)
    >>> _ = torch.nn.init.constant_(network.weight, -0.5)
    >>> Synflow()(network, (torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))).item()  # six weights of size ½
    3.0
    """

    def compute(self, passes: Passes) -> Tensor:
        return synaptic_flow(passes.network, passes.x[:1])


def synaptic_flow(network: nn.Module, like: Tensor) -> Tensor:
    """Return the score for inputs of the shape of `like`, in evaluation mode."""
    norms = [module for module in network.modules() if isinstance(module, NORMS)]
    skipped = {id(parameter) for norm in norms for parameter in norm.parameters()}
    weights = {n: double(p.detach()).abs().requires_grad_() for n, p in network.named_parameters()}
    buffers = {
        n: double(b.detach()) if b.is_floating_point() else b.clone() for n, b in network.named_buffers()
    }
    ones = torch.ones_like(double(like))
    with _passed_by(norms):
        flow = logits_of(functional_call(network, {**weights, **buffers}, (ones,))).sum()
    trained = [weights[n] for n, p in network.named_parameters() if p.requires_grad and id(p) not in skipped]
    gradients = torch.autograd.grad(flow, trained, materialize_grads=True)
    return torch.stack([(w.detach() * g).sum() for w, g in zip(trained, gradients, strict=True)]).sum()


@contextmanager
def _passed_by(norms: Sequence[nn.Module]) -> Iterator[None]:
    """Let norms return their input."""
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


# ZiCo (arXiv:2301.11300): mean and deviation of gradients over parts of the batch.


@checked
@dataclass(frozen=True)
class Zico(Metric):
    """Σ_l log Σ_{θ in l} E|∇_θ L| / √Var|∇_θ L| (Li et al. 2023).

    Mean and variance are over parts of the batch, and l runs over convolutions and linear layers. Weights
    with zero variance are skipped.

    Args:
        parts: number of parts; 2 in the public code.

    >>> import torch
    >>> from torch import nn
    >>> layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()
    >>> network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    >>> batch = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])
    >>> bool(torch.isfinite(Zico()(network, batch)))
    True
    """

    parts: Annotated[int, at_least(2)] = 2

    def compute(self, passes: Passes) -> Tensor:
        network, m = passes.network, len(passes.x)
        weights = [module.weight for module in network.modules() if isinstance(module, LAYERS)]
        weights = [weight for weight in weights if weight.requires_grad]
        if m < 2 * self.parts:
            raise InputError(
                f"The batch must have at least {2 * self.parts} samples for {self.parts} parts", got=m
            )
        if not weights:
            raise InputError("The network must have weights to train")
        found = []
        for x, y in zip(passes.x.detach().chunk(self.parts), passes.labels.chunk(self.parts), strict=True):
            loss = passes.loss_of(logits_of(network(x)), y)
            found.append(torch.autograd.grad(loss, weights, materialize_grads=True))
        return signal_to_noise([torch.stack(layer) for layer in zip(*found, strict=True)])


def signal_to_noise(layers: list[Tensor]) -> Tensor:
    """Return Σ_l log Σ mean/deviation of the absolute gradients, each (parts, …).

    >>> signal_to_noise([torch.tensor([[1.0, 2.0, 0.0], [-3.0, 4.0, 0.0]])]).exp().round()  # 2/1 + 3/1
    tensor(5., dtype=torch.float64)
    """
    total = torch.zeros((), dtype=torch.float64)
    for gradients in layers:
        sizes = double(gradients.abs())
        deviation = sizes.std(dim=0, correction=0)
        varies = deviation > 0
        if bool(varies.any()):
            total += (sizes.mean(dim=0)[varies] / deviation[varies]).sum().log().cpu()
    return total
