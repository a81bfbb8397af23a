"""NASI: search by the trace of the neural tangent kernel (Shu et al. 2022, arXiv:2109.00817)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from nas_lightning.data import SearchData
from nas_lightning.data.batches import Batch
from nas_lightning.data.search import check_search_data, read_sides
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.metrics.recording import LAYERS, initialize
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.group import without_none
from nas_lightning.spaces.supernet import Active, Supernet
from nas_lightning.strategies.base import Strategy
from nas_lightning.strategies.one_shot.relaxations import straight_through_gumbel, uniform_noise
from nas_lightning.strategies.supernet import LimitPressure
from nas_lightning.tasks import task_of
from nas_lightning.training.gradients import accumulate, average, gradients
from nas_lightning.training.run_length import epochs_of
from nas_lightning.validation import Between0And1, NonNegativeFloat, PositiveFloat, PositiveInt, Seed, checked

# Random labels and inputs (sections 4.1 and 4.2).

Labels = Literal["true", "random"]
Inputs = Literal["true", "gaussian"]


def replace_batch(
    batch: Batch,
    labels: Labels,
    inputs: Inputs,
    classes: int,
    random: torch.Generator,
    rank: int = 0,
    processes: int = 1,
) -> Batch:
    """Return true or random inputs and labels; every process draws for all and keeps its part.

    >>> x, y = torch.zeros(2, 1), torch.tensor([0, 1])
    >>> replace_batch((x, y), "true", "true", 2, torch.Generator())[1] is y
    True
    """
    x, y = batch
    if inputs == "gaussian":
        x = torch.randn(processes, *x.shape, generator=random)[rank].to(x)
    if labels == "random":
        y = torch.randint(classes, (processes, *y.shape), generator=random)[rank].to(y)
    return x, y


# The trace t(A) = ‖b⁻¹ Σ_x ∇_θ L_x‖² (equation 12) and its gradient.


def trace_and_direction(loss: Tensor, parameters: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return t = ‖ḡ‖² and 2⟨ḡ, g⟩; g is the gradient of this process' loss, ḡ its mean over processes.

    The mean over processes of ∇_α 2⟨ḡ, g⟩, with ḡ held fixed, is ∇_α ‖ḡ‖².
    """
    found = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
    g = [gradient for gradient in found if gradient is not None]
    mean = [gradient.detach().clone() for gradient in g]
    average(mean)
    products = [(m * gradient).sum() for m, gradient in zip(mean, g, strict=True)]
    return squared_norm(mean), 2 * torch.stack(products).sum()


def squared_norm(tensors: Sequence[Tensor]) -> Tensor:
    """Return Σ ‖·‖²."""
    return torch.stack([tensor.square().sum() for tensor in tensors]).sum()


def parameters_without_biases(network: nn.Module) -> list[nn.Parameter]:
    """Return θ: the parameters without the biases of linear layers and convolutions."""
    return [
        parameter
        for module in network.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if not (name == "bias" and isinstance(module, LAYERS))
    ]


def trace(loss: Tensor, parameters: Sequence[nn.Parameter]) -> Tensor:
    """Return t = ‖ḡ‖²."""
    return squared_norm([gradient for gradient in gradients(loss, parameters) if gradient is not None])


# NASI: search at initialization (Shu et al. 2022, arXiv:2109.00817). No weight is ever trained.
#
#     max_α E_{A~p_α}[R(A)],   R(A) = t(A) − μ max(0, t(A) − ν),   t(A) = ‖b⁻¹ Σ_x ∇_θ L_x‖²     (12–14)
#
# t(A), at the initial weights θ, approximates the trace norm of the neural tangent kernel. One step from α₀ =
# 0 along the mean gradient, by straight-through Gumbel samples (17, 18), gives the distribution whose mode is
# the architecture. The gradient of t is a gradient through a gradient: a second backward pass through the
# supernet.
# t needs supernets as deep as the networks: its rank correlation with the accuracies of random NAS-Bench-201
#     cells on CIFAR-10 was 0.49 with five cells per stage and 0.03 with one (8 channels, 200 and 300 cells).

Computed = Literal["all", "sampled"]


def derive_mode(space: SearchSpace, probabilities: Mapping[str, Tensor]) -> Genotype:
    """Return the most probable genotype without `none`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> p = {"cell": torch.tensor([0.5, 0.1, 0.1, 0.2, 0.1]).repeat(6, 1)}  # none has the largest
    >>> space.notation(derive_mode(space, p))
    '|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|'
    """
    return space.discretize({name: without_none(p, space.groups[name]) for name, p in probabilities.items()})


class Nasi(Strategy):
    """NASI: every training step is one sample g_t of algorithm 1; T is the number of steps of the run.

    `arch` holds α* = ξ/T Σ_t G_t / max_{s≤t} ‖G_s‖₂ so far, G_t = ∇_α R(A(α, g_t)) at α₀ = 0.

    Args:
        space: the search space.
        supernet: its supernet; its weights are drawn from N(0, 1/fan_in) (section 3.1), without biases.
        data: the images of a fixed mini-batch.
        mu: weight of the penalty: 2 in DARTS' space, 1 in NAS-Bench-1Shot1.
        nu: ν₀; None: the mean of t over `nu_samples` random architectures (equation 40).
        nu_quantile: this quantile of t over the same architectures as ν₀ in place of their mean, which a few
            large traces decide.
        adaptive: ν_t is the mean of ν₀ and all t so far (equation 41, NASI-ADA); False: ν₀ (NASI-FIX).
        nu_samples: N of equation 40, and of the quantile.
        tau: temperature of the Gumbel-softmax.
        xi: ξ, the length of the step.
        computed: `all`: all operations of an edge enter the gradient by α; `sampled`: only the sampled one is
            computed, at the cost of one path. In the default supernet of `darts` a step of `all` needs 0.23
            GB per image, four times as much.
        fixed_batch: one mini-batch for all steps (equation 12) instead of a new one in each (algorithm 1).
        labels: `true`, or `random` for a search without labels (section 4.1).
        inputs: `true`, or `gaussian` for a search without images (section 4.2).
        seed: seed of initialization, samples, and random labels and inputs.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=10, channels=2, cells=1)
    >>> search = Nasi(space, supernet, SearchData(Digits()), mu=1.0, nu=10.0)
    >>> search.scores()["cell"][0]  # before the first sample all operations are equally likely
    tensor([0.2000, 0.2000, 0.2000, 0.2000, 0.2000])
    """

    largest: Tensor
    nu0: Tensor
    trace_sum: Tensor

    needs_steps = True

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        data: SearchData,
        *,
        mu: NonNegativeFloat = 2.0,
        nu: PositiveFloat | None = None,
        nu_quantile: Between0And1 | None = None,
        adaptive: bool = False,
        nu_samples: PositiveInt = 50,
        tau: PositiveFloat = 1.0,
        xi: PositiveFloat = 1.0,
        computed: Computed = "all",
        fixed_batch: bool = False,
        labels: Labels = "true",
        inputs: Inputs = "true",
        seed: Seed = 0,
    ) -> None:
        super().__init__(space, seed)
        if nu is not None and nu_quantile is not None:
            got = f"nu={nu}, nu_quantile={nu_quantile}"
            raise InputError("Pass either `nu` or `nu_quantile`", got=got, where="strategy.nu_quantile")
        self.automatic_optimization = False
        check_search_data(data, type(self).__name__)
        self.supernet, self.data = supernet, data
        initialize(supernet, "lecun", self.generator)
        self.theta = parameters_without_biases(supernet)
        shapes = {name: group.shape for name, group in space.groups.items()}
        self.arch = nn.ParameterDict({name: torch.zeros(shape) for name, shape in shapes.items()})
        self.arch_list = list(self.arch.parameters())
        self.pressure = LimitPressure(space)
        self.mu, self.adaptive, self.tau, self.xi = mu, adaptive, tau, xi
        self.nu_samples, self.nu_quantile = nu_samples, nu_quantile
        self.computed, self.fixed_batch, self.labels, self.inputs = computed, fixed_batch, labels, inputs
        self.seed, self.length = seed, math.inf  # T, set by a fit
        self._batch: Batch | None = None
        self.register_buffer("largest", torch.zeros(()))  # max_{s≤t} ‖G_s‖₂
        self.register_buffer("nu0", torch.tensor(0.0 if nu is None else nu))
        self.register_buffer("trace_sum", torch.zeros(()))  # Σ_{s<t} t(A_s)

    def training_step(self, batch: Mapping[str, Batch], batch_idx: int) -> None:
        sides = read_sides(batch, self.theta[0].dtype, task_of(self.supernet).targets, needed=("train",))
        x, y = self.step_batch(sides["train"])
        if not self.nu0:
            self.nu0.fill_(self.typical_trace(x, y))
        G, values = self.sample_gradient(x, y)
        norm = squared_norm(G).sqrt()
        if not bool(torch.isfinite(norm)):
            raise InputError(
                "The gradient of the trace must be finite", got=float(norm), where=type(self).__name__
            )
        torch.maximum(self.largest, norm, out=self.largest)
        self.trace_sum += values["trace"]
        for parameter, gradient in zip(self.arch_list, G, strict=True):
            parameter.grad = gradient / self.largest.clamp_min(torch.finfo(norm.dtype).tiny)
        self.keep_within_limits()
        self.log_dict({**values, "gradient_norm": norm}, on_step=True, on_epoch=False, sync_dist=True)
        self.set_rate()
        optimizer = self.optimizers()
        optimizer.step()  # type: ignore[union-attr]
        optimizer.zero_grad()  # type: ignore[union-attr]

    def keep_within_limits(self) -> None:
        """Subtract the gradient of the limits' term from the gradient, whose norm is at most 1."""
        if self.space.limited:
            probabilities = {name: torch.softmax(alpha, dim=-1) for name, alpha in self.arch.items()}
            slopes = torch.autograd.grad(self.pressure.term(probabilities), self.arch_list)
            accumulate(self.arch_list, [-slope for slope in slopes], 1.0)
            self.pressure.ascend(self.scores())
            self.log_dict(self.pressure.metrics(self.scores()), on_step=True, on_epoch=False)

    def sample_gradient(self, x: Tensor, y: Tensor) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Return G_t for a sampled architecture, and metrics to log."""
        slopes, t, loss = self.trace_slopes(x, y)
        nu = self.nu(self.trainer.global_step + 1)
        # ∇R = (1 − μ [t > ν]) ∇t
        slope = torch.where(t > nu, 1 - self.mu, 1.0)
        G = [slope * gradient for gradient in slopes]
        average(G)
        reward = t - self.mu * (t - nu).clamp_min(0)
        return G, {"train_loss": loss, "trace": t, "nu": nu, "reward": reward}

    def trace_slopes(self, x: Tensor, y: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        """Return ∇_α t(A(α, g)) of this process at α₀ = 0 for a sampled g, t(A), and the loss."""
        alpha = {
            name: torch.zeros_like(parameter, requires_grad=True) for name, parameter in self.arch.items()
        }
        weights, active = self.sample(alpha)
        loss = task_of(self.supernet).loss(self.supernet(x, weights, active), y)
        t, directional = trace_and_direction(loss, self.theta)
        # a sample without a path to the output leaves α unused
        slopes = torch.autograd.grad(directional, list(alpha.values()), materialize_grads=True)
        return list(slopes), t, loss.detach()

    def sample(self, alpha: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Active | None]:
        """Sample one operation per edge; return straight-through Gumbel weights and active operations."""
        weights = {
            name: straight_through_gumbel(
                matrix, uniform_noise(matrix, self.generator), self.tau, self.space.groups[name].draw
            )
            for name, matrix in alpha.items()
        }
        drawn = {name: matrix.detach() > 0.5 for name, matrix in weights.items()}
        return weights, None if self.computed == "all" else drawn

    def nu(self, t: int) -> Tensor:
        """Return ν₀, or ν_t = t⁻¹ (ν₀ + Σ_{s<t} t(A_s)) (equations 40 and 41)."""
        return (self.nu0 + self.trace_sum) / t if self.adaptive else self.nu0.clone()

    def typical_trace(self, x: Tensor, y: Tensor) -> float:
        """Return ν₀ = N⁻¹ Σ_i t(A_i) over random architectures (equation 40), or a quantile of their t."""
        start = {name: torch.zeros_like(parameter) for name, parameter in self.arch.items()}
        traces = []
        for _ in range(self.nu_samples):
            weights, _ = self.sample(start)
            loss = task_of(self.supernet).loss(self.supernet(x, weights), y)
            traces.append(float(trace(loss, self.theta)))
        if self.nu_quantile is None:
            return sum(traces) / self.nu_samples
        return float(torch.tensor(traces).quantile(self.nu_quantile))

    def step_batch(self, batch: Batch) -> Batch:
        """Return the mini-batch of a step with the chosen kind of inputs and labels."""
        if not self.fixed_batch:
            return self.replace_batch(batch, self.generator)
        if self._batch is None:
            x, y = self.data.train_batches(self.trainer.world_size, self.seed)[self.global_rank]
            fixed = x.to(self.device, batch[0].dtype), y.to(self.device)
            self._batch = self.replace_batch(fixed, torch.Generator().manual_seed(self.seed))
        return self._batch

    def replace_batch(self, batch: Batch, generator: torch.Generator) -> Batch:
        """Return true or random inputs and labels."""
        classes, processes = self.supernet.head.out_features, self.trainer.world_size
        return replace_batch(batch, self.labels, self.inputs, classes, generator, self.global_rank, processes)

    def scores(self) -> Mapping[str, Tensor]:
        """Return p_{α*} of each operation."""
        return {name: torch.softmax(parameter.detach(), dim=-1) for name, parameter in self.arch.items()}

    def derive(self) -> list[Genotype]:
        """Return the mode of p_{α*}; `none` is sampled where a space has it, and never derived."""
        return [derive_mode(self.space, self.scores())]

    def configure_optimizers(self) -> Optimizer:
        return SGD(self.arch_list, lr=self.xi, maximize=True)

    def on_train_start(self) -> None:
        """Read T here: earlier, Lightning would build the data loader before its state is restored."""
        self.length = self.trainer.estimated_stepping_batches
        if not math.isfinite(self.length):
            epochs_of(self.trainer)  # raises where nothing ends the run

    @torch.no_grad()
    def set_rate(self) -> None:
        """Set the rate ξ/T; if only time limits the run, T is the number of samples so far."""
        taken = self.trainer.global_step + 1
        known = math.isfinite(self.length)
        for parameter in () if known else self.arch_list:
            parameter.mul_((taken - 1) / taken)
        self.trainer.optimizers[0].param_groups[0]["lr"] = self.xi / (self.length if known else taken)
