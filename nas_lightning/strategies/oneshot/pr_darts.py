"""PR-DARTS: path-regularised differentiable search (Zhou et al. 2020, arXiv:2006.16537).

Every operation has a stochastic gate of its own instead of a share of a softmax, so that skip connections do
not win by taking from the others (section 4.1), and the architecture step descends

    L_val + λ₁ L_skip + λ₂ L_nonskip − λ₃ L_path                                             (section 4.2)

which makes skips costlier than other operations and deep cells likelier. With P the probability that a gate
is not zero (theorem 3):

    L_skip    = mean over edges of P(skip)
    L_nonskip = mean over edges and other operations of P
    L_path    = Π_l P(l, l+1),  P(l, l+1) = Σ over parameterised operations between neighbouring nodes of P

`L_path` starts at the last input node: in a DARTS cell the output of the previous cell (section 5), in a
NAS-Bench-201 cell its only input, so that the path is 0→1→2→3 there, the longest that the cell has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.spaces.base import Group, SearchSpace, without_none
from nas_lightning.spaces.ops import NONE, SKIP, find_operation, has_parameters
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.annealed import Annealed
from nas_lightning.strategies.oneshot.relaxations import (
    gate_probability,
    hard_concrete,
    largest,
    saturated_share,
    uniform_noise,
)
from nas_lightning.strategies.oneshot.weight_sharing import Relaxed


class PRDarts(Annealed):
    """PR-DARTS on any space with skip connections, such as `darts` and `nasbench201`.

    In every step only `active_ops` operations of an edge are computed: those with the largest sampled gates,
    ties broken at random, as in the authors' code; the paper draws two. The zero operation has a gate like
    the others while searching; its gate sees no loss, because it contributes nothing, so no genotype is
    derived from it.

    Args:
        space: the search space.
        supernet: its supernet.
        lambda_skip: λ₁.
        lambda_nonskip: λ₂.
        lambda_path: λ₃.
        active_ops: operations of an edge that a step computes.
        path_sum: sum P over the parameterised operations as equation 8 is written, which exceeds 1;
            by default it is their mean; the authors' code has that of those that the step computes.
        pooling_group: take the pooling operations out of L_nonskip, as a third group with λ₂, as in the
            authors' code.
        threshold: penalise a group only for what its probability exceeds this by; the authors' code has 0.2.
        **annealed: the gates' temperature and the rest, see `Annealed`.

    >>> from nas_lightning.spaces import DartsSpace
    >>> space = DartsSpace()
    >>> strategy = PRDarts(space, space.supernet(in_channels=1, num_classes=2, channels=2, cells=1))
    >>> int(strategy.relax().active["normal"].sum(dim=1).max()) <= 2
    True
    """

    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        lambda_skip: float = 0.01,
        lambda_nonskip: float = 0.005,
        lambda_path: float = 0.005,
        active_ops: int = 2,
        path_sum: bool = False,
        pooling_group: bool = False,
        threshold: float = 0.0,
        **annealed: Any,
    ) -> None:
        super().__init__(space, supernet, **annealed)
        fewest = min(len(group.ops) for group in space.groups.values())
        if not 1 <= active_ops <= fewest:
            raise InputError(
                f"expected 1 to {fewest} operations", got=active_ops, where="strategy.active_ops"
            )
        if not all(group.on_edges and SKIP in group.ops for group in space.groups.values()):
            raise InputError(
                "expected a space that chooses skips and other operations on edges",
                got=space.name,
                where="space",
            )
        self.lambda_skip, self.lambda_nonskip, self.lambda_path = lambda_skip, lambda_nonskip, lambda_path
        self.active_ops, self.path_sum = active_ops, path_sum
        self.pooling_group, self.threshold = pooling_group, threshold

    def relax(self) -> Relaxed:
        weights, active = {}, {}
        for name, beta in self.arch.items():
            gates = hard_concrete(beta, uniform_noise(beta, self.generator), self.tau)
            chosen = largest(gates, self.active_ops, uniform_noise(beta, self.generator))
            active[name] = chosen & (gates > 0)  # a closed gate has neither output nor gradient
            weights[name] = gates * chosen
        return Relaxed(weights, active)

    def probabilities(self) -> dict[str, Tensor]:
        """P(g ≠ 0) of every gate: (edges, ops) per group."""
        return {name: gate_probability(beta, self.tau) for name, beta in self.arch.items()}

    def scores(self) -> Mapping[str, Tensor]:
        """P at the last temperature: any gives the same order, but at the first ones P is 1 in float32."""
        groups = self.space.groups
        found = {name: gate_probability(beta.detach(), self.tau_end) for name, beta in self.arch.items()}
        return {name: without_none(probability, groups[name]) for name, probability in found.items()}

    def regulariser(self) -> Tensor:
        """λ₁ L_skip + λ₂ L_nonskip − λ₃ L_path, averaged over the cells of the space."""
        terms = []
        for name, probability in self.probabilities().items():
            group = self.space.groups[name]
            sparsity = group_sparsity(probability, group, self.pooling_group)
            above = {part: torch.relu(value - self.threshold) for part, value in sparsity.items()}
            others = sum(
                (value for part, value in above.items() if part != "skip"), probability.new_zeros(())
            )
            path = path_depth(probability, group, self.path_sum)
            terms.append(
                self.lambda_skip * above["skip"] + self.lambda_nonskip * others - self.lambda_path * path
            )
        return torch.stack(terms).mean()

    def epoch_metrics(self) -> Mapping[str, float | Tensor]:
        found = dict(super().epoch_metrics())
        for name, probability in self.probabilities().items():
            group = self.space.groups[name]
            sparsity = group_sparsity(probability, group, self.pooling_group)
            found.update({f"L_{part}/{name}": value.detach() for part, value in sparsity.items()})
            found[f"L_path/{name}"] = path_depth(probability, group, self.path_sum).detach()
            found[f"saturated/{name}"] = saturated_share(self.arch[name].detach(), self.tau)
            skips = [edge.op == SKIP for edge in self.derive()[0][name].edges]
            found[f"skips/{name}"] = float(sum(skips))
        return found


def group_sparsity(probability: Tensor, group: Group, pooling_group: bool = False) -> dict[str, Tensor]:
    """L_skip and L_nonskip of a cell (section 4.1), found by the operations' names.

        L_skip = ζ Σ_edges P(skip),   L_nonskip = ζ/(r−1) Σ_edges Σ_{other ops} P

    where ζ is one over the number of edges and r the number of operations. With `pooling_group`, pooling
    operations leave L_nonskip for an average of their own.
    """
    names = {"skip": [op for op in group.ops if op == SKIP]}
    others = [op for op in group.ops if pooling_group and op not in (NONE, SKIP)]
    pooling = [op for op in others if find_operation(op).kind == "pooling"]
    if pooling:
        names["pooling"] = pooling
    names["nonskip"] = [op for op in group.ops if op != SKIP and op not in pooling]
    return {part: probability[:, _columns(group, ops)].mean() for part, ops in names.items()}


def path_depth(probability: Tensor, group: Group, literal_sum: bool = False) -> Tensor:
    """L_path of a cell (equation 8): how likely learned operations join all neighbouring nodes."""
    between = probability[_path(group)][:, _columns(group, [op for op in group.ops if has_parameters(op)])]
    neighbours = between.sum(dim=1) if literal_sum else between.mean(dim=1)  # (path edges,)
    return neighbours.prod()


def _path(group: Group) -> list[int]:
    """The rows of the edges l → l+1, from the last input node on."""
    first = min(target for _, target in group.edges) - 1
    return [
        row for row, (source, target) in enumerate(group.edges) if source >= first and target == source + 1
    ]


def _columns(group: Group, ops: Sequence[str]) -> list[int]:
    return [group.column(op) for op in ops]
