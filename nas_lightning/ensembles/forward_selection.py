"""Which of several sets of architectures makes the best ensemble, judged with a supernet's weights.

    S* = arg min_S L_val(1/n Σ_{A∈S} f_A)                  (Shu 2022, thesis, equation 5.1, algorithm 5.1)

with f_A the class probabilities that A predicts by inherited weights. A path is normalised by the statistics
of the batch that it is judged on, since the norms of our supernets keep none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from nas_lightning.genotype import Genotype
from nas_lightning.objectives.inherited import Batch, place_batches
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet

T = TypeVar("T")


@dataclass(frozen=True)
class Round:
    """A set that was tried and what it came to; the members stand by their own losses, the smallest first.

    Args:
        members: the architectures.
        member_losses: each one's own.
        member_accuracies: each one's own, shares of 1.
        loss: of the averaged probabilities.
        accuracy: of the averaged probabilities.
        delta: δ that the sampler had; None where it has none.
    """

    members: tuple[Genotype, ...]
    member_losses: tuple[float, ...]
    member_accuracies: tuple[float, ...]
    loss: float
    accuracy: float
    delta: float | None = None  # of SVGD-RD

    def to_dict(self) -> dict[str, Any]:
        """Plain containers, for checkpoints and JSON."""
        return {**vars(self), "members": [member.to_dict() for member in self.members]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Round:
        """The inverse of `to_dict`."""
        members = tuple(Genotype.from_dict(member) for member in data["members"])
        lists = {name: tuple(data[name]) for name in ("member_losses", "member_accuracies")}
        return cls(**{**data, **lists, "members": members})


def averaged_loss(probabilities: Tensor, labels: Tensor) -> Tensor:
    """−1/m Σ_x log(1/n Σ_A f_A(x)_y): (n, images, classes), (images,) → ().

    >>> averaged_loss(torch.tensor([[[1.0, 0.0]], [[0.5, 0.5]]]), torch.tensor([0])).exp()
    tensor(1.3333)
    """
    of_label = probabilities.mean(dim=0).gather(1, labels[:, None])
    return -of_label.clamp_min(torch.finfo(of_label.dtype).tiny).log().mean()


def forward_selection(pool: Sequence[T], size: int, loss: Callable[[Sequence[T]], float]) -> list[T]:
    """Add what lowers the loss of the set most, `size` times, none twice (Caruana et al. 2004).

    As NES-RS does with a pool of trained networks (Zaidi et al. 2021, arXiv:2006.08573, section 4.1).

    >>> forward_selection([5, 1, 3], 2, lambda chosen: abs(sum(chosen) - 6))
    [5, 1]
    """
    chosen: list[T] = []
    left = list(pool)
    for _ in range(size):
        losses = [loss([*chosen, candidate]) for candidate in left]
        chosen.append(left.pop(losses.index(min(losses))))
    return chosen


class InheritedWeights:
    """Judges sets of architectures on fixed batches; each architecture predicts once.

    Args:
        space: the search space.
        supernet: whose weights the architectures inherit.
        batches: the images of this process, as many on every process.
        average: replaces tensors by their mean over processes.
    """

    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        batches: Iterable[Batch],
        average: Callable[[Sequence[Tensor]], None] = lambda tensors: None,
    ) -> None:
        self.space, self.supernet, self.average = space, supernet, average
        self.batches = list(place_batches(supernet, batches))
        self.labels = torch.cat([y for _, y in self.batches])
        self.predictions: dict[Genotype, Tensor] = {}

    @torch.no_grad()
    def predict(self, genotype: Genotype) -> Tensor:
        """The class probabilities of an architecture: (images, classes)."""
        if genotype not in self.predictions:
            like = next(self.supernet.parameters())
            path = {name: matrix.to(like) for name, matrix in self.space.one_hot(genotype).items()}
            logits = [self.supernet(x, path) for x, _ in self.batches]
            self.predictions[genotype] = torch.cat(logits).double().softmax(dim=1)
        return self.predictions[genotype]

    def scores(self, members: Sequence[Genotype]) -> tuple[float, float]:
        """Loss and accuracy of the averaged prediction, over all processes."""
        probabilities = torch.stack([self.predict(member) for member in members])
        right = probabilities.mean(dim=0).argmax(dim=1) == self.labels
        found = torch.stack([averaged_loss(probabilities, self.labels), right.double().mean()])
        self.average([found])
        return float(found[0]), float(found[1])

    def loss(self, members: Sequence[Genotype]) -> float:
        """Loss of the averaged prediction."""
        return self.scores(members)[0]

    def judge(self, members: Sequence[Genotype], delta: float | None = None) -> Round:
        """What a set comes to, and each of its members."""
        alone = {member: self.scores([member]) for member in members}
        ordered = sorted(members, key=lambda member: alone[member][0])
        loss, accuracy = self.scores(ordered)
        losses, accuracies = zip(*(alone[member] for member in ordered), strict=True)
        return Round(tuple(ordered), losses, accuracies, loss, accuracy, delta)
