"""What NASI looks at in place of images and labels, if asked to (arXiv:2109.00817, sections 4.1 and 4.2)."""

from __future__ import annotations

from typing import Literal

import torch

from nas_lightning.data.batches import Batch

Labels = Literal["true", "random"]
Inputs = Literal["true", "gaussian"]


def replace_batch(
    batch: Batch,
    labels: Labels,
    inputs: Inputs,
    classes: int,
    random: torch.Generator,
    rank: int = 0,
    processes: int = 1,
) -> Batch:
    """Inputs and labels, true or drawn; every process draws for all of them and keeps its own part.

    >>> x, y = torch.zeros(2, 1), torch.tensor([0, 1])
    >>> replace_batch((x, y), "true", "true", 2, torch.Generator())[1] is y
    True
    """
    x, y = batch
    if inputs == "gaussian":
        x = torch.randn(processes, *x.shape, generator=random)[rank].to(x)
    if labels == "random":
        y = torch.randint(classes, (processes, *y.shape), generator=random)[rank].to(y)
    return x, y
