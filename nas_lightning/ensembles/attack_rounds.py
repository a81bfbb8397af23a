"""What an ensemble says to attacks on one of its members (Shu 2022, thesis, section 5.3.6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nas_lightning.ensembles.attacks import Attack
from nas_lightning.errors import InputError
from nas_lightning.progress import follow

Batch = tuple[Tensor, Tensor]


class Rounds(NamedTuple):
    """Accuracies with each member attacked in turn, (members,) each."""

    attack: Tensor
    """Of the member that was attacked, on what was made for it."""
    defence: Tensor
    """Of all members together, on the same images."""


def defence(members: Sequence[nn.Module], batches: Iterable[Batch], attack: Attack) -> Rounds:
    """Attack one member in turn, defend with all; images in [0, 1]."""
    batches = list(batches)
    rounds = [defence_round(members, number, batches, attack) for number in range(len(members))]
    attacked, defended = zip(*rounds, strict=True)
    return Rounds(torch.tensor(attacked), torch.tensor(defended))


def defence_round(
    members: Sequence[nn.Module], number: int, batches: Iterable[Batch], attack: Attack
) -> tuple[float, float]:
    """Attack accuracy of member `number`, and defence accuracy of all, in eval mode."""
    if len(members) < 2:
        raise InputError("expected an ensemble of at least two networks", got=len(members))
    parameter = next(members[0].parameters())
    modes = [member.training for member in members]
    frozen = [(p, p.requires_grad) for member in members for p in member.parameters()]
    for member in members:
        member.eval().requires_grad_(False)  # the gradient is that of the images alone
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
