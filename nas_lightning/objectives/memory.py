"""Memory of training and inference, computed from shapes on the meta device."""

from __future__ import annotations

import copy
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

N = TypeVar("N", bound=nn.Module)
_TRAINING = 5
"""Position of `training` in the arguments of a batch norm."""


class Memory(NamedTuple):
    """Bytes that a training step needs, without those of the libraries."""

    activations: int
    """Tensors saved for the backward pass, images included."""
    weights: int
    """Parameters and buffers, and the copies of optimizer and running average."""
    gradients: int
    """Gradients of the parameters."""

    @property
    def total(self) -> int:
        """The peak: gradients do not exist before activations are freed."""
        return self.weights + max(self.activations, self.gradients)


def training_memory(
    network: N,
    forward: Callable[[N, Tensor], object],
    images: tuple[int, ...],
    *,
    copies: float,
    dtype: torch.dtype | None = None,
) -> Memory:
    """Return the memory of `forward(network, x)` and its backward pass, for images of (b, c, h, w).

    Args:
        network: on any device; it is not run.
        forward: the forward pass of training; all its results are differentiated.
        images: shape of a batch.
        copies: number of tensors per parameter that the optimizer keeps, such as momentum.
        dtype: data type of mixed precision. Default: that of the parameters.
    """
    shadow = copy.deepcopy(network).to("meta").train()
    parameters = list(shadow.parameters())
    size = sum(_bytes(p) for p in parameters)
    state = size + sum(_bytes(buffer) for buffer in shadow.buffers())
    shadow.to(dtype)
    x = torch.empty(images, device="meta", dtype=next(shadow.parameters()).dtype)
    own = [*shadow.parameters(), *shadow.buffers(), x]
    kept = bytes_for_backward(lambda: forward(shadow, x), without=own) + _bytes(x)
    return Memory(kept, state + round(copies * size), size)


def bytes_for_backward(forward: Callable[[], object], without: Iterable[Tensor] = ()) -> int:
    """Return the bytes that autograd saves during `forward`; shared memory counts once.

    >>> x = torch.ones(10, requires_grad=True)
    >>> bytes_for_backward(lambda: x.exp().sum())  # whose derivative is itself: ten floats
    40
    """
    own = {id(tensor.untyped_storage()) for tensor in without}
    kept: dict[int, torch.UntypedStorage] = {}  # they stay alive, so that no id comes twice

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[id(storage)] = storage
        return tensor.detach()

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        forward()
    return sum(storage.nbytes() for key, storage in kept.items() if key not in own)


def inference_memory(network: nn.Module, x: Tensor) -> int:
    """Return the peak bytes of a forward pass of x (b, c, h, w): weights, x, and live activations.

    >>> network = nn.Sequential(nn.Conv2d(1, 2, 1, bias=False), nn.Conv2d(2, 1, 1, bias=False))
    >>> inference_memory(network, torch.zeros(1, 1, 4, 4))  # 4 weights, 16 + 32 + 16 values
    272
    """
    with LiveTensors() as live, torch.no_grad():
        network.eval()(x)
    return _held_throughout(network, x) + live.peak


def memory_and_macs(network: nn.Module, x: Tensor) -> tuple[int, int]:
    """Return `inference_memory` and `count_macs` from one forward pass.

    >>> memory_and_macs(nn.Conv2d(1, 2, 1, bias=False), torch.zeros(1, 1, 4, 4))
    (200, 32)
    """
    with LiveTensors() as live, FlopCounterMode(display=False) as counter, torch.no_grad():
        network.eval()(x)
    return _held_throughout(network, x) + live.peak, counter.get_total_flops() // 2


def _held_throughout(network: nn.Module, x: Tensor) -> int:
    return sum(_bytes(tensor) for tensor in (*network.parameters(), *network.buffers(), x))


class LiveTensors(TorchDispatchMode):
    """Counts the bytes of live tensors that operations return.

    >>> with LiveTensors() as live:
    ...     total = (torch.ones(8) + 1).sum()  # 8 and 8 floats at once
    >>> live.peak
    64
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.holders: Counter[int] = Counter()  # of each storage: views share theirs

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = list(_tensors((args, kwargs)))
        before = {id(tensor) for tensor in given}
        storages = {id(tensor.untyped_storage()) for tensor in given}
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result[:1] if _is_norm_by_stored_statistics(func, args) else result):
            if id(tensor) not in before:
                self._hold(tensor, storages)
        self.peak = max(self.peak, self.now)
        return result

    def _hold(self, tensor: Tensor, given: Collection[int]) -> None:
        storage = tensor.untyped_storage()
        key, size = id(storage), storage.nbytes()
        if key in given and not self.holders[key]:
            return  # a view of an older tensor
        self.now += 0 if self.holders[key] else size
        self.holders[key] += 1
        weakref.finalize(tensor, self._release, key, size)

    def _release(self, key: int, size: int) -> None:
        self.holders[key] -= 1
        self.now -= 0 if self.holders[key] else size


def _is_norm_by_stored_statistics(func: Any, args: Sequence[Any]) -> bool:
    """Return whether results 2 and 3 are empty, which on the meta device have the size of the channels."""
    aten = torch.ops.aten
    is_either = func is aten.native_batch_norm.default and not args[_TRAINING]
    return is_either or func is aten._native_batch_norm_legit_no_training.default


def _tensors(tree: Any) -> Iterator[Tensor]:
    """The tensors in nested lists, tuples, and dictionaries."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (list, tuple, dict)):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from _tensors(part)


def optimizer_copies(build: Callable[[list[nn.Parameter]], Optimizer]) -> float:
    """Return how many tensors of a parameter's size an optimizer keeps for it.

    >>> optimizer_copies(torch.optim.Adam), optimizer_copies(torch.optim.SGD)
    (2.0, 0.0)
    """
    parameter = nn.Parameter(torch.zeros(8, 8))
    parameter.grad = torch.ones_like(parameter)
    optimizer = build([parameter])
    optimizer.step()
    states = [s for s in optimizer.state[parameter].values() if isinstance(s, Tensor) and s.ndim]
    return sum(s.numel() for s in states) / parameter.numel()


def free_memory(device: torch.device) -> int | None:
    """Return the bytes still available to this process, its reserve included; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    table = Path("/proc/meminfo")
    if device.type != "cpu" or not table.is_file():
        return None
    lines = dict(line.split(":") for line in table.read_text(encoding="utf-8").splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024  # in kB


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
