"""The contracts of the parts of a one-shot search.

A part is a small frozen class that holds settings, and pure functions of (parameters, noise, epoch). It keeps
nothing that it computes: architecture parameters, random numbers, and optimizers belong to `OneShot`. This is
why every combination resumes to the same bits and draws the same numbers on every process.
"""

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

Groups = Mapping[str, Group]
Arch = Mapping[str, Tensor]
"""The architecture parameters: (edges, ops) per group, and those of connections under other names."""
Noise = Mapping[str, Sequence[Tensor]]
"""The random numbers of a step, by group."""
SearchBatch = Mapping[str, Batch]  # "train", "valid"


class RelaxedWeights(NamedTuple):
    """The architecture weights that a step's supernet is called with.

    Args:
        weights: of the operations: (edges, ops) per group.
        active: which of them are computed; None: those whose weight is not constantly zero.

    >>> RelaxedWeights({"cell": torch.ones(1, 2)}).active is None
    True
    """

    weights: Weights
    active: Active | None = None


class FreezeState(NamedTuple):
    """The state of a `Freezing` rule: (ops,) each.

    Args:
        sums: of the cosines since the last decision.
        counts: of those cosines.
        frozen: which operations are frozen.
    """

    sums: Tensor
    counts: Tensor
    frozen: Tensor


class Epoch(NamedTuple):
    """The position of a search in its schedule.

    Args:
        number: of the epoch, from 0.
        of: the number of epochs.

    >>> Epoch(1, of=3).between(10.0, 0.0)
    5.0
    """

    number: int
    of: int

    def between(self, start: float, end: float) -> float:
        """Interpolate linearly from `start` in the first epoch to `end` in the last."""
        return linear(start, end, self.number, self.of)


class TrainedSupernet(Protocol):
    """A supernet and its weights, as terms of the weights' loss see the search."""

    supernet: Supernet
    weight_list: list[nn.Parameter]


class Search(TrainedSupernet, Protocol):
    """A one-shot search, as its architecture step sees it."""

    arch_list: list[nn.Parameter]

    def draw(self) -> Noise: ...
    def relax(self, noise: Noise | None = None) -> RelaxedWeights: ...
    def loss(self, side: str, batch: Batch, relaxed: RelaxedWeights) -> Tensor: ...
    def loss_and_logits(self, batch: Batch, relaxed: RelaxedWeights) -> tuple[Tensor, Tensor]: ...
    def add_penalties(self, loss: Tensor, relaxed: RelaxedWeights) -> Tensor: ...
    def arch_gradients(self, batch: SearchBatch) -> Gradients: ...
    def arch_descend(self) -> None: ...
    def weight_step(self, batches: Sequence[SearchBatch]) -> None: ...
    def descend(self) -> None: ...
    def virtual_step(self) -> Any: ...


class Parts(Protocol):
    """The other parts of the search, as a part's `check` sees them."""

    @property
    def sampler(self) -> Sampler: ...
    @property
    def arch_step(self) -> ArchStep | None: ...


@dataclass(frozen=True)
class Part:
    """Base class of all parts."""

    def check(self, parts: Parts, space: SearchSpace) -> None:
        """Raise an `InputError` if the part is incompatible with the other parts or with the space."""

    def check_supernet(self, supernet: Supernet) -> None:
        """Raise an `InputError` if the supernet lacks something that the part needs."""


class Sampler(Part, ABC):
    """Maps architecture parameters to the weights of operations."""

    noises: ClassVar[int] = 0
    """Number of matrices of uniform noise that the weights of a group need."""
    varies: ClassVar[bool] = False
    """Whether each weight step computes other operations: those whose weight is above zero."""
    sparse: ClassVar[bool] = False
    """Whether an architecture step, too, computes only operations whose weight is above zero."""
    learns: ClassVar[bool] = True
    """Whether there are parameters."""
    shares: ClassVar[bool] = True
    """Whether the weights of a row sum to one."""
    softmax: ClassVar[bool] = False
    """Whether the weights are functions of softmax(β), so that only differences within a row matter."""
    on_simplex: ClassVar[bool] = False
    """Whether the rows of the parameters lie on the simplex."""

    def initial(self, group: Group, generator: torch.Generator) -> Tensor:
        """Return the initial parameters of a group: (edges, ops).

        By default 10⁻³ N(0, 1), as in the public code of DARTS; the paper has zeros.
        """
        return 1e-3 * torch.randn(group.shape, generator=generator)

    @abstractmethod
    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        """Return the weights of a group in one step: (edges, ops)."""

    @abstractmethod
    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        """Return the expected weights, in [0, 1], that regularizers act on: (edges, ops)."""

    def scores(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        """Return the scores from which the genotype is derived: (edges, ops)."""
        return self.probabilities(beta, epoch, group)

    def draw(self, arch: Arch, space: SearchSpace, generator: torch.Generator) -> Noise:
        """Draw the random numbers of one step, group by group."""
        return {
            name: [uniform_noise(beta, generator) for _ in range(self.noises)]
            for name, beta in arch.items()
            if name in space.groups
        }

    def relax(self, arch: Arch, noise: Noise, epoch: Epoch, groups: Groups) -> RelaxedWeights:
        """Return the weights of all groups."""
        weights = {name: self.weights(arch[name], noise[name], epoch, groups[name]) for name in groups}
        active = {name: matrix.detach() > 0 for name, matrix in weights.items()} if self.sparse else None
        return RelaxedWeights(weights, active)

    def paths(self, noise: Noise) -> list[Noise]:
        """Return the noise of each path that one weight step trains; their gradients are added."""
        return [noise]

    def project(self, beta: Tensor, group: Group) -> Tensor:
        """Project the parameters after a step onto the set where they must lie."""
        return beta

    def decays(self, group: Group) -> bool:
        """Return whether weight decay applies to the parameters of this group."""
        return True

    def metrics(self, arch: Arch, epoch: Epoch, groups: Groups) -> Mapping[str, float | Tensor]:
        """Return metrics to log after an epoch."""
        return {}


class Connection(Part, ABC):
    """Changes the sampled weights according to the edges of the cell."""

    stages: tuple[int, ...] = ()
    """K of each stage; 1/K of the channels pass the operations. Empty: that of the supernet."""

    def initial(self, groups: Groups, generator: torch.Generator) -> dict[str, Tensor]:
        """Return the initial values of the connection's own parameters, if it has any."""
        return {}

    @abstractmethod
    def apply(self, relaxed: RelaxedWeights, arch: Arch, epoch: Epoch, groups: Groups) -> RelaxedWeights:
        """Return the weights of a step."""

    def partial(self, epoch: Epoch) -> int | None:
        """Return K in an epoch; all stages are equally long."""
        if not self.stages:
            return None
        return self.stages[min(epoch.number * len(self.stages) // epoch.of, len(self.stages) - 1)]

    def scores(self, scores: Mapping[str, Tensor], arch: Arch, groups: Groups) -> Mapping[str, Tensor]:
        """Return the scores from which the genotype is derived, given those of the sampler."""
        return scores


class WeightPerturbation(Part, ABC):
    """Replaces the architecture weights at which the supernet is trained by others nearby."""

    @abstractmethod
    def apply(
        self,
        weights: Weights,
        noise: Weights,
        epoch: Epoch,
        sampler: Sampler,
        slope: Callable[[Weights], Weights],
    ) -> Weights:
        """Return the weights of a step.

        Args:
            weights: the sampled weights.
            noise: uniform noise of the same shapes.
            epoch: the current epoch.
            sampler: the search's sampler.
            slope: returns the gradient of the training loss with respect to the weights.
        """


class Term(Part):
    """A term that is added to a loss."""

    def metrics(
        self, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups
    ) -> Mapping[str, float | Tensor]:
        """Return metrics to log after an epoch."""
        return {}


class Regularizer(Term, ABC):
    """A term of the loss that an architecture step descends."""

    computed_only: ClassVar[bool] = False
    """Whether `probabilities` are 0 for operations that the step does not compute."""

    @abstractmethod
    def term(self, arch: Arch, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups) -> Tensor:
        """Return the value of the term, a scalar."""


class WeightRegularizer(Term, ABC):
    """A term of the loss that a step of the supernet's weights descends."""

    @abstractmethod
    def gradients(
        self, search: TrainedSupernet, batch: Batch, relaxed: RelaxedWeights, epoch: Epoch
    ) -> Gradients | None:
        """Return ∇_θ of the term on a training batch; None if it is zero in this epoch."""


class ArchStep(Part, ABC):
    """One training step of the architecture parameters and of the weights."""

    validates: ClassVar[bool] = True
    """Whether it uses validation images."""

    @abstractmethod
    def gradients(self, search: Search, batch: SearchBatch) -> Gradients:
        """Return ∇_β of the loss that the architecture step descends."""

    def step(self, search: Search, batches: Sequence[SearchBatch]) -> None:
        """Take one step of both on accumulated batches, the architecture's first (DARTS, algorithm 1)."""
        for batch in batches:
            accumulate(search.arch_list, search.arch_gradients(batch), 1 / len(batches))
        search.arch_descend()
        search.weight_step(batches)


class ArchOptimizer(Part, ABC):
    """The optimizer of the architecture parameters."""

    default_lr: ClassVar[float]
    on_simplex: ClassVar[bool] = False
    """Whether it keeps the rows of its parameters on the simplex, and needs them there."""

    @abstractmethod
    def build(self, decaying: list[nn.Parameter], others: list[nn.Parameter], lr: float) -> Optimizer:
        """Return the optimizer of all parameters; weight decay does not apply to `others`."""


class Selection(Part, ABC):
    """Searches a trained supernet for an architecture."""

    valid_batches: int
    """Number of batches, over all processes, on which each architecture is judged."""

    @property
    @abstractmethod
    def judgments(self) -> int:
        """The largest number of architectures that are judged."""

    @abstractmethod
    def best(
        self,
        space: SearchSpace,
        supernet: Supernet,
        batches: Sequence[Batch],
        generator: torch.Generator,
        out_of_time: Callable[[], bool] = never,
    ) -> tuple[Genotype, Judgment]:
        """Return the best architecture with the shared weights, out of time the best judged so far."""


class EarlyStop(Part, ABC):
    """A rule that ends a search before its last epoch."""

    @abstractmethod
    def update(
        self, state: Mapping[str, Any], genotype: Genotype, scores: Mapping[str, Tensor], groups: Groups
    ) -> dict[str, Any]:
        """Return the state after an epoch, as plain values for the checkpoint."""

    @abstractmethod
    def stops(self, state: Mapping[str, Any]) -> bool:
        """Return whether the search ends with this epoch."""


class Freezing(Part, ABC):
    """A rule that freezes the weights of single operations."""

    @abstractmethod
    def update(self, state: FreezeState, cosines: Tensor) -> FreezeState:
        """Return the state after a step.

        Args:
            state: the state before it.
            cosines: between the training and validation gradients of each operation, (ops,); NaN where the
                step did not compute the operation.
        """
