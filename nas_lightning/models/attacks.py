"""Adversarial attacks and the defense of ensembles."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.utils.progress import follow
from nas_lightning.validation import NonNegativeFloat, PositiveFloat, PositiveInt, Seed, checked

# Attacks, with the settings of Shu 2022 (thesis, sections 5.3.6 and 5.4.3). Networks take values from 0 to 1
# and normalize them, as those of `Ensemble.load(…, with_normalization=True)` do; so bounds are of pixels.

Network = Callable[[Tensor], Tensor]


class Attack(ABC):
    """Maps images (b, c, h, w) in [0, 1] and labels (b,) to images that a network misclassifies."""

    package: ClassVar[str | None] = None
    """An optional package that the attack needs."""

    @abstractmethod
    def __call__(self, network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the changed images, also those on which the attack failed."""

    def check(self) -> None:
        """Raise if the package is not installed."""
        if self.package is not None and find_spec(self.package) is None:
            raise InputError(
                f"This attack needs the package {self.package}: pip install 'nas-lightning[attacks]'"
            )


def loss_gradient(network: Network, x: Tensor, y: Tensor) -> Tensor:
    """Return ∇_x Σ L(f(x), y), L the cross entropy."""
    x = x.detach().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(network(x), y, reduction="sum"), x)[0]


@checked
@dataclass(frozen=True)
class Fgsm(Attack):
    """x' = clip(x + ε sign ∇_x L) (Goodfellow et al. 2015, arXiv:1412.6572, section 4).

    Args:
        epsilon: ε, the largest change of a pixel.

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).eval()
    >>> x = torch.full((1, 1, 2, 2), 0.5)
    >>> (Fgsm(epsilon=0.1)(network, x, torch.tensor([0])) - x).abs().flatten()
    tensor([0.1000, 0.1000, 0.1000, 0.1000])
    """

    epsilon: PositiveFloat = 0.01

    def __call__(self, network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return (x + self.epsilon * loss_gradient(network, x, y).sign()).clamp(0, 1)


@checked
@dataclass(frozen=True)
class Pgd(Attack):
    """x ← Π(x + η sign ∇_x L), from a random start (Madry et al. 2018, arXiv:1706.06083, section 2.1).

    Π projects on the L∞ ball of radius ε around the image and on [0, 1].

    Args:
        epsilon: ε, the largest change of a pixel.
        step: η.
        steps: number of steps.
        random_start: start at a random point of the ball instead of the image.

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).eval()
    >>> x = torch.full((1, 1, 2, 2), 0.5)
    >>> attacked = Pgd(epsilon=0.1, step=0.05, steps=5)(network, x, torch.tensor([0]))
    >>> round(float((attacked - x).abs().max()), 4)
    0.1
    """

    epsilon: PositiveFloat = 0.01
    step: PositiveFloat = 0.008
    steps: PositiveInt = 40
    random_start: bool = True

    def __call__(self, network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        low, high = (x - self.epsilon).clamp_min(0), (x + self.epsilon).clamp_max(1)
        attacked = x
        if self.random_start:
            attacked = low + (high - low) * torch.rand_like(x)
        for _ in range(self.steps):
            attacked = attacked + self.step * loss_gradient(network, attacked, y).sign()
            attacked = attacked.clamp(low, high)
        return attacked


@checked
@dataclass(frozen=True)
class CarliniWagner(Attack):
    """The smallest L2 change that is misclassified (Carlini & Wagner 2017, arXiv:1608.04644, section VI-A).

        min_w ‖x' − x‖² + c · max(f_y(x') − max_{j≠y} f_j(x'), −confidence),   x' = (tanh w + 1)/2

    by Adam. A binary search on a logarithmic scale finds c in [constant_low, constant_high] for each image.
    Returns the nearest misclassified x', or the image itself if there was none.

    Args:
        confidence: by how much another logit must be larger.
        constant_low: the smallest c.
        constant_high: the largest c.
        search_steps: number of values of c.
        steps: steps of Adam for each c.
        lr: learning rate of Adam.

    >>> network = nn.Flatten()  # the pixels are the logits: the nearest image of another class has equal ones
    >>> x = torch.tensor([0.6, 0.4]).view(1, 2, 1, 1)
    >>> attacked = CarliniWagner(constant_low=1.0, search_steps=2)(network, x, torch.tensor([0]))
    >>> network(attacked).argmax(dim=1), 0.14 < float((attacked - x).norm()) < 0.2  # √2 · 0.1
    (tensor([1]), True)
    """

    confidence: NonNegativeFloat = 0.0
    constant_low: PositiveFloat = 0.001
    constant_high: PositiveFloat = 10.0
    search_steps: PositiveInt = 3
    steps: PositiveInt = 50
    lr: PositiveFloat = 0.01

    def __post_init__(self) -> None:
        if self.constant_high <= self.constant_low:
            raise InputError("`constant_high` must be greater than `constant_low`", got=self)

    def __call__(self, network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        low, high = (x.new_full((len(x),), c) for c in (self.constant_low, self.constant_high))
        nearest, distance = x.clone(), x.new_full((len(x),), torch.inf)
        for _ in range(self.search_steps):
            constant = (low * high).sqrt()
            succeeded = torch.zeros_like(y, dtype=torch.bool)
            for candidate, wrong in self._descend(network, x, y, constant):
                away = (candidate - x).flatten(1).norm(dim=1)
                better = wrong & (away < distance)
                distance = torch.where(better, away, distance)
                nearest = torch.where(better[:, None, None, None], candidate, nearest)
                succeeded |= wrong
            high = torch.where(succeeded, constant, high)
            low = torch.where(succeeded, low, constant)
        return nearest

    def _descend(
        self, network: Network, x: Tensor, y: Tensor, constant: Tensor
    ) -> Iterable[tuple[Tensor, Tensor]]:
        """Yield the images of each step, and which are misclassified with the required confidence."""
        w = torch.atanh((2 * x - 1) * (1 - 1e-6)).requires_grad_()
        optimizer = torch.optim.Adam([w], lr=self.lr, betas=(0.9, 0.999))
        for _ in range(self.steps):
            changed = (w.tanh() + 1) / 2
            margin = _margin(network(changed), y)
            squares = (changed - x).square().flatten(1).sum(dim=1)
            loss = squares + constant * margin.clamp_min(-self.confidence)
            yield changed.detach(), (margin < 0) & (margin <= -self.confidence)
            (w.grad,) = torch.autograd.grad(loss.sum(), w)
            optimizer.step()


def _margin(logits: Tensor, y: Tensor) -> Tensor:
    """Return f_y − max_{j≠y} f_j, negative if the prediction is wrong: (b, classes), (b,) → (b,)."""
    of_label = logits.gather(1, y[:, None])
    others = logits.scatter(1, y[:, None], -torch.inf)
    return of_label[:, 0] - others.max(dim=1).values


@checked
@dataclass(frozen=True)
class AutoAttack(Attack):
    """The standard ensemble of attacks (Croce & Hein 2020, arXiv:2003.01690), from the package pyautoattack.

    APGD-CE, targeted APGD-DLR and FAB for nine classes, and Square with 5,000 queries, in the L∞ norm. It
    needs at least ten classes, and hundreds of passes per image. The thesis does not state its ε.

    Args:
        epsilon: ε, the largest change of a pixel.
        seed: seed of the random numbers.

    >>> attack = AutoAttack(epsilon=8 / 255)
    >>> attack.check()  # raises if the package is missing
    >>> attack.package
    'pyautoattack'
    """

    package: ClassVar[str | None] = "pyautoattack"

    epsilon: PositiveFloat = 0.01
    seed: Seed = 0

    def __call__(self, network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        self.check()
        from pyautoattack import AutoAttack as Standard

        with torch.no_grad():
            classes = network(x[:1]).shape[1]
        if classes < 10:
            raise InputError("AutoAttack needs at least 10 classes", got=classes)
        logging.getLogger("auto-attack").setLevel(logging.ERROR)
        made = Standard(network, norm="Linf", eps=self.epsilon, seed=self.seed, device=x.device)
        return made.run_standard_evaluation(x, y, batch_size=len(x))[0]


# The defense of an ensemble against attacks on one of its members (Shu 2022, thesis, section 5.3.6).

Batch = tuple[Tensor, Tensor]


class Rounds(NamedTuple):
    """Accuracies under attacks on each member, (members,) each."""

    attack: Tensor
    """Accuracy of the attacked member."""
    defense: Tensor
    """Accuracy of the ensemble on the same images."""


def defense(members: Sequence[nn.Module], batches: Iterable[Batch], attack: Attack) -> Rounds:
    """Attack each member in turn and evaluate it and the ensemble; images in [0, 1]."""
    batches = list(batches)
    rounds = [defense_round(members, number, batches, attack) for number in range(len(members))]
    attacked, defended = zip(*rounds, strict=True)
    return Rounds(torch.tensor(attacked), torch.tensor(defended))


def defense_round(
    members: Sequence[nn.Module], number: int, batches: Iterable[Batch], attack: Attack
) -> tuple[float, float]:
    """Return the accuracy of the attacked member `number` and of the ensemble, in eval mode."""
    if len(members) < 2:
        raise InputError("The ensemble must have at least two networks", got=len(members))
    parameter = next(members[0].parameters())
    modes = [member.training for member in members]
    frozen = [(p, p.requires_grad) for member in members for p in member.parameters()]
    for member in members:
        member.eval().requires_grad_(False)  # only gradients of the images are needed
    right, count = torch.zeros(2), 0
    for x, y in follow(batches, "batches under attack"):
        x, y = x.to(parameter), y.to(parameter.device)
        changed = attack(members[number], x, y)
        with torch.no_grad():
            p = torch.stack([member(changed).softmax(dim=1) for member in members])
        right += torch.stack([(q.argmax(dim=1) == y).sum().cpu() for q in (p[number], p.mean(dim=0))])
        count += len(y)
    for member, mode in zip(members, modes, strict=True):
        member.train(mode)
    for p, flag in frozen:
        p.requires_grad_(flag)
    attacked, defended = (right / count).tolist()
    return attacked, defended
