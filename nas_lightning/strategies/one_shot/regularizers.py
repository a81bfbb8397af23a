"""Regularizers: terms of the architecture's loss and of the weights' loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.objectives.inherited import Batch
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.operations import NONE, SKIP, find_operation, has_parameters
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.one_shot.parts import (
    Arch,
    Epoch,
    Groups,
    Parts,
    Regularizer,
    RelaxedWeights,
    TrainedSupernet,
    WeightRegularizer,
)
from nas_lightning.strategies.one_shot.samplers import Dirichlet, concentration
from nas_lightning.tasks import task_of
from nas_lightning.training.gradients import Gradients, constant, gradients
from nas_lightning.validation import NonNegativeFloat, PositiveFloat, Share, checked

# DrNAS' distance from the flat distribution (Chen et al. 2021, arXiv:2006.10355, section 2.3).
#
#     λ Σ_edges KL(Dir(c) ‖ Dir(1)),
#     KL = ln Γ(Σ c) − Σ ln Γ(c) − ln Γ(K) + Σ (c − 1)(ψ(c) − ψ(Σ c))
#
# keeps the concentrations c of K operations near 1, the uniform distribution over the simplex.


@checked
@dataclass(frozen=True)
class Anchor(Regularizer):
    """λ KL from the flat Dirichlet distribution, summed over the edges of all groups.

    Args:
        weight: λ.

    >>> from nas_lightning.spaces.group import Group
    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> flat = {"cell": torch.zeros(1, 2)}  # elu(0) + 1 = 1 is the flat distribution's concentration
    >>> bool(Anchor().term(flat, {}, Epoch(0, of=2), {"cell": group}).abs() < 1e-6)
    True
    """

    weight: NonNegativeFloat = 1e-3

    def check(self, parts: Parts, space: SearchSpace) -> None:
        if not isinstance(parts.sampler, Dirichlet):
            expected = (
                "This regularizer needs the sampler dirichlet, because the anchor is a Dirichlet distribution"
            )
            raise InputError(expected, got=type(parts.sampler).__name__, where="sampler")

    def term(self, arch: Arch, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups) -> Tensor:
        distances = [kl_from_flat(concentration(arch[name])).sum() for name in groups]
        return self.weight * torch.stack(distances).sum()


def kl_from_flat(c: Tensor) -> Tensor:
    """Return KL(Dir(c) ‖ Dir(1)) of each row: (edges, ops) → (edges,)."""
    total = c.sum(dim=-1)
    spread = ((c - 1) * (torch.digamma(c) - torch.digamma(total)[..., None])).sum(dim=-1)
    return torch.lgamma(total) - torch.lgamma(c).sum(dim=-1) - math.lgamma(c.shape[-1]) + spread


# β-DARTS' regularization (Ye et al. 2022, arXiv:2203.01665).
#
#     L_Beta = (1/E) Σ_edges ln Σ_o exp(α_o)                                                  (equation 14)
#
# a smooth maximum of each row, whose gradient is the row's softmax: it decays the weights β = softmax(α) that
# are large instead of the parameters. Its weight λ grows linearly from 0 to 50 (section 4.1).


@checked
@dataclass(frozen=True)
class BetaDecay(Regularizer):
    """λ L_Beta over the rows of all groups.

    Args:
        weight_start: λ in the first epoch.
        weight_end: λ in the last epoch.

    >>> from nas_lightning.spaces.group import Group
    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> arch = {"cell": torch.zeros(1, 2)}
    >>> BetaDecay().term(arch, {}, Epoch(1, of=2), {"cell": group}) / 50  # ln 2
    tensor(0.6931)
    """

    weight_start: NonNegativeFloat = 0.0
    weight_end: NonNegativeFloat = 50.0

    def check(self, parts: Parts, space: SearchSpace) -> None:
        if not parts.sampler.softmax:
            name = type(parts.sampler).__name__
            reason = "because beta decay acts on the logits of a softmax"
            raise InputError(f"The sampler must have a softmax, {reason}", got=name, where="sampler")

    def term(self, arch: Arch, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups) -> Tensor:
        return epoch.between(self.weight_start, self.weight_end) * beta_loss([arch[name] for name in groups])

    def metrics(
        self, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups
    ) -> Mapping[str, float | Tensor]:
        return {"lambda_beta": epoch.between(self.weight_start, self.weight_end)}


def beta_loss(alphas: list[Tensor]) -> Tensor:
    """Return L_Beta of all rows: (edges, ops) each → scalar."""
    return torch.cat([alpha.logsumexp(dim=-1) for alpha in alphas]).mean()


# Λ-DARTS' alignment of layers (Movahedi et al. 2023, arXiv:2210.07998).
#
# Cells share architecture weights w, but the cells near the output dominate their gradient. With
# g_l = ∂L_train/∂w^(l), the gradient for the weights of cell l of n, and u_l = g_l/‖g_l‖,
#
#     Λ = 2/(n(n−1)) Σ_{l<m} u_lᵀ u_m
#
# is the alignment of the cells, and the supernet's weights θ descend L_train − λ Λ. Its gradient is a second
# derivative along d_l = ∂Λ/∂g_l = 2/(n(n−1)) (I − u_l u_lᵀ) Σ_m u_m / ‖g_l‖, computed as a central
# difference:
#
#   ∇_θ Λ = Σ_l ∇²_{θ w^(l)} L_train d_l ≈ (∇_θ L_train(w + ε d) − ∇_θ L_train(w − ε d)) / (2ε), ε = ε₀/‖d‖.
#
# λ grows linearly from 0. Each group of decisions that several cells share has its own Λ; the public code
# excludes the two reduction cells of DARTS.

CellWeights = list[dict[str, Tensor]]
"""Weights of each cell, or changes of them."""


@checked
@dataclass(frozen=True)
class LayerAlignment(WeightRegularizer):
    """−λ Λ, at three more passes per step.

    Args:
        weight_start: λ in the first epoch.
        weight_end: λ in the last epoch.
        scale: ε₀, the length of the central difference, as in the public code. A longer one crosses kinks of
            rectifiers and mistakes their jumps for curvature.

    >>> LayerAlignment().metrics({}, Epoch(1, of=3), {})
    {'lambda_alignment': 0.0625}
    """

    weight_start: NonNegativeFloat = 0.0
    weight_end: NonNegativeFloat = 0.125
    scale: PositiveFloat = 1e-4

    def check(self, parts: Parts, space: SearchSpace) -> None:
        if not space.repeated:
            reason = "because the layers of this space have separate decisions"
            raise InputError(
                f"The cells of the space must share decisions, {reason}", got=space.name, where="space"
            )

    def check_supernet(self, supernet: Supernet) -> None:
        cells = len(supernet.backbone.widths)
        if cells < 2:
            expected = "There must be at least two cells, whose gradients are aligned"
            raise InputError(expected, got=cells, where="supernet.cells")

    def gradients(
        self, search: TrainedSupernet, batch: Batch, relaxed: RelaxedWeights, epoch: Epoch
    ) -> Gradients | None:
        weight = epoch.between(self.weight_start, self.weight_end)
        if weight == 0:
            return None
        with torch.autocast(batch[0].device.type, enabled=False):  # because it takes small differences
            cells = [
                {name: w.detach().clone().requires_grad_() for name, w in relaxed.weights.items()}
                for _ in search.supernet.backbone.widths
            ]
            toward = directions(self._slopes(search, batch, cells, relaxed))
            length = torch.stack([d.square().sum() for cell in toward for d in cell.values()]).sum().sqrt()
            if length == 0:  # all cells agree
                return None
            epsilon = float(self.scale / length)
            above, below = (
                gradients(
                    loss(search.supernet, batch, move_cells(cells, toward, e), relaxed), search.weight_list
                )
                for e in (epsilon, -epsilon)
            )
        factor = -weight / (2 * epsilon)
        return [
            None if a is None or b is None else factor * (a - b) for a, b in zip(above, below, strict=True)
        ]

    def _slopes(
        self, search: TrainedSupernet, batch: Batch, cells: CellWeights, relaxed: RelaxedWeights
    ) -> CellWeights:
        """Return g_l of each cell, zero if the loss does not depend on it."""
        flat = [w for cell in cells for w in cell.values()]
        with constant(search.weight_list):
            found = gradients(loss(search.supernet, batch, cells, relaxed), flat)
        slopes = iter(torch.zeros_like(w) if g is None else g for w, g in zip(flat, found, strict=True))
        return [{name: next(slopes) for name in cell} for cell in cells]

    def metrics(self, probabilities: object, epoch: Epoch, groups: Groups) -> dict[str, float | Tensor]:
        return {"lambda_alignment": epoch.between(self.weight_start, self.weight_end)}


def loss(supernet: Supernet, batch: Batch, cells: CellWeights, relaxed: RelaxedWeights) -> Tensor:
    """Return L_train with separate architecture weights for each cell."""
    active = relaxed.active or {name: w != 0 for name, w in relaxed.weights.items()}
    return task_of(supernet).loss(supernet.by_cell(batch[0], cells, active), batch[1])


def move_cells(cells: CellWeights, toward: CellWeights, epsilon: float) -> CellWeights:
    """Return w + ε d."""
    return [
        {name: w.detach() + epsilon * d[name] for name, w in cell.items()}
        for cell, d in zip(cells, toward, strict=True)
    ]


def directions(slopes: CellWeights) -> CellWeights:
    """Return d_l of each cell and group, zero if fewer than two cells use the group."""
    by_group = {name: alignment_slopes([cell[name] for cell in slopes]) for name in slopes[0]}
    return [{name: found[index] for name, found in by_group.items()} for index in range(len(slopes))]


def alignment(slopes: Sequence[Tensor]) -> Tensor:
    """Return Λ of the nonzero gradients of a group's cells."""
    unit = torch.stack([(g / g.norm()).flatten() for g in slopes if bool(g.any())])  # (n, edges · ops)
    n = len(unit)
    return (unit.sum(dim=0).square().sum() - n) / (n * (n - 1))


def alignment_slopes(slopes: Sequence[Tensor]) -> list[Tensor]:
    """Return ∂Λ/∂g_l of each cell."""
    norms = [g.norm() for g in slopes]
    used = [bool(norm > 0) for norm in norms]
    n = sum(used)
    if n < 2:
        return [torch.zeros_like(g) for g in slopes]
    units = [
        g / norm if use else torch.zeros_like(g) for g, norm, use in zip(slopes, norms, used, strict=True)
    ]
    total = torch.stack(units).sum(dim=0)
    return [
        2 / (n * (n - 1)) * (total - (u * total).sum() * u) / norm if use else torch.zeros_like(u)
        for u, norm, use in zip(units, norms, used, strict=True)
    ]


# PR-DARTS' path-depth regularization (Zhou et al. 2020, arXiv:2006.16537, section 4.2).
#
# With P the probability that an operation has weight (theorem 3),
#
#     −λ₃ L_path, L_path = Π_l P(l, l+1),   P(l, l+1) = Σ over parameterized operations between l and l+1 of P
#
# makes deep cells likelier (equation 8). P(l, l+1) is a sum, which exceeds 1: L_path is up to 4⁴ in a DARTS
# cell, and λ₃ is meant for it. The path starts at the last input node: in a DARTS cell the output of the
# previous cell (section 5), in a NAS-Bench-201 cell its only input, so that it is the longest path, 0→1→2→3.


@checked
@dataclass(frozen=True)
class PathDepth(Regularizer):
    """−λ₃ L_path, averaged over the cells of the space.

    Args:
        lambda_path: λ₃.

    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_1x1", "nor_conv_3x3"))
    >>> probabilities = {"cell": torch.tensor([[0.9, 0.25, 0.5]])}
    >>> PathDepth(lambda_path=1.0).term({}, probabilities, Epoch(0, of=2), {"cell": group})
    tensor(-0.7500)
    """

    lambda_path: NonNegativeFloat = 0.005

    def check(self, parts: Parts, space: SearchSpace) -> None:
        if not all(group.on_edges and has_deep_path(group) for group in space.groups.values()):
            expected = "This needs a space with learned operations on the edges from each node to the next"
            raise InputError(expected, got=space.name, where="space")

    def term(self, arch: Arch, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups) -> Tensor:
        depths = [self.depth(p, groups[name]) for name, p in probabilities.items()]
        return torch.stack([-self.lambda_path * depth for depth in depths]).mean()

    def depth(self, probability: Tensor, group: Group) -> Tensor:
        """Return L_path of a cell, a scalar."""
        return path_depth(probability, group)

    def metrics(
        self, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups
    ) -> Mapping[str, float | Tensor]:
        return {f"L_path/{name}": self.depth(p, groups[name]).detach() for name, p in probabilities.items()}


@checked
@dataclass(frozen=True)
class ComputedPathDepth(PathDepth):
    """−λ₃ L_path as in the authors' code (salesforce/PR-DARTS), which sees only what the step computes.

        P(l, l+1) = mean over the parameterized operations between l and l+1 that the step computes of P

    Neighbors l, l+1 without any are left out of the product; L_path is 0 if there are no others.

    Args:
        lambda_path: λ₃.

    >>> group = Group(((0, 1), (1, 2)), ("skip_connect", "nor_conv_1x1", "nor_conv_3x3"))
    >>> computed = {"cell": torch.tensor([[0.0, 0.25, 0.5], [0.9, 0.0, 0.0]])}
    >>> ComputedPathDepth(lambda_path=1.0).term({}, computed, Epoch(0, of=2), {"cell": group})
    tensor(-0.3750)
    """

    computed_only: ClassVar[bool] = True

    def depth(self, probability: Tensor, group: Group) -> Tensor:
        rows = path(group)
        learned = probability[rows] * group.where(has_parameters).to(probability)[rows]
        count = (learned > 0).sum(dim=1)
        means = learned.sum(dim=1) / count.clamp_min(1)
        product = torch.where(count > 0, means, 1.0).prod()
        return torch.where(count.any(), product, 0.0)


def path_depth(probability: Tensor, group: Group) -> Tensor:
    """Return L_path of equation 8 for a cell, a scalar."""
    learned = group.where(has_parameters).to(probability)[path(group)]
    return (probability[path(group)] * learned).sum(dim=1).prod()


def path(group: Group) -> list[int]:
    """Return the rows of the edges l → l+1, starting at the last input node."""
    first = min(target for _, target in group.edges) - 1
    return [
        row for row, (source, target) in enumerate(group.edges) if source >= first and target == source + 1
    ]


def has_deep_path(group: Group) -> bool:
    """Return whether L_path can be positive."""
    return bool(group.where(has_parameters)[path(group)].any(dim=1).all())


# PR-DARTS' group-structured sparsity (Zhou et al. 2020, arXiv:2006.16537, sections 4.1 and 4.2).
#
# With P the probability that an operation has weight (theorem 3), ζ one over the number of edges and r the
# number of operations,
#
#     λ₁ L_skip + λ₂ L_nonskip,   L_skip = ζ Σ_edges P(skip),   L_nonskip = ζ/(r−1) Σ_edges Σ_{other ops} P
#
# makes skips costlier than other operations.


@checked
@dataclass(frozen=True)
class Sparsity(Regularizer):
    """λ₁ L_skip + λ₂ L_nonskip, averaged over the cells of the space.

    Args:
        lambda_skip: λ₁.
        lambda_nonskip: λ₂.

    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> probabilities = {"cell": torch.tensor([[0.9, 0.2]])}
    >>> Sparsity(1.0, 0.0).term({}, probabilities, Epoch(0, of=2), {"cell": group})
    tensor(0.9000)
    """

    lambda_skip: NonNegativeFloat = 0.01
    lambda_nonskip: NonNegativeFloat = 0.005

    def check(self, parts: Parts, space: SearchSpace) -> None:
        check_skips(space)

    def term(self, arch: Arch, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups) -> Tensor:
        cells = [group_sparsity(p, groups[name]) for name, p in probabilities.items()]
        weighted = [self.lambda_skip * cell["skip"] + self.lambda_nonskip * cell["nonskip"] for cell in cells]
        return torch.stack(weighted).mean()

    def metrics(
        self, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups
    ) -> Mapping[str, float | Tensor]:
        return {
            f"L_{part}/{name}": value.detach()
            for name, probability in probabilities.items()
            for part, value in group_sparsity(probability, groups[name]).items()
        }


@checked
@dataclass(frozen=True)
class ComputedSparsity(Regularizer):
    """Sparsity as in the authors' code (salesforce/PR-DARTS): three groups of the operations of a step.

        λ₁ (L_skip − t)₊ + λ₂ (L_pooling − t)₊ + λ₂ (L_other − t)₊

    where L is the mean P over the operations of the group that the step computes, 0 if there are none, and
    then over the cells.

    Args:
        lambda_skip: λ₁.
        lambda_nonskip: λ₂.
        threshold: t, below which a group is not penalized.

    >>> group = Group(((0, 1), (1, 2)), ("skip_connect", "nor_conv_3x3"))
    >>> computed = {"cell": torch.tensor([[0.5, 0.0], [0.0, 0.9]])}
    >>> ComputedSparsity(1.0, 0.0).term({}, computed, Epoch(0, of=2), {"cell": group})  # 0.5 − 0.2
    tensor(0.3000)
    """

    lambda_skip: NonNegativeFloat = 0.01
    lambda_nonskip: NonNegativeFloat = 0.005
    threshold: Share = 0.2

    computed_only: ClassVar[bool] = True

    def check(self, parts: Parts, space: SearchSpace) -> None:
        check_skips(space)

    def term(self, arch: Arch, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups) -> Tensor:
        cells = [computed_sparsity(p, groups[name]) for name, p in probabilities.items()]
        means = {part: torch.stack([cell[part] for cell in cells]).mean() for part in cells[0]}
        above = {part: torch.relu(mean - self.threshold) for part, mean in means.items()}
        return self.lambda_skip * above["skip"] + self.lambda_nonskip * (above["pooling"] + above["other"])

    def metrics(
        self, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups
    ) -> Mapping[str, float | Tensor]:
        return {
            f"L_{part}/{name}": value.detach()
            for name, probability in probabilities.items()
            for part, value in computed_sparsity(probability, groups[name]).items()
        }


def check_skips(space: SearchSpace) -> None:
    """Raise an `InputError` unless every group chooses skips and other operations on edges."""
    groups = space.groups.values()
    if not all(group.on_edges and SKIP in group.ops and len(group.ops) > 1 for group in groups):
        raise InputError(
            "This needs a space that chooses skips and other operations on edges",
            got=space.name,
            where="space",
        )


def group_sparsity(probability: Tensor, group: Group) -> dict[str, Tensor]:
    """Return L_skip and L_nonskip of a cell by the operations' names: (edges, ops) → scalars."""
    skip = group.where(SKIP.__eq__)
    return {"skip": mean_where(probability, skip), "nonskip": mean_where(probability, ~skip)}


def computed_sparsity(probability: Tensor, group: Group) -> dict[str, Tensor]:
    """Return the mean over the nonzero entries of each of the three groups: (edges, ops) → scalars."""
    skip, computed = group.where(SKIP.__eq__), probability.detach().cpu() > 0
    pooling = group.where(lambda op: op != NONE and find_operation(op).kind == "pooling")
    parts = {"skip": skip, "pooling": pooling, "other": ~(skip | pooling)}
    return {part: mean_where(probability, place & computed) for part, place in parts.items()}


def mean_where(probability: Tensor, place: Tensor) -> Tensor:
    """Return the mean over the masked operations, 0 if there are none: a scalar."""
    if not bool(place.any()):
        return probability.new_zeros(())
    return probability[place.to(probability.device)].mean()


# FairDARTS' zero-one loss (Chu et al. 2020, arXiv:1911.12126).
#
#     L_01 = −(1/N) Σ_i (w_i − 0.5)²                                                        (equation 6)
#
# pulls weights to zero or one, so that the derivation of the genotype changes little.


@checked
@dataclass(frozen=True)
class ZeroOne(Regularizer):
    """λ L_01 of all weights together.

    Args:
        weight: λ.

    >>> ZeroOne(weight=1.0).term({}, {"cell": torch.tensor([[0.0, 1.0]])}, Epoch(0, of=2), {})
    tensor(-0.2500)
    """

    weight: NonNegativeFloat = 10.0

    def term(self, arch: Arch, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups) -> Tensor:
        return self.weight * zero_one_loss(torch.cat([p.flatten() for p in probabilities.values()]))


def zero_one_loss(weights: Tensor) -> Tensor:
    """Return L_01 = −mean (w − 0.5)²."""
    return -(weights - 0.5).square().mean()
