"""Scores and short training runs in float32, whatever the trainer's precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def single_precision(device: torch.device) -> Iterator[None]:
    """Lightning's precision left aside, so that other processes come to the same scores."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_default_dtype(before)
