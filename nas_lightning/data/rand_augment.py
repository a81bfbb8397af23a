"""RandAugment (Cubuk et al. 2020, arXiv:1909.13719) for whole batches of bytes.

Two operations a sample, drawn from fourteen, all of one magnitude. The samples that drew the same operation
go through it together: torchvision's functions take batches, and each sees a fourteenth of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import torch
from torch import Tensor

from nas_lightning.checks import at_least, at_most

LARGEST = 30
Magnitude = Annotated[int, at_least(0), at_most(LARGEST)]
ROUNDS = 2
"""N of the paper, operations that a sample goes through."""

# What each does at the share m of its largest magnitude, 0 ≤ m ≤ 1; s is −1 or 1.
Operation = Callable[[Tensor, float, int], Tensor]


def rand_augment(x: Tensor, drawn: Tensor, magnitude: int) -> Tensor:
    """(b, c, h, w) bytes → the same shape; `drawn` (b, 2 · rounds): an operation and a sign for each round.

    Args:
        x: images of one or three channels.
        drawn: operations from 0 to 13 and signs of 0 (negative) or 1, round after round.
        magnitude: M of the paper, from 0 to 30.
    """
    operations = list(_operations().values())
    for choice in drawn.view(len(x), -1, 2).unbind(1):  # (b, 2)
        x = x.clone()
        for operation, sign in choice.unique(dim=0).tolist():
            rows = (choice == choice.new_tensor([operation, sign])).all(1)
            x[rows] = operations[operation](x[rows], magnitude / LARGEST, 2 * sign - 1)
    return x


def draw(count: int, random: torch.Generator) -> list[Tensor]:
    """Columns (count,) for `rand_augment`: an operation and a sign for each round."""
    highs = (len(_operations()), 2) * ROUNDS
    return [torch.randint(high, (count,), generator=random) for high in highs]


def _operations() -> Mapping[str, Operation]:
    from torchvision.transforms.v2 import functional as F  # a second to import, which only this needs

    def affine(x: Tensor, shear: list[float] | None = None, shift: list[int] | None = None) -> Tensor:
        return F.affine(x, 0.0, shift or [0, 0], 1.0, shear or [0.0, 0.0], center=[0, 0])

    def angle(m: float, s: int) -> float:
        return float(torch.rad2deg(torch.atan(torch.tensor(0.3 * m * s))))

    return {
        "identity": lambda x, m, s: x,
        "shear_x": lambda x, m, s: affine(x, shear=[angle(m, s), 0.0]),
        "shear_y": lambda x, m, s: affine(x, shear=[0.0, angle(m, s)]),
        "translate_x": lambda x, m, s: affine(x, shift=[int(150 / 331 * x.shape[3] * m * s), 0]),
        "translate_y": lambda x, m, s: affine(x, shift=[0, int(150 / 331 * x.shape[2] * m * s)]),
        "rotate": lambda x, m, s: F.rotate(x, 30 * m * s),
        "brightness": lambda x, m, s: F.adjust_brightness(x, 1 + 0.9 * m * s),
        "color": lambda x, m, s: F.adjust_saturation(x, 1 + 0.9 * m * s),
        "contrast": lambda x, m, s: F.adjust_contrast(x, 1 + 0.9 * m * s),
        "sharpness": lambda x, m, s: F.adjust_sharpness(x, 1 + 0.9 * m * s),
        "posterize": lambda x, m, s: F.posterize(x, 8 - round(4 * m)),
        "solarize": lambda x, m, s: F.solarize(x, 255 * (1 - m)),
        "autocontrast": lambda x, m, s: F.autocontrast(x),
        "equalize": lambda x, m, s: F.equalize(x),
    }
