"""What networks return, besides a tensor of logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from nas_lightning.errors import InputError

LOGITS = ("logits", "out", "output", "prediction", "y_hat")


def logits_of(output: Any) -> Tensor:
    """The logits of a network's output: itself, the entry of that name, or the first of several.

    Auxiliary heads come behind the first (torchvision's GoogLeNet), segmentations as `out`, outputs of
    transformers as `logits`.

    >>> import torch
    >>> logits_of({"loss": torch.ones(()), "logits": torch.zeros(2, 3)}).shape
    torch.Size([2, 3])
    """
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        names = [name for name in LOGITS if name in output]
        if names:
            return logits_of(output[names[0]])
        output = list(output.values())
    if isinstance(output, (tuple, list)) and output:
        return logits_of(output[0])
    expected = f"expected logits from the network, alone, first, or named {', '.join(LOGITS)}"
    raise InputError(expected, got=type(output).__name__)
