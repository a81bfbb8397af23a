"""What networks return, besides a tensor of logits."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from nas_lightning.data.batches import entries_of
from nas_lightning.errors import InputError

LOGITS = ("logits", "out", "output", "prediction", "y_hat")


def logits_of(output: Any) -> Tensor:
    """The logits of a network's output: itself, the entry or field of that name, or the first of a tuple.

    Auxiliary heads come behind the first (torchvision's GoogLeNet), segmentations as `out`, outputs of
    transformers as `logits`. Of several entries that are called otherwise none is taken.

    >>> import torch
    >>> logits_of({"loss": torch.ones(()), "logits": torch.zeros(2, 3)}).shape
    torch.Size([2, 3])
    """
    if isinstance(output, Tensor):
        return output
    entries = {name: value for name, value in (entries_of(output) or {}).items() if value is not None}
    names = [name for name in LOGITS if name in entries] or ([*entries] if len(entries) == 1 else [])
    if names:
        return logits_of(entries[names[0]])
    if isinstance(output, (tuple, list)) and output:
        return logits_of(output[0])
    expected = f"expected logits from the network, alone, first, or named {', '.join(LOGITS)}"
    raise InputError(expected, got=", ".join(map(str, entries)) or type(output).__name__)
