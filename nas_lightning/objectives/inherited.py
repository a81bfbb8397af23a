"""Architectures and ensembles evaluated with a supernet's weights.

The norms of our supernets have no running statistics: a path is always normalized by the batch that it is
evaluated on, so it needs no recalibration. A derived network that inherits weights does: `recalibrate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics.functional.regression import kendall_rank_corrcoef

from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet, Weights
from nas_lightning.tasks import MultiClass, task_of
from nas_lightning.utils.devices import double, has_float64

Batch = tuple[Tensor, Tensor]
T = TypeVar("T")


class Judgment(NamedTuple):
    """Mean loss and accuracy over some batches.

    Args:
        loss: mean cross entropy, or the loss of the task.
        accuracy: from 0 to 1, or the score of a task without classes.
    """

    loss: float
    accuracy: float


def place_batches(module: nn.Module, batches: Iterable[Batch]) -> Iterator[Batch]:
    """Move batches to the device of the module's parameters, the images also to their data type."""
    parameter = next(module.parameters())
    return ((x.to(parameter), y.to(parameter.device)) for x, y in batches)


@torch.no_grad()
def judge_weights(supernet: Supernet, weights: Weights, batches: Iterable[Batch]) -> Judgment:
    """Return loss and accuracy of the supernet with these architecture weights."""
    if not isinstance(task_of(supernet), MultiClass):
        return _judge_task(supernet, weights, batches)
    loss = correct = count = 0.0
    for x, y in batches:
        logits = supernet(x, weights)
        loss += float(F.cross_entropy(logits, y, reduction="sum"))
        correct += float((logits.argmax(dim=1) == y).sum())
        count += len(y)
    return Judgment(loss / count, correct / count)


def _judge_task(supernet: Supernet, weights: Weights, batches: Iterable[Batch]) -> Judgment:
    task = task_of(supernet)
    pairs = [(supernet(x, weights), y) for x, y in batches]
    outputs, targets = (torch.cat(parts) for parts in zip(*pairs, strict=True))
    return Judgment(float(task.evaluation_loss(outputs, targets)), task.judge(outputs, targets))


def judge_genotype(
    space: SearchSpace, supernet: Supernet, genotype: Genotype, batches: Iterable[Batch]
) -> Judgment:
    """Return loss and accuracy of one architecture; only its path is computed."""
    parameter = next(supernet.parameters())
    weights = {name: matrix.to(parameter) for name, matrix in space.one_hot(genotype).items()}
    return judge_weights(supernet, weights, batches)


def judge_in_time(
    space: SearchSpace,
    supernet: Supernet,
    genotypes: Iterable[Genotype],
    batches: Sequence[Batch],
    out_of_time: Callable[[], bool],
) -> dict[Genotype, Judgment]:
    """Return loss and accuracy of several architectures, up to the one in which the time ends."""
    judged = {}
    for genotype in genotypes:
        judged[genotype] = judge_genotype(space, supernet, genotype, batches)
        if out_of_time():
            break
    return judged


def copy_shared_weights(network: nn.Module, supernet: Supernet) -> None:
    """Copy the supernet's weights into a derived network; weights that it lacks stay as they are."""
    shared = supernet.state_dict()
    own = network.state_dict()
    common = {name: shared[name] for name in own if name in shared and shared[name].shape == own[name].shape}
    network.load_state_dict(common, strict=False)


@torch.no_grad()
def recalibrate(network: nn.Module, batches: Iterable[Batch]) -> None:
    """Set the running statistics of all batch norms to the average over the batches."""
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    was_training = network.training
    network.train()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average
    for x, _ in batches:
        network(x)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    network.train(was_training)


def log_likelihood(space: SearchSpace, scores: Mapping[str, Tensor], genotype: Genotype) -> float:
    """Return Σ ln p over the decisions of a genotype, with the normalized rows of the scores as p."""
    chosen = space.one_hot(genotype)
    total = 0.0
    for name, matrix in scores.items():
        share = matrix.detach().cpu() / matrix.detach().cpu().sum(dim=-1, keepdim=True)
        total += float(torch.special.xlogy(chosen[name].to(share), share.clamp_min(1e-30)).sum())
    return total


def kendall_tau(by_score: Sequence[float], by_loss: Sequence[float]) -> float:
    """Return Kendall's τ between descending scores and ascending losses.

    >>> kendall_tau([3.0, 2.0, 1.0], [0.1, 0.2, 0.3])
    1.0
    """
    score, loss = torch.tensor(by_score, dtype=torch.float64), torch.tensor(by_loss, dtype=torch.float64)
    tau = kendall_rank_corrcoef(score, -loss)
    assert isinstance(tau, Tensor)  # a tuple only with a significance test
    return float(tau)


# The best ensemble among sets of architectures, evaluated with a supernet's weights.
#
#     S* = arg min_S L_val(1/n Σ_{A∈S} f_A)                  (Shu 2022, thesis, equation 5.1, algorithm 5.1)
#
# with f_A the class probabilities that A predicts with inherited weights.


@dataclass(frozen=True)
class Round:
    """An evaluated set of architectures, ordered by ascending loss.

    Args:
        members: the architectures.
        member_losses: loss of each alone.
        member_accuracies: accuracy of each alone, from 0 to 1.
        loss: of the averaged probabilities.
        accuracy: of the averaged probabilities.
        delta: δ of the sampler, None if it has none.
    """

    members: tuple[Genotype, ...]
    member_losses: tuple[float, ...]
    member_accuracies: tuple[float, ...]
    loss: float
    accuracy: float
    delta: float | None = None  # of SVGD-RD

    def to_dict(self) -> dict[str, Any]:
        """Return plain containers for checkpoints and JSON."""
        return {**vars(self), "members": [member.to_dict() for member in self.members]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Round:
        """Return the round in the containers of `to_dict`."""
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
    """Add the candidate that lowers the loss of the set most, `size` times (Caruana et al. 2004).

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
    """Evaluates sets of architectures on fixed batches; each architecture predicts once.

    Args:
        space: the search space.
        supernet: the supernet whose weights the architectures inherit.
        batches: the images of this process; all processes have the same number.
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
        if not has_float64(self.labels.device):
            self.labels = self.labels.cpu()
        self.predictions: dict[Genotype, Tensor] = {}

    @torch.no_grad()
    def predict(self, genotype: Genotype) -> Tensor:
        """The class probabilities of an architecture: (images, classes)."""
        if genotype not in self.predictions:
            like = next(self.supernet.parameters())
            path = {name: matrix.to(like) for name, matrix in self.space.one_hot(genotype).items()}
            logits = [self.supernet(x, path) for x, _ in self.batches]
            self.predictions[genotype] = double(torch.cat(logits)).softmax(dim=1)
        return self.predictions[genotype]

    def scores(self, members: Sequence[Genotype]) -> tuple[float, float]:
        """Loss and accuracy of the averaged prediction, over all processes."""
        probabilities = torch.stack([self.predict(member) for member in members])
        right = probabilities.mean(dim=0).argmax(dim=1) == self.labels
        found = torch.stack([averaged_loss(probabilities, self.labels), double(right).mean()])
        self.average([found])
        return float(found[0]), float(found[1])

    def loss(self, members: Sequence[Genotype]) -> float:
        """Loss of the averaged prediction."""
        return self.scores(members)[0]

    def judge(self, members: Sequence[Genotype], delta: float | None = None) -> Round:
        """Evaluate a set and each of its members."""
        alone = {member: self.scores([member]) for member in members}
        ordered = sorted(members, key=lambda member: alone[member][0])
        loss, accuracy = self.scores(ordered)
        losses, accuracies = zip(*(alone[member] for member in ordered), strict=True)
        return Round(tuple(ordered), losses, accuracies, loss, accuracy, delta)
