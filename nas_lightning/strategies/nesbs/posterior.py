"""The distribution of architectures p_α(A) of NESBS (Shu 2022, thesis, section 5.3.3), and its objective.

    max_α E_{A~p_α}[log p(D|A)] − KL(p_α ‖ p),   p uniform                                     (5.4)
    p_{α_i}(o) = exp(α_i^o / τ) / Σ_o' exp(α_i^o' / τ)                                         (5.6)
    p_α(A) = Π_i p_{α_i}(o)                                                                    (5.7)

The factors of (5.7) are the *decisions* of a space. If every edge has an operation, a decision is an edge. A
node of
DARTS keeps two of its edges with one operation each: its candidates are all pairs of an edge and an
    operation; the first is sampled by (5.6), the second by (5.6) among those of the other edges. With α = 0
    all architectures of the space are equally likely, which is the prior.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import torch
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.operations import NONE
from nas_lightning.strategies.one_shot.relaxations import gumbel

Matrices = Mapping[str, Tensor]
"""One matrix of (edges, ops) per group."""


@dataclass(frozen=True, eq=False)
class Decision:
    """A choice of `keep` candidates, no two of the same kind."""

    group: str  # its name
    rows: Tensor  # (candidates,): where a candidate stands in the group's matrix
    columns: Tensor  # (candidates,)
    kinds: Tensor  # (candidates,): a kept candidate excludes all others of its kind
    keep: int  # how many are chosen

    def of(self, matrices: Matrices) -> Tensor:
        """Return the decision's entries: (edges, ops) per group → (candidates,)."""
        return matrices[self.group][self.rows, self.columns]

    def sets(self) -> Tensor:
        """Return all possible outcomes: (sets, keep) candidates."""
        kinds = self.kinds.tolist()
        every = combinations(range(len(kinds)), self.keep)
        return torch.tensor([chosen for chosen in every if len({kinds[c] for c in chosen}) == self.keep])


class Architectures:
    """p_α over the architectures of a space; `logits` are α/τ, (edges, ops) per group.

    Args:
        space: the search space.

    >>> from nas_lightning.spaces import DartsSpace
    >>> distribution = Architectures(DartsSpace())
    >>> [len(decision.sets()) for decision in distribution.decisions][:5]
    [7, 7, 147, 294, 490]
    >>> logits = {name: torch.zeros(group.shape) for name, group in DartsSpace().groups.items()}
    >>> round(float(distribution.kl_to_uniform(logits)), 4)
    0.0
    """

    def __init__(self, space: SearchSpace) -> None:
        self.decisions = decisions(space)
        self.shapes = {name: group.shape for name, group in space.groups.items()}
        self.every = [decision.sets() for decision in self.decisions]

    def probabilities(self, logits: Matrices) -> dict[str, Tensor]:
        """Return p_{α_i}(o) of each decision's candidates, 0 elsewhere: (edges, ops) per group."""
        return self._matrices(logits, [decision.of(logits).softmax(dim=0) for decision in self.decisions])

    def sample(self, logits: Matrices, noise: Matrices, tau: float) -> dict[str, Tensor]:
        """Sample the weights of a supernet; their gradient is that of the softmax at temperature `tau`."""
        drawn = [
            straight_through_choice(decision, decision.of(logits), decision.of(noise), tau)
            for decision in self.decisions
        ]
        return self._matrices(logits, drawn)

    def log_probability(self, logits: Matrices, one_hot: Matrices) -> Tensor:
        """Return log p_α(A) of the architecture with these weights."""
        terms = []
        for decision in self.decisions:
            chosen = decision.of(one_hot).nonzero().T  # (1, keep)
            terms.append(log_probability_of_sets(decision, decision.of(logits), chosen))
        return torch.cat(terms).sum()

    def mode(self, logits: Matrices) -> dict[str, Tensor]:
        """Return the most probable architecture as one-hot rows: (edges, ops) per group."""
        chosen = []
        for decision, every in zip(self.decisions, self.every, strict=True):
            best = every[int(log_probability_of_sets(decision, decision.of(logits), every).argmax())]
            chosen.append(torch.zeros(len(decision.rows)).index_fill(0, best, 1.0).to(decision.of(logits)))
        return self._matrices(logits, chosen)

    def kl_to_uniform(self, logits: Matrices) -> Tensor:
        """Return KL(p_α ‖ p) = Σ_i Σ_s p(s) (log p(s) + log |sets of i|), exactly."""
        total = []
        for decision, every in zip(self.decisions, self.every, strict=True):
            log_p = log_probability_of_sets(decision, decision.of(logits), every)
            total.append((log_p.exp() * log_p).sum() + math.log(len(every)))
        return torch.stack(total).sum()

    def _matrices(self, like: Matrices, values: Sequence[Tensor]) -> dict[str, Tensor]:
        found = {name: torch.zeros_like(matrix) for name, matrix in like.items()}
        for decision, value in zip(self.decisions, values, strict=True):
            matrix = found[decision.group]
            found[decision.group] = matrix.index_put((decision.rows, decision.columns), value)
        return found


def straight_through_choice(decision: Decision, logits: Tensor, noise: Tensor, tau: float) -> Tensor:
    """Return a one-hot sample by Gumbel noise, with the gradient of its softmax.

    The largest of logits + G is a draw by softmax(logits), the largest of those that it leaves open a draw
    among these. Each adds its softmax((logits + G)/τ) over what is open: (candidates,) → (candidates,).
    """
    perturbed = (logits + gumbel(noise)) / tau
    hard, soft = torch.zeros_like(logits), torch.zeros_like(logits)
    open_ = torch.ones_like(logits, dtype=torch.bool)
    for _ in range(decision.keep):
        share = perturbed.masked_fill(~open_, -torch.inf).softmax(dim=0)
        chosen = share.argmax()
        hard, soft = hard.index_fill(0, chosen, 1.0), soft + share
        open_ = open_ & (decision.kinds.to(chosen.device) != decision.kinds[chosen.cpu()])
    return hard + soft - soft.detach()


def log_probability_of_sets(decision: Decision, logits: Tensor, sets: Tensor) -> Tensor:
    """log P(s) = log Σ_π Π_j exp l_{π_j} / Σ_{o open after π_1 … π_{j−1}} exp l_o: (sets, keep) → (sets,)."""
    kinds = decision.kinds.to(logits.device)
    of_orders = []
    for order in permutations(range(decision.keep)):
        open_ = torch.ones(len(sets), len(logits), dtype=torch.bool, device=logits.device)
        log_p = logits.new_zeros(len(sets))
        for position in order:
            chosen = sets[:, position]
            rest = logits.expand_as(open_).masked_fill(~open_, -torch.inf).logsumexp(dim=1)
            log_p = log_p + logits[chosen] - rest
            open_ = open_ & (kinds != kinds[chosen, None])
        of_orders.append(log_p)
    return torch.stack(of_orders).logsumexp(dim=0)


def decisions(space: SearchSpace) -> list[Decision]:
    """Return the decisions of a space's architectures, inferred from those that it samples and derives."""
    if not space.groups:
        raise InputError("strategy=nesbs needs a space with a supernet", got=space.name, where="space")
    drawn = space.one_hot(space.sample(torch.Generator().manual_seed(0)))
    found: list[Decision] = []
    for name, group in space.groups.items():
        chosen = drawn[name]
        found += _of_edges(space, name, group, chosen) if group.on_edges else _of_rows(name, chosen)
    return found


def _of_rows(name: str, drawn: Tensor) -> Iterator[Decision]:
    """Yield one decision per row, which keeps as many candidates as architectures have."""
    for row, chosen in enumerate(drawn):
        columns = torch.arange(len(chosen))
        yield Decision(name, torch.full_like(columns, row), columns, columns, int(chosen.sum()))


def _of_edges(space: SearchSpace, name: str, group: Group, drawn: Tensor) -> Iterator[Decision]:
    """Yield a decision per edge if a node keeps all its edges, else one for the node."""
    derives_none = NONE not in group.ops or _derives_none(space, name, group)
    real = group.where(lambda op: op != NONE or derives_none)
    for node in sorted({target for _, target in group.edges}):
        rows = [row for row, (_, target) in enumerate(group.edges) if target == node]
        keep = int(drawn[rows].sum())
        for of_decision, kept in [(rows, keep)] if keep < len(rows) else [([row], 1) for row in rows]:
            places, columns = real[of_decision].nonzero(as_tuple=True)
            kinds = torch.tensor(of_decision)[places]
            yield Decision(name, kinds, columns, kinds, kept)


def _derives_none(space: SearchSpace, name: str, group: Group) -> bool:
    """Return whether `none` is an operation of architectures, rather than an omitted edge."""
    scores = {other: torch.zeros(its.shape) for other, its in space.groups.items()}
    nothing = group.where(lambda op: op == NONE)
    scores[name][nothing] = 1.0
    return bool(space.one_hot(space.discretize(scores))[name][nothing].any())
