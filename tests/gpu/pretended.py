"""A pretended GPU: tensors say `cuda:0` or `mps:0`, compute on the CPU, and raise where the device raises.

    with pretended_gpu() as log:
        net.to("cuda")(images.to("cuda")).sum().item()
    log.waits        # Counter({"item": 1}): what the host waited for
    log.host_work    # Counter(): convolutions and matrix products that ran on the host

It raises for tensors of two devices in one operation, for a CPU generator or a CPU tensor in a collective
(NCCL), for `.numpy()`, and on MPS for float64. The device has a random number generator of its own.

How it works. A tensor subclass holds a CPU tensor. C++ is told that the device is `lazy:0`: autograd would
ask a driver about `cuda:0`, but runs an unknown device's backward pass on the calling thread. A dispatch mode
sees every operation below autograd and runs it on the held tensors. A function mode renames `cuda` to
`lazy` in the arguments of calls, and casts what autocast would cast, since C++ autocast looks at the device.

Some of torch's private details appear below, which only tests may use: which operations are composite (they
are decomposed, as the real device would), and the types that `foreach` optimizers accept. Everything that is
replaced is restored at the end.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any, Literal
from unittest import mock

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from tests.gpu.sync_batch_norm import OPERATIONS

Kind = Literal["cuda", "mps"]
aten = torch.ops.aten
LAZY = torch.device("lazy", 0)
HEAVY = (
    *(aten.convolution.default, aten.convolution_backward.default),
    *(aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default),
)
COPIES = (aten._to_copy.default, aten.copy_.default)
INDEXING = (
    *(aten.index.Tensor, aten.index_put.default, aten.index_put_.default),
    *(aten._index_put_impl_.default, aten._unsafe_index.Tensor),
)
WAITING = ("nonzero", "masked_select", "unique", "equal", "repeat_interleave", "linalg_eig", "linalg_eigh")
WAITING += ("_linalg_eigh", "linalg_cholesky_ex", "_linalg_check_errors", "is_nonzero", "bincount", "histc")
UNORDERED = ("nll_loss2d_forward", "nll_loss2d_backward", "upsample_bilinear2d_backward", "histc", "put_")
UNORDERED += ("upsample_bicubic2d_backward", "_adaptive_avg_pool2d_backward", "adaptive_max_pool2d_backward")
UNORDERED += ("reflection_pad2d_backward", "grid_sampler_2d_backward", "scatter_reduce", "kthvalue")
FREE = ("detach", "alias", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")


@dataclass
class Log:
    """What happened on the device; each counter is by name, `sites` by (kind, name, line of the package)."""

    waits: Counter[str] = field(default_factory=Counter)  # of the host for the device
    uploads: Counter[str] = field(default_factory=Counter)  # copies from host memory
    operations: Counter[str] = field(default_factory=Counter)  # of the device, without views
    host_work: Counter[str] = field(default_factory=Counter)  # heavy operations on CPU tensors
    collectives: Counter[str] = field(default_factory=Counter)
    sites: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def add(self, kind: str, name: str) -> None:
        """Count an event and the line of the package that caused it."""
        getattr(self, kind)[name] += 1
        if kind != "operations":
            self.sites[kind, name, _line_of_package()] += 1

    def clear(self) -> None:
        """Forget everything."""
        for counter in vars(self).values():
            counter.clear()


def _line_of_package() -> str:
    frame = sys._getframe(2)
    while frame is not None:
        _, found, path = frame.f_code.co_filename.rpartition("/nas_lightning/")
        if found:
            return f"{path}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


class State:
    """The device of this process."""

    kind: Kind = "cuda"
    index = 0
    log = Log()
    random: Tensor  # state of the device's generator
    moving_objects = 0  # > 0 inside a collective of Python objects, which moves its own tensors


def is_on_device(device: Any) -> bool:
    """Return whether a name or device means the pretended one."""
    return device is not None and torch.device(device).type in (State.kind, "lazy")


class DeviceTensor(Tensor):
    """A tensor on the device; `held` has its values."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> DeviceTensor:
        tensor = Tensor._make_wrapper_subclass(
            cls, held.size(), strides=held.stride(), storage_offset=held.storage_offset(),
            dtype=held.dtype, layout=held.layout, device=LAZY,
        )  # fmt: skip
        tensor.held = held
        return tensor

    device = property(lambda self: torch.device(State.kind, State.index))
    is_cuda = property(lambda self: State.kind == "cuda")
    is_mps = property(lambda self: State.kind == "mps")
    is_cpu = property(lambda self: False)

    def get_device(self) -> int:
        return State.index

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"can't convert {State.kind}:0 device type tensor to numpy")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.numpy()

    def __repr__(self, *args: Any, **kwargs: Any) -> str:
        return f"{self.held!r} on {State.kind}:0"

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        new = DeviceTensor(self.held.detach().clone()).requires_grad_(self.requires_grad)
        if getattr(self, "_is_param", False):
            new._is_param = True
        memo[id(self)] = new
        return new

    def __reduce_ex__(self, protocol: Any) -> Any:  # files have the values; who loads them moves them
        held = self.held.detach()
        if getattr(self, "_is_param", False):
            held = nn.Parameter(held, self.requires_grad)
        return held.__reduce_ex__(protocol)

    @property
    def data(self) -> Tensor:
        return Tensor.data.__get__(self)

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, DeviceTensor):
            raise RuntimeError(f"a CPU tensor becomes the data of a tensor on {State.kind}")
        if (value.dtype, value.shape) != (self.dtype, self.shape):
            Tensor.data.__set__(self, value)
        self.held = value.held

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})


class Operations(TorchDispatchMode):
    """Sees every operation below autograd."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})


def unwrap(tree: Any) -> Any:
    """Return the held tensors."""
    return tree_map_only(Tensor, lambda x: x.held if isinstance(x, DeviceTensor) else x, tree)


def dispatch(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run one operation: check what the device would check, count, and compute on the CPU."""
    leaves = tree_leaves((args, kwargs))
    mine = [x for x in leaves if isinstance(x, DeviceTensor)]
    others = [x for x in leaves if isinstance(x, Tensor) and not isinstance(x, DeviceTensor)]
    to = kwargs.get("device")
    if func.namespace in ("c10d", "_c10d_functional"):
        return _collective(func, args, kwargs, mine, others)
    if not mine and not is_on_device(to):
        if func in HEAVY and others[0].device.type == "cpu":
            State.log.add("host_work", _name(func))
        return func(*args, **kwargs)
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
        with Operations():
            return func.decompose(*args, **kwargs)
    _check(func, args, kwargs, mine, others, leaves)
    if torch.are_deterministic_algorithms_enabled() and State.kind == "cuda" and _name(func) in UNORDERED:
        raise RuntimeError(f"{_name(func)} does not have a deterministic implementation")
    if func is aten._local_scalar_dense.default:
        State.log.add("waits", "item")
        return func(args[0].held)
    if func in COPIES:
        return _copy(func, args, kwargs)
    _count(func, args)
    plain = {name: value for name, value in kwargs.items() if name not in ("pin_memory", "non_blocking")}
    if is_on_device(to):
        plain["device"] = torch.device("cpu")
    random = torch.Tag.nondeterministic_seeded in func.tags and not _generators(leaves)
    with _device_random() if random else contextlib.nullcontext():
        out = OPERATIONS.get(func, func)(*unwrap(args), **unwrap(plain))
    if to is not None and not is_on_device(to):  # such as `empty_like(x, device="meta")`
        return out
    known = {id(x.held): x for x in mine}  # an operation in place returns the same object
    return tree_map_only(Tensor, lambda x: known.get(id(x)) if id(x) in known else DeviceTensor(x), out)


def _check(func: Any, args: Any, kwargs: Any, mine: Any, others: Any, leaves: Any) -> None:
    """Raise what the device raises."""
    to, name = kwargs.get("device"), _name(func)
    if State.kind == "mps":
        target = to if to is not None else LAZY if mine else None
        made = kwargs.get("dtype") if mine or is_on_device(target) else None
        moved = args[0].dtype if func is aten._to_copy.default and is_on_device(to) and made is None else None
        if {made, moved, *(x.dtype for x in mine)} & {torch.float64, torch.complex128}:
            raise TypeError(f"Cannot convert a MPS Tensor to float64 dtype ({name})")
    if _generators(leaves) and (to is None or is_on_device(to)):
        raise RuntimeError(f"Expected a '{State.kind}' device type for generator but found 'cpu' ({name})")
    if not mine or func in COPIES:
        return
    if func in INDEXING:  # CPU indices are copied; the indexed tensor and the values must agree
        values = args[2] if len(args) > 2 else None
        bad = not isinstance(args[0], DeviceTensor) or (
            values is not None and not isinstance(values, DeviceTensor) and values.dim() > 0
        )
    else:  # numbers that are CPU tensors may be arguments of pointwise operations
        mixes = torch.Tag.pointwise in func.tags or "_foreach" in name or "fill" in name
        bad = any(x.device.type != "meta" and (x.dim() > 0 or not mixes) for x in others)
    if bad:
        shapes = [tuple(x.shape) for x in others]
        found = f"{State.kind}:0 and cpu ({name} {shapes})"
        raise RuntimeError(f"Expected all tensors to be on the same device, but found {found}")


def _copy(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if func is aten.copy_.default:
        target, source = args[0], args[1]
        if isinstance(source, DeviceTensor) != isinstance(target, DeviceTensor):
            back = isinstance(source, DeviceTensor)
            State.log.add("waits" if back else "uploads", "copy to host" if back else "copy_")
        func(*unwrap(args), **kwargs)
        return target
    source, to = args[0], kwargs.get("device")
    stays = isinstance(source, DeviceTensor) if to is None else is_on_device(to)
    plain = {name: value for name, value in kwargs.items() if name in ("dtype", "layout", "memory_format")}
    if to is not None and torch.device(to).type == "meta":
        return func(unwrap(source), **plain, device=to)
    out = func(unwrap(source), **plain)
    if isinstance(source, DeviceTensor) and not stays:
        State.log.add("waits", "copy to host")
    elif stays and not isinstance(source, DeviceTensor):
        State.log.add("uploads", "to")
    else:
        State.log.add("operations", "_to_copy")
    return DeviceTensor(out) if stays else out


def _count(func: Any, args: Any) -> None:
    name = _name(func)
    masks = args[1] if func in INDEXING else ()
    if any(isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in masks):
        State.log.add("waits", "boolean index")
    elif name.removeprefix("_").rstrip("2") in WAITING or name in WAITING:
        State.log.add("waits", name)
    aliases = [result.alias_info for result in func._schema.returns]
    if name not in FREE and all(alias is None or alias.is_write for alias in aliases):
        State.log.add("operations", name)


def _name(func: Any) -> str:
    return func.name().removeprefix("aten::").partition(".")[0]


def _generators(leaves: Any) -> bool:
    return any(isinstance(x, torch.Generator) for x in leaves)


@contextlib.contextmanager
def _device_random() -> Iterator[None]:
    before = torch.get_rng_state()
    torch.set_rng_state(State.random)
    try:
        yield
    finally:
        State.random = torch.get_rng_state()
        torch.set_rng_state(before)


def _collective(func: Any, args: Any, kwargs: Any, mine: Any, others: Any) -> Any:
    """NCCL's rule: only tensors of the device."""
    name = func.name().partition("::")[2]
    if others and not mine and not State.moving_objects and "barrier" not in name:
        raise RuntimeError(f"No backend type associated with device type cpu ({name}) [nccl]")
    State.log.add("collectives", name)
    out = func(*unwrap(args), **unwrap(kwargs))
    known = {id(x.held): x for x in mine}
    return tree_map_only(Tensor, lambda x: known.get(id(x), x) if mine else x, out)


class Names(TorchFunctionMode):
    """Renames the device in calls, and casts as autocast does."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if _is_name(kwargs.get("device")):
            kwargs["device"] = LAZY
        if func in (Tensor.cuda, Tensor.mps) if hasattr(Tensor, "mps") else func is Tensor.cuda:
            func, args = Tensor.to, (args[0], LAZY)
        if func is Tensor.to:
            args = tuple(LAZY if _is_name(arg) else arg for arg in args)
        elif func in (torch.tensor, torch.as_tensor, torch.asarray, torch.scalar_tensor):
            if kwargs.get("device") == LAZY:
                return func(*args, **{**kwargs, "device": None}).to(LAZY)
        elif func is Tensor.new_tensor and isinstance(args[0], DeviceTensor):
            made = {"dtype": args[0].dtype, **kwargs}
            return torch.tensor(*args[1:], **{**made, "device": None}).to(kwargs.get("device", LAZY))
        elif func in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[0], DeviceTensor):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            placed = tuple(torch.tensor(i).long().to(LAZY) if isinstance(i, list) else i for i in index)
            args = (args[0], placed if isinstance(args[1], tuple) else placed[0], *args[2:])
        if torch.is_autocast_enabled(State.kind):
            to = torch.get_autocast_dtype(State.kind) if func in LOWER else torch.float32
            if func in LOWER or func in HIGHER:
                args, kwargs = (tree_map(lambda x: _cast(x, to), part) for part in (args, kwargs))
        return func(*args, **kwargs)


F = nn.functional
LOWER = {torch.conv1d, torch.conv2d, F.linear, torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.einsum}
LOWER |= {Tensor.matmul, Tensor.mm, Tensor.__matmul__, F.scaled_dot_product_attention}
HIGHER = {F.cross_entropy, F.nll_loss, F.mse_loss, F.l1_loss, F.layer_norm}
HIGHER |= {F.binary_cross_entropy_with_logits}
BOTH = ("softmax", "log_softmax", "exp", "log", "pow", "sum", "prod", "norm")
HIGHER |= {getattr(place, name) for name in BOTH for place in (torch, Tensor)}
HIGHER |= {F.softmax, F.log_softmax, torch.cumsum, Tensor.cumsum, torch.rsqrt, Tensor.__pow__}


def _cast(x: Any, to: torch.dtype) -> Any:
    eligible = isinstance(x, DeviceTensor) and x.is_floating_point() and x.dtype != torch.float64
    return x.to(to) if eligible else x


def _is_name(x: Any) -> bool:
    return (isinstance(x, torch.device) and x.type == State.kind) or (
        isinstance(x, str) and x.partition(":")[0] == State.kind
    )


class Stream:
    """A stream of a device that does everything at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def wait_stream(self, *args: Any) -> None:
        pass

    def synchronize(self) -> None:
        State.log.add("waits", "synchronize")

    def is_capturing(self) -> bool:
        return False

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *args: Any) -> None:
        pass


def _seed(seed: int) -> None:
    State.random = torch.Generator().manual_seed(int(seed) ^ 0x5EED).get_state()


def _replacements(devices: int) -> dict[Any, dict[str, Any]]:
    """What torch would ask the driver, by module."""
    size = 16 * 2**30
    synchronize = lambda device=None: State.log.add("waits", "synchronize")  # noqa: E731
    set_state = lambda state, device=None: setattr(State, "random", state.clone())  # noqa: E731
    properties = SimpleNamespace(name="Pretended GPU", major=8, minor=0, total_memory=size)
    memory = ("memory_reserved", "memory_allocated", "max_memory_allocated", "max_memory_reserved")
    random = {
        "manual_seed": _seed,
        "get_rng_state": lambda device=None: State.random.clone(),
        "set_rng_state": set_state,
        "synchronize": synchronize,
        "empty_cache": lambda: None,
    }
    cuda = random | {
        "_lazy_init": lambda: None,
        "is_available": lambda: State.kind == "cuda",
        "is_initialized": lambda: True,
        "device_count": lambda: devices if State.kind == "cuda" else 0,
        "current_device": lambda: State.index,
        "set_device": lambda device: None,
        "manual_seed_all": _seed,
        "get_rng_state_all": lambda: [State.random.clone()] * torch.cuda.device_count(),
        "set_rng_state_all": lambda states: [set_state(state) for state in states],
        "mem_get_info": lambda device=None: (size, size),
        "memory_stats": lambda device=None: {},
        "reset_peak_memory_stats": lambda device=None: None,
        "get_device_name": lambda device=None: "Pretended GPU",
        "get_device_capability": lambda device=None: (8, 0),
        "get_device_properties": lambda device=None: properties,
        "is_bf16_supported": lambda *args, **kwargs: True,
        "is_current_stream_capturing": lambda: False,
        "Stream": Stream,
        "stream": lambda stream: contextlib.nullcontext(),
        "current_stream": lambda device=None: Stream(),
        **dict.fromkeys(memory, lambda device=None: 0),
    }
    accelerator = {
        "is_available": lambda: True,
        "device_count": lambda: devices,
        "current_accelerator": lambda *args, **kwargs: torch.device(State.kind),
        "current_device_index": lambda: State.index,
        "current_stream": lambda device=None: Stream(),
        "set_device_index": lambda device: None,
        "synchronize": synchronize,
    }
    found = {torch.cuda: cuda, torch.accelerator: accelerator}
    if State.kind == "mps":
        from lightning_fabric.accelerators import mps as of_fabric
        from pytorch_lightning.accelerators import mps as of_trainer

        found[torch.mps] = random
        found[torch.backends.mps] = {"is_available": cache(lambda: True)}  # as torch's: it has `__wrapped__`
        for place in (of_fabric, of_trainer):  # it asks once, and keeps the answer
            found[place.MPSAccelerator] = {"is_available": lambda: True}
    return found


def _object_collectives() -> dict[Any, dict[str, Any]]:
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    def marked(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            State.moving_objects += 1
            try:
                return original(*args, **kwargs)
            finally:
                State.moving_objects -= 1

        return call

    names = ("all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list", "barrier")
    replaced = {name: marked(getattr(dist, name)) for name in names}
    return {dist: replaced, distributed_c10d: replaced}


@contextlib.contextmanager
def pretended_gpu(kind: Kind = "cuda", devices: int = 1, index: int = 0) -> Iterator[Log]:
    """Pretend that there are devices of a kind in this process; yield what happens on one of them.

    Args:
        kind: `cuda`, or `mps`, which has no float64.
        devices: number of devices that torch sees.
        index: the one that this process uses.
    """
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    swaps = torch.__future__.get_swap_module_params_on_conversion()
    with contextlib.ExitStack() as stack:
        State.kind, State.index, State.log = kind, index, Log()
        _seed(torch.initial_seed())
        for module, replaced in {**_replacements(devices), **_object_collectives()}.items():
            for name, value in replaced.items():
                stack.enter_context(mock.patch.object(module, name, value))
        for place in (optimizer, _foreach_utils):
            types = [*place._foreach_supported_types, DeviceTensor]
            stack.enter_context(mock.patch.object(place, "_foreach_supported_types", types))
        kinds = {"_get_foreach_kernels_supported_devices": lambda: ["cuda", "mps", "lazy"]}
        stack.enter_context(mock.patch.multiple(_foreach_utils, **kinds))
        # tensors of inference mode have no versions, which wrappers need
        grad_mode = lambda mode=True: torch.no_grad() if mode else contextlib.nullcontext()  # noqa: E731
        stack.enter_context(mock.patch.object(torch, "inference_mode", grad_mode))
        stack.enter_context(mock.patch.object(Tensor, "pin_memory", lambda self, device=None: self))
        # a module that moves keeps its parameters as the same objects, as on a real device
        torch.__future__.set_swap_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_swap_module_params_on_conversion, swaps)
        stack.enter_context(Operations())
        stack.enter_context(Names())
        yield State.log
