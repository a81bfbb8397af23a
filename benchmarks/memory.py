"""Memory of a forward pass that waits for its backward: the storages that autograd keeps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


def saved_bytes(forward: Callable[[], Tensor]) -> int:
    """Bytes of the distinct storages saved for the backward pass, parameters included."""
    storages: dict[int, int] = {}
    kept: list[Tensor] = []  # so that no storage is freed and its address used again

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        kept.append(tensor)
        return tensor

    with torch.enable_grad(), saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = forward()
    del loss
    return sum(storages.values())
