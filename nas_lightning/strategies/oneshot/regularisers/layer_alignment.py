"""Λ-DARTS' alignment of layers (Movahedi et al. 2023, arXiv:2210.07998).

Cells share architecture weights w, but those near the output have the say in what they become. With
g_l = ∂L_train/∂w^(l), the gradient for the weights as cell l of n uses them, and u_l = g_l/‖g_l‖,

    Λ = 2/(n(n−1)) Σ_{l<m} u_lᵀ u_m

is how far the cells agree, and the supernet's weights θ descend L_train − λ Λ. Its gradient takes second
derivatives along d_l = ∂Λ/∂g_l = 2/(n(n−1)) (I − u_l u_lᵀ) Σ_m u_m / ‖g_l‖, which are a central difference:

    ∇_θ Λ = Σ_l ∇²_{θ w^(l)} L_train d_l ≈ (∇_θ L_train(w + ε d) − ∇_θ L_train(w − ε d)) / (2ε),  ε = ε₀/‖d‖.

λ grows linearly from 0. Each group of decisions that several cells share has a Λ of its own; the public code
leaves the two reduction cells of DARTS out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nas_lightning.checks import NonNegativeFloat, PositiveFloat, checked
from nas_lightning.errors import InputError
from nas_lightning.objectives.inherited import Batch
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.parts import Parts, WeightRegulariser
from nas_lightning.strategies.oneshot.search import TrainedSupernet
from nas_lightning.strategies.oneshot.values import Epoch, Groups, RelaxedWeights
from nas_lightning.tasks.multi_class import task_of
from nas_lightning.training.gradients import Gradients, constant, gradients

CellWeights = list[dict[str, Tensor]]
"""Weights for each cell, or what is added to them."""


@checked
@dataclass(frozen=True)
class LayerAlignment(WeightRegulariser):
    """−λ Λ, at three more passes a step.

    Args:
        weight_start: λ in the first epoch.
        weight_end: and in the last.
        scale: ε₀, the length of the central difference, as in the public code; a longer one crosses the
            kinks of rectifiers, whose jumps it then takes for curvature.

    >>> LayerAlignment().metrics({}, Epoch(1, of=3), {})
    {'lambda_alignment': 0.0625}
    """

    weight_start: NonNegativeFloat = 0.0
    weight_end: NonNegativeFloat = 0.125
    scale: PositiveFloat = 1e-4

    def check(self, parts: Parts, space: SearchSpace) -> None:
        if not space.repeated:
            reason = "because the layers of this one decide by themselves"
            raise InputError(
                f"expected a space whose cells share decisions, {reason}", got=space.name, where="space"
            )

    def check_supernet(self, supernet: Supernet) -> None:
        cells = len(supernet.backbone.widths)
        if cells < 2:
            expected = "expected two or more cells, whose gradients are to agree"
            raise InputError(expected, got=cells, where="supernet.cells")

    def gradients(
        self, search: TrainedSupernet, batch: Batch, relaxed: RelaxedWeights, epoch: Epoch
    ) -> Gradients | None:
        weight = epoch.between(self.weight_start, self.weight_end)
        if weight == 0:
            return None
        with torch.autocast(batch[0].device.type, enabled=False):  # of small differences
            cells = [
                {name: w.detach().clone().requires_grad_() for name, w in relaxed.weights.items()}
                for _ in search.supernet.backbone.widths
            ]
            towards = directions(self._slopes(search, batch, cells, relaxed))
            length = torch.stack([d.square().sum() for cell in towards for d in cell.values()]).sum().sqrt()
            if length == 0:  # all cells agree
                return None
            epsilon = float(self.scale / length)
            above, below = (
                gradients(
                    loss(search.supernet, batch, move_cells(cells, towards, e), relaxed), search.weight_list
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
        """g_l of each cell, zero where the loss does not reach it."""
        flat = [w for cell in cells for w in cell.values()]
        with constant(search.weight_list):
            found = gradients(loss(search.supernet, batch, cells, relaxed), flat)
        slopes = iter(torch.zeros_like(w) if g is None else g for w, g in zip(flat, found, strict=True))
        return [{name: next(slopes) for name in cell} for cell in cells]

    def metrics(self, probabilities: object, epoch: Epoch, groups: Groups) -> dict[str, float | Tensor]:
        return {"lambda_alignment": epoch.between(self.weight_start, self.weight_end)}


def loss(supernet: Supernet, batch: Batch, cells: CellWeights, relaxed: RelaxedWeights) -> Tensor:
    """L_train with weights of its own for each cell, for what the step computes."""
    active = relaxed.active or {name: w != 0 for name, w in relaxed.weights.items()}
    return task_of(supernet).loss(supernet.by_cell(batch[0], cells, active), batch[1])


def move_cells(cells: CellWeights, towards: CellWeights, epsilon: float) -> CellWeights:
    """w + ε d."""
    return [
        {name: w.detach() + epsilon * d[name] for name, w in cell.items()}
        for cell, d in zip(cells, towards, strict=True)
    ]


def directions(slopes: CellWeights) -> CellWeights:
    """d_l of each cell and group, which are zero where fewer than two cells use the group."""
    by_group = {name: alignment_slopes([cell[name] for cell in slopes]) for name in slopes[0]}
    return [{name: found[index] for name, found in by_group.items()} for index in range(len(slopes))]


def alignment(slopes: Sequence[Tensor]) -> Tensor:
    """Λ of the gradients of the cells that use a group, those that are not zero."""
    unit = torch.stack([(g / g.norm()).flatten() for g in slopes if bool(g.any())])  # (n, edges · ops)
    n = len(unit)
    return (unit.sum(dim=0).square().sum() - n) / (n * (n - 1))


def alignment_slopes(slopes: Sequence[Tensor]) -> list[Tensor]:
    """∂Λ/∂g_l of each cell."""
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
