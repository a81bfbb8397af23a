"""Mixed images: Mixup (arXiv:1710.09412) and CutMix (arXiv:1905.04899), as timm does them.

>>> import torch
>>> mix = build_mixing(0.2, 1.0, num_classes=5)
>>> x, target = mix(torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 3]))
>>> x.shape, target.shape
(torch.Size([4, 3, 8, 8]), torch.Size([4, 5]))
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from nas_lightning.checks import NonNegativeFloat, checked
from nas_lightning.errors import InputError

Mix = Callable[[Tensor, Tensor], list[Tensor]]


@checked
def build_mixing(mixup: NonNegativeFloat, cutmix: NonNegativeFloat, num_classes: int) -> Mix:
    """(b, c, h, w) images and (b,) labels → mixed images and (b, classes) targets; b must be even."""
    from timm.data import Mixup  # a second to import, which only recipes that mix need

    mix = Mixup(mixup, cutmix, label_smoothing=0.0, num_classes=num_classes)  # the loss smooths labels

    def mix_batch(x: Tensor, y: Tensor) -> list[Tensor]:
        if len(x) % 2:
            raise InputError("expected an even dataset.batch_size to mix images", got=len(x))
        return list(mix(x.clone(), y))  # timm mixes in place, and the loader may hand the batch out again

    return mix_batch
