"""The logits that training differentiates, and the parameters that they depend on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from nas_lightning.data.batches import entries_of
from nas_lightning.errors import InputError
from nas_lightning.metrics.passes.outputs import logits_of
from nas_lightning.spaces.network import DerivedNetwork
from nas_lightning.tasks.base import Task
from nas_lightning.tasks.multi_class import MULTI_CLASS

Logits = Callable[[Any, Tensor], tuple[Tensor, Tensor | None]]


def choose_logits(network: nn.Module) -> Logits:
    """What of this network is differentiated: (network, x) → logits, and those of auxiliary heads."""
    return derived_logits if isinstance(network, DerivedNetwork) else given_logits


def training_logits(network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """The logits of the network and of its auxiliary heads, where it has such."""
    return choose_logits(network)(network, x)


def derived_logits(network: DerivedNetwork, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Those of a network that a search found."""
    return (network(x), None) if network.auxiliary is None else network.forward_auxiliary(x)


def given_logits(network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Those of somebody's own; where its output names auxiliary heads (`aux…`), theirs below each other.

    >>> class Heads(nn.Module):
    ...     def forward(self, x: Tensor) -> dict[str, Tensor]:
    ...         return {"out": x, "aux_1": x + 1, "aux_2": x + 2}
    >>> [output.shape for output in given_logits(Heads(), torch.zeros(4, 3))]
    [torch.Size([4, 3]), torch.Size([8, 3])]
    """
    output = network(x)
    logits = logits_of(output)
    auxiliary = [head for head in _auxiliary_heads(output) if head.shape == logits.shape]
    return logits, torch.cat(auxiliary) if auxiliary else None


def _auxiliary_heads(output: Any) -> Iterator[Tensor]:
    for name, value in (entries_of(output) or {}).items():
        if name.startswith("aux") and isinstance(value, Tensor):
            yield value


def check_logits(logits: Tensor, images: int, num_classes: int, task: Task, *, read: bool = False) -> None:
    """Raise unless these are the outputs that so many classes, or numbers, of so many images ask for.

    Where their numbers are read, too, those that a softmax has made are refused: the loss takes another.

    >>> check_logits(torch.zeros(2, 3), 2, 4, MULTI_CLASS)
    Traceback (most recent call last):
        ...
    nas_lightning.errors.InputError: expected logits (2, 4), got (2, 3) (in network)
    """
    if tuple(logits.shape[:2]) != (images, num_classes) or logits.dim() != (4 if task.dense else 2):
        expected = f"expected logits ({images}, {num_classes}{', h, w' * task.dense})"
        raise InputError(expected, got=tuple(logits.shape), where="network")
    if read and task.of_classes and num_classes > 1 and _are_probabilities(logits.detach().float()):
        expected = "expected logits: leave the last softmax out"
        raise InputError(expected, got="probabilities", where="network")


def _are_probabilities(outputs: Tensor) -> bool:
    return bool((outputs >= 0).all() & ((outputs.sum(dim=1) - 1).abs() < 1e-3).all())


def training_loss(
    logits: Tensor,
    auxiliary: Tensor | None,
    target: Tensor,
    weight: float,
    smoothing: float = 0.0,
    loss_of: Callable[[Tensor, Tensor, float], Tensor] = MULTI_CLASS.loss,
) -> Tensor:
    """The loss of the network and, with a weight, the mean of that of its auxiliary heads.

    >>> logits, target = torch.zeros(2, 4), torch.tensor([0, 3])
    >>> round(training_loss(logits, logits, target, weight=0.5).item(), 4)  # 1.5 ln 4
    2.0794
    """
    # L = L(f(x), y) + w · L(f_aux(x), y)
    loss = loss_of(logits, target, smoothing)
    if auxiliary is None:
        return loss
    heads = torch.cat([target] * (len(auxiliary) // len(target)))
    return loss + weight * loss_of(auxiliary, heads, smoothing)


def check_forward(network: nn.Module, image: tuple[int, int, int], num_classes: int) -> None:
    """Raise unless the network makes logits of these classes of images of (c, h, w)."""
    if isinstance(network, DerivedNetwork):
        return
    training = network.training
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            logits = logits_of(network.eval()(torch.zeros(2, *image)))
    except InputError:
        raise
    except Exception as error:  # each network has its own for images that it is not made for
        line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        expected = f"expected a network for images of {image}: {type(error).__name__}: {line}"
        raise InputError(expected, where="network") from error
    finally:
        network.train(training)
    if tuple(logits.shape[:2]) != (2, num_classes):
        expected = f"expected logits of shape {(2, num_classes)} for two images and {num_classes} classes"
        raise InputError(expected, got=tuple(logits.shape), where="network")


def freeze_unused(network: nn.Module, image: tuple[int, int, int]) -> None:
    """Ask for no gradient of parameters that no logit depends on, for which several processes would wait.

    A cell of NAS-Bench-201 may have operations whose result is not used. What is learnt stays the same.
    """
    try:
        used = _used(copy.deepcopy(network).to("meta"), image)
    except Exception:  # a network of somebody's own decides by values, which shapes alone do not have
        with torch.random.fork_rng(devices=[]):
            used = _used(copy.deepcopy(network), image)
    for parameter, is_used in zip(network.parameters(), used, strict=True):
        if not is_used:
            parameter.requires_grad_(False)


def _used(shadow: nn.Module, image: tuple[int, int, int]) -> list[bool]:
    """Whether a logit depends on each parameter."""
    device = next(iter(shadow.parameters())).device
    logits, auxiliary = training_logits(shadow.train(), torch.zeros(2, *image, device=device))
    (logits.sum() if auxiliary is None else logits.sum() + auxiliary.sum()).backward()
    return [parameter.grad is not None for parameter in shadow.parameters()]
