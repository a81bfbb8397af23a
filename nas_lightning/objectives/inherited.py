"""Architectures judged with a supernet's weights, and how far that order can be trusted.

The norms of our supernets have no running statistics: a path is always normalized by the batch that it is
judged on, so nothing needs recalibration. A derived network that inherits weights does: `recalibrate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics.functional.regression import kendall_rank_corrcoef

from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet, Weights
from nas_lightning.tasks import MultiClass, task_of

Batch = tuple[Tensor, Tensor]


class Judgment(NamedTuple):
    """Mean loss and accuracy over some batches.

    Args:
        loss: mean cross entropy, or what the task has.
        accuracy: a share of 1, or the score of a task without classes.
    """

    loss: float
    accuracy: float


def place_batches(module: nn.Module, batches: Iterable[Batch]) -> Iterator[Batch]:
    """The batches on the device of the module's parameters, the images in their precision."""
    parameter = next(module.parameters())
    return ((x.to(parameter), y.to(parameter.device)) for x, y in batches)


@torch.no_grad()
def judge_weights(supernet: Supernet, weights: Weights, batches: Iterable[Batch]) -> Judgment:
    """Loss and accuracy of the supernet with these architecture weights."""
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
    """The same for one architecture, which costs what its path costs."""
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
    """The same for several, up to the one in which the time for them ends."""
    judged = {}
    for genotype in genotypes:
        judged[genotype] = judge_genotype(space, supernet, genotype, batches)
        if out_of_time():
            break
    return judged


def copy_shared_weights(network: nn.Module, supernet: Supernet) -> None:
    """Give a derived network the supernet's weights; what the supernet does not have stays as it is."""
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
    """Σ ln p over the decisions of a genotype, with the rows of the scores as distributions."""
    chosen = space.one_hot(genotype)
    total = 0.0
    for name, matrix in scores.items():
        share = matrix.detach().cpu() / matrix.detach().cpu().sum(dim=-1, keepdim=True)
        total += float(torch.special.xlogy(chosen[name].to(share), share.clamp_min(1e-30)).sum())
    return total


def kendall_tau(by_score: Sequence[float], by_loss: Sequence[float]) -> float:
    """Kendall's τ between the order by score, largest first, and the order by loss, smallest first.

    >>> kendall_tau([3.0, 2.0, 1.0], [0.1, 0.2, 0.3])
    1.0
    """
    score, loss = torch.tensor(by_score, dtype=torch.float64), torch.tensor(by_loss, dtype=torch.float64)
    tau = kendall_rank_corrcoef(score, -loss)
    assert isinstance(tau, Tensor)  # a tuple only with a significance test
    return float(tau)
