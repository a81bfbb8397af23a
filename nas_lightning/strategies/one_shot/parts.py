"""The contracts of the parts of a one-shot search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nas_lightning.genotype import Genotype
from nas_lightning.objectives.inherited import Batch, Judgment
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.supernet import Active, Supernet, Weights
from nas_lightning.strategies.one_shot.relaxations import linear, uniform_noise
from nas_lightning.training.gradients import Gradients, accumulate
from nas_lightning.utils.progress import never

# What the parts of a one-shot search pass to each other.

Groups = Mapping[str, Group]
Arch = Mapping[str, Tensor]
"""The architecture parameters: (edges, ops) per group, and those of connections by names of their own."""
Noise = Mapping[str, Sequence[Tensor]]
"""What a sampler draws for a step, by group."""
SearchBatch = Mapping[str, Batch]  # "train", "valid"


class RelaxedWeights(NamedTuple):
    """What a step's supernet is called with.

    Args:
        weights: of the operations: (edges, ops) per group.
        active: which of them are computed; None: what follows from the weights.
    """

    weights: Weights
    active: Active | None = None


class FreezeState(NamedTuple):
    """How far the operations' weights still learn what helps: (ops,) each.

    Args:
        sums: of the cosines since they were last judged.
        counts: of those cosines.
        frozen: which operations learn no more.
    """

    sums: Tensor
    counts: Tensor
    frozen: Tensor


class Epoch(NamedTuple):
    """Where a search stands.

    Args:
        number: of the epoch, from 0.
        of: how many there are.

    >>> Epoch(1, of=3).between(10.0, 0.0)
    5.0
    """

    number: int
    of: int

    def between(self, start: float, end: float) -> float:
        """From `start` in the first epoch to `end` in the last, in equal steps."""
        return linear(start, end, self.number, self.of)


# What parts may ask of the search that they are parts of.


class TrainedSupernet(Protocol):
    """A supernet and its weights."""

    supernet: Supernet
    weight_list: list[nn.Parameter]


class Search(TrainedSupernet, Protocol):
    """A one-shot search, as its architecture steps see it."""

    arch_list: list[nn.Parameter]

    def draw(self) -> Noise: ...
    def relax(self, noise: Noise | None = None) -> RelaxedWeights: ...
    def loss(self, side: str, batch: Batch, relaxed: RelaxedWeights) -> Tensor: ...
    def cross_entropy(self, batch: Batch, relaxed: RelaxedWeights) -> tuple[Tensor, Tensor]: ...
    def add_penalties(self, loss: Tensor) -> Tensor: ...
    def arch_gradients(self, batch: SearchBatch) -> Gradients: ...
    def arch_descend(self) -> None: ...
    def weight_step(self, batches: Sequence[SearchBatch]) -> None: ...
    def descend(self) -> None: ...
    def virtual_step(self) -> Any: ...


# What a one-shot search is made of: the contracts of its parts.
#
# Each part is a pure function of (parameters, noise, epoch), with its equation above it, and a small frozen
# class that holds its settings. None keeps what it computes: architecture parameters, random numbers and
# optimizers belong to `OneShot`, so that every combination resumes to the same bits and draws the same
# numbers on every process.


class Parts(Protocol):
    """What a part may ask of those that it stands beside."""

    @property
    def sampler(self) -> Sampler: ...
    @property
    def arch_step(self) -> ArchStep | None: ...


@dataclass(frozen=True)
class Part:
    """Settings, and a formula."""

    def check(self, parts: Parts, space: SearchSpace) -> None:
        """Raise an `InputError` where the part makes no sense beside the others or in the space."""

    def check_supernet(self, supernet: Supernet) -> None:
        """Raise an `InputError` where the supernet lacks what the part needs."""


class Sampler(Part, ABC):
    """How parameters become the weights of operations, and what those are expected to be."""

    noises: ClassVar[int] = 0
    """Matrices of uniform numbers that the weights of a group take."""
    varies: ClassVar[bool] = False
    """Whether each step of the weights computes other operations: those whose weight is above zero."""
    sparse: ClassVar[bool] = False
    """Whether those of the architecture compute no others either."""
    learns: ClassVar[bool] = True
    """Whether there are parameters."""
    shares: ClassVar[bool] = True
    """Whether the weights of a row sum to one."""
    softmax: ClassVar[bool] = False
    """Whether the weights follow from exp β, so that only differences in a row matter."""
    on_simplex: ClassVar[bool] = False
    """Whether the rows of its parameters lie on the simplex."""

    def initial(self, group: Group, generator: torch.Generator) -> Tensor:
        """The start of a group's parameters: (edges, ops).

        By default 10⁻³ N(0, 1), as in the public code of DARTS, whose paper has zeros.
        """
        return 1e-3 * torch.randn(group.shape, generator=generator)

    @abstractmethod
    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        """A group's weights in one step: (edges, ops)."""

    @abstractmethod
    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        """What each operation is expected to have, in [0, 1]; what regularizers act on: (edges, ops)."""

    def scores(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        """What the genotype is derived from: (edges, ops)."""
        return self.probabilities(beta, epoch, group)

    def draw(self, arch: Arch, space: SearchSpace, generator: torch.Generator) -> Noise:
        """The random numbers of one step, drawn group by group."""
        return {
            name: [uniform_noise(beta, generator) for _ in range(self.noises)]
            for name, beta in arch.items()
            if name in space.groups
        }

    def relax(self, arch: Arch, noise: Noise, epoch: Epoch, groups: Groups) -> RelaxedWeights:
        """The weights of all groups."""
        weights = {name: self.weights(arch[name], noise[name], epoch, groups[name]) for name in groups}
        active = {name: matrix.detach() > 0 for name, matrix in weights.items()} if self.sparse else None
        return RelaxedWeights(weights, active)

    def paths(self, noise: Noise) -> list[Noise]:
        """The numbers of each path that one step of the weights trains; their gradients add up."""
        return [noise]

    def project(self, beta: Tensor, group: Group) -> Tensor:
        """The parameters after a step, where they may not lie everywhere."""
        return beta

    def decays(self, group: Group) -> bool:
        """Whether the decay of architecture parameters is for this group's."""
        return True

    def metrics(self, arch: Arch, epoch: Epoch, groups: Groups) -> Mapping[str, float | Tensor]:
        """What there is to log after an epoch."""
        return {}


class Connection(Part, ABC):
    """A change of the sampled weights that follows from the cell's edges."""

    def initial(self, groups: Groups, generator: torch.Generator) -> dict[str, Tensor]:
        """Parameters of its own."""
        return {}

    @abstractmethod
    def apply(self, relaxed: RelaxedWeights, arch: Arch, epoch: Epoch, groups: Groups) -> RelaxedWeights:
        """The weights of a step."""

    stages: tuple[int, ...] = ()
    """1/K of the channels pass the operations, with these K in turn; none: as the supernet has it."""

    def partial(self, epoch: Epoch) -> int | None:
        """K in an epoch, in stages of equally many."""
        if not self.stages:
            return None
        return self.stages[min(epoch.number * len(self.stages) // epoch.of, len(self.stages) - 1)]

    def scores(self, scores: Mapping[str, Tensor], arch: Arch, groups: Groups) -> Mapping[str, Tensor]:
        """The scores with what the connection says of them."""
        return scores


class WeightPerturbation(Part, ABC):
    """Other weights near those of the architecture, at which the supernet is trained."""

    @abstractmethod
    def apply(
        self,
        weights: Weights,
        noise: Weights,
        epoch: Epoch,
        sampler: Sampler,
        slope: Callable[[Weights], Weights],
    ) -> Weights:
        """The weights of a step, given uniform noise and the gradient of the training loss."""


class Term(Part):
    """What is added to a loss."""

    def metrics(
        self, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups
    ) -> Mapping[str, float | Tensor]:
        """What there is to log after an epoch."""
        return {}


class WeightRegularizer(Term, ABC):
    """A term of the loss that a step of the supernet's weights descends."""

    @abstractmethod
    def gradients(
        self, search: TrainedSupernet, batch: Batch, relaxed: RelaxedWeights, epoch: Epoch
    ) -> Gradients | None:
        """∇_θ of its value on a training batch; None: it has none in this epoch."""


class Regularizer(Term, ABC):
    """A term of the loss that an architecture step descends."""

    @abstractmethod
    def term(self, arch: Arch, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups) -> Tensor:
        """Its value, a scalar."""


class ArchStep(Part, ABC):
    """How a step moves the architecture parameters, and the weights beside them."""

    validates: ClassVar[bool] = True
    """Whether it looks at validation images."""

    @abstractmethod
    def gradients(self, search: Search, batch: SearchBatch) -> Gradients:
        """∇_β of what the architecture's step descends."""

    def step(self, search: Search, batches: Sequence[SearchBatch]) -> None:
        """One step of both on batches that count as one; first the architecture's (DARTS, algorithm 1)."""
        for batch in batches:
            accumulate(search.arch_list, search.arch_gradients(batch), 1 / len(batches))
        search.arch_descend()
        search.weight_step(batches)


class ArchOptimizer(Part, ABC):
    """What descends the gradients of the architecture parameters."""

    default_lr: ClassVar[float]
    on_simplex: ClassVar[bool] = False
    """Whether it keeps the rows of its parameters on the simplex, and so needs them there."""

    @abstractmethod
    def build(self, decaying: list[nn.Parameter], others: list[nn.Parameter], lr: float) -> Optimizer:
        """The optimizer of all parameters, of which the others do not decay."""


class Selection(Part, ABC):
    """How a trained supernet is searched for an architecture."""

    valid_batches: int
    """Batches that each architecture is judged on, of all processes together."""

    @property
    @abstractmethod
    def judgments(self) -> int:
        """Architectures that are judged at most."""

    @abstractmethod
    def best(
        self,
        space: SearchSpace,
        supernet: Supernet,
        batches: Sequence[Batch],
        generator: torch.Generator,
        out_of_time: Callable[[], bool] = never,
    ) -> tuple[Genotype, Judgment]:
        """The best architecture found with the shared weights; out of time, of those judged so far."""


# The contracts of rules: those that end a search, and those that end the learning of single operations.


class Stopping(Part, ABC):
    """A rule that ends a search before its last epoch."""

    @abstractmethod
    def remember(
        self, memory: Mapping[str, Any], genotype: Genotype, scores: Mapping[str, Tensor], groups: Groups
    ) -> dict[str, Any]:
        """What is kept of the epochs so far, plain values, with the one that ends now."""

    @abstractmethod
    def stops(self, memory: Mapping[str, Any]) -> bool:
        """Whether the search ends with this epoch."""


class Freezing(Part, ABC):
    """A rule by which the weights of single operations stop to learn."""

    @abstractmethod
    def update(self, memory: FreezeState, cosines: Tensor) -> FreezeState:
        """What is known of each operation after a step (ops,), where one was not computed NaN."""
