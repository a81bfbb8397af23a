"""Records of a forward pass: calls of layers, features, rectifier codes; and checks of networks."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Flag, auto
from functools import cache
from itertools import pairwise
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.utils._python_dispatch import TorchDispatchMode

from nas_lightning.data.batches import entries_of
from nas_lightning.errors import InputError, near_match
from nas_lightning.metrics.layers import BATCH_NORMS, IncompleteError, covers, mark_of, rules_of
from nas_lightning.spaces.depthwise import is_traced
from nas_lightning.spaces.fixed import check_callable
from nas_lightning.spaces.network import Network
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.tasks import MultiClass, Task
from nas_lightning.utils.devices import double

# What metrics need from the passes.


class Needs(Flag):
    """What a metric needs from the passes.

    >>> both = Needs.HESSIAN | Needs.FEATURES
    >>> Needs.FEATURES in both, Needs.OUTPUTS in both
    (True, False)
    """

    NOTHING = 0
    HESSIAN = auto()  # the gradient of the loss with its graph
    SALIENCY = auto()  # gradients of the loss in the layers' outputs
    RELU_CODES = auto()  # the number of units that agree on two samples
    RELU_PATTERNS = auto()  # which units are active
    OUTPUTS = auto()  # outputs of the layers
    FEATURES = auto()  # outputs of the blocks
    KERNEL = auto()  # the whole kernel, not only its diagonal


# Warnings, once per network, and errors.

TWICE = "Operations must be twice differentiable"


@cache
def warn_row_by_row(network: str, reason: str) -> None:
    """Warn that the kernel is not computed as a sum over layers."""
    warnings.warn(
        f"the kernel of {network} is computed row by row, one backward pass a sample: {reason}", stacklevel=2
    )


@cache
def warn_zero_last_layer(network: str, layer: str) -> None:
    """Warn that the last layer is zero, so that no gradient passes it."""
    warnings.warn(
        f"all weights of the last layer of {network}, {layer!r}, are zero, so only its gradients are not: "
        "call `initialize(network)`",
        stacklevel=2,
    )


def explain(error: BaseException | None) -> InputError | None:
    """Translate errors of torch that are about the network; None for any other.

    >>> str(explain(RuntimeError("derivative for aten::_pdist_backward is not implemented")))
    "Operations must be twice differentiable, got 'aten::_pdist_backward'"
    """
    text = str(error) if isinstance(error, RuntimeError) else ""
    if "use_reentrant=True" in text:
        expected = "Checkpointing must have use_reentrant=False, to compute gradients"
        return InputError(expected, got=True)
    if text.startswith("derivative for ") and text.endswith(" is not implemented"):
        return InputError(TWICE, got=text.split()[2])
    return None


# Outputs of networks.

LOGITS = ("logits", "out", "output", "prediction", "y_hat")


def logits_of(output: Any) -> Tensor:
    """Return the logits: a tensor, the entry or field named in `LOGITS`, or the first of a tuple.

    GoogLeNet of torchvision returns auxiliary heads after the logits, its segmentation networks `out`, and
    transformers `logits`.

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
    expected = f"The network must return logits, alone, first, or named {', '.join(LOGITS)}"
    raise InputError(expected, got=", ".join(map(str, entries)) or type(output).__name__)


# Checks of networks, batches, logits, and labels.


def trained_parameters(network: nn.Module) -> list[nn.Parameter]:
    """Return the trainable parameters; raise if there are none or the network cannot be called."""
    check_callable(network)
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    if not parameters:
        raise InputError("The network must have parameters to train", got=type(network).__name__)
    return parameters


def is_of_space(network: nn.Module) -> bool:
    """Return whether the network is, or contains, a network of one of our spaces."""
    return any(isinstance(module, (Network, Supernet)) for module in network.modules())


def check_batch(x: Tensor, labels: Tensor) -> None:
    """Raise unless there are at least two samples and equally many labels."""
    if len(x) < 2 or len(labels) != len(x):
        got = f"{tuple(x.shape)} and {tuple(labels.shape)}"
        raise InputError("The batch must have at least two samples, inputs (m, …) and labels (m,)", got=got)


def check_logits(logits: Tensor, task: Task, samples: int) -> None:
    """Raise unless the logits are (m, outputs), or (m, outputs, h, w) for dense tasks."""
    shape = "(m, classes, h, w)" if task.dense else "(m, classes)"
    if logits.dim() != (4 if task.dense else 2) or len(logits) != samples:
        raise InputError(f"The logits of the network must have shape {shape}", got=tuple(logits.shape))


def labels_for(task: Task, labels: Tensor, logits: Tensor) -> Tensor:
    """Return the labels in the form that the task's loss takes.

    >>> labels_for(MultiClass(), torch.eye(3), torch.zeros(3, 3))
    tensor([0, 1, 2])
    """
    given = task.targets(labels) if isinstance(task, MultiClass) else labels
    task.check(given, logits.shape[1], "")
    return given


def is_constant(rows: Tensor) -> bool:
    """Return whether all samples of (m, …) are equal up to rounding.

    >>> is_constant(torch.ones(2, 3)), is_constant(torch.eye(2))
    (True, False)
    """
    spread = (rows - rows[0]).abs().max()
    return bool(spread <= rows.abs().max() * 8 * torch.finfo(rows.dtype).eps)


# The calls of layers with parameters, and the gradients of their outputs.

Listener = Callable[["Call", Tensor], None]


@dataclass(eq=False)
class Call:
    """One call of a layer.

    Args:
        layer: the module.
        name: name of the module in its network.
        input: the input, (m, …).
        output: the output, None if outputs are not kept.
        version: version counter of the output, which counts changes in place.
        plain: whether one tensor goes in and one comes out.
        trained: names and values of the layer's own trainable parameters.
        mark: checksum of the output for layers that compute it again.
    """

    layer: nn.Module
    name: str
    input: Tensor
    output: Tensor | None
    version: int
    plain: bool
    trained: Sequence[tuple[str, nn.Parameter]]
    mark: Tensor | None

    def saved_output(self) -> Tensor:
        """Return the output, computed again if it was changed in place."""
        assert self.output is not None
        if self.output._version == self.version:
            return self.output
        with torch.no_grad():
            return self.layer(self.input)

    def is_silent(self) -> bool:
        """Return whether all weights are zero, as in the last layers of some networks."""
        weights = [p for p in self.layer.parameters(recurse=False) if p.dim() > 1]
        return self.plain and bool(weights) and not any(bool(weight.any()) for weight in weights)


class Calls:
    """Records the calls of one forward pass in order.

    Args:
        network: the network.
        x: the batch, (m, …).
        keep_outputs: whether to keep outputs.
    """

    def __init__(self, network: nn.Module, x: Tensor, *, keep_outputs: bool = False) -> None:
        self.network, self.batch, self.keep_outputs = network, len(x), keep_outputs
        self.all: list[Call] = []
        # backward passes end in these: every call lies on a path to one of them
        self._starts = [x] if x.requires_grad else []
        self._listener: Listener | None = None

    @property
    def parametric_calls(self) -> list[Call]:
        """The calls of layers with trainable parameters."""
        return [call for call in self.all if call.trained]

    def record(self, forward: Callable[[], Tensor]) -> Tensor:
        """Run the forward pass and record the calls of layers with a rule."""
        handles = []
        for name, module in self.network.named_modules():
            if covers(module):
                handles.append(module.register_forward_pre_hook(self._start, with_kwargs=True))
                # first, since other hooks may replace the output
                handles.append(module.register_forward_hook(self._hook(name), prepend=True, with_kwargs=True))
        try:
            return forward()
        finally:
            for handle in handles:
                handle.remove()

    def _start(self, layer: nn.Module, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        given = _tensors(args, kwargs)
        if not given or given[0].requires_grad or is_traced():
            return args, kwargs
        if not given[0].is_floating_point():  # token ids: the path ends in the embedding
            self._starts += [parameter for parameter in layer.parameters() if parameter.requires_grad]
            return args, kwargs
        start = given[0].detach().requires_grad_()
        self._starts.append(start)
        return (
            tuple(start if value is given[0] else value for value in args),
            {name: start if value is given[0] else value for name, value in kwargs.items()},
        )

    def _hook(self, name: str) -> Callable[[nn.Module, Args, Kwargs, Any], None]:
        def note(layer: nn.Module, args: Args, kwargs: Kwargs, output: Any) -> None:
            if is_traced():  # hooks see no gradients in transforms of torch.func
                return
            given, trained, rules = _tensors(args, kwargs), _trained(layer), rules_of(layer)
            plain = len(given) == 1 and isinstance(output, Tensor)
            if not plain:
                nothing = torch.empty(0), None, 0
                self.all.append(Call(layer, name, *nothing, plain=False, trained=trained, mark=None))
                return
            kept = output.detach() if self.keep_outputs and rules else None
            mark = None if all(name in rules for name, _ in trained) else mark_of(output)
            where = name or "the network itself"
            seen = given[0].detach(), kept, output._version
            call = Call(layer, where, *seen, plain=True, trained=trained, mark=mark)
            self.all.append(call)
            if output.requires_grad:  # the hook stays with this value when it is changed in place
                output.register_hook(lambda gradient: self._note_gradient(call, gradient))

        return note

    def _note_gradient(self, call: Call, gradient: Tensor) -> None:
        if self._listener is not None:
            self._listener(call, gradient.detach())

    @contextmanager
    def listen(self, listener: Listener) -> Iterator[None]:
        """Call `listener` with the output gradients of backward passes in the context."""
        self._listener = listener
        try:
            yield
        finally:
            self._listener = None

    def backward(self, logits: Tensor, cotangent: Tensor, listener: Listener) -> None:
        """Run a backward pass through the activations only, without gradients of parameters."""
        with self.listen(listener):
            torch.autograd.grad(logits, self._starts, cotangent, retain_graph=True, allow_unused=True)

    def check_complete(self, logits: Tensor) -> None:
        """Raise unless every use of a trainable parameter in the graph is a recorded call."""
        recorded = Counter(id(parameter) for call in self.parametric_calls for _, parameter in call.trained)
        uses = uses_of(logits)
        for name, module in self.network.named_modules():
            for key, parameter in module.named_parameters(recurse=False):
                if uses[id(parameter)] > recorded[id(parameter)]:
                    where = f"{type(module).__name__} {name!r}"
                    raise IncompleteError(f"{key} of {where} is used outside a layer's own call")
        for call in self.parametric_calls:
            where = f"{type(call.layer).__name__} {call.name!r}"
            if not call.plain:
                raise IncompleteError(f"{where} takes or returns more than one tensor")
            if len(call.input) != self.batch:
                raise IncompleteError(f"{where} sees {len(call.input)} samples of {self.batch}")


Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


def _tensors(args: Args, kwargs: Kwargs) -> list[Tensor]:
    return [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]


def _trained(layer: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return a layer's own trainable parameters; tensors that replace one during a call do not count."""
    own = layer.named_parameters(recurse=False)
    return [(name, p) for name, p in own if isinstance(p, nn.Parameter) and p.requires_grad]


def uses_of(logits: Tensor) -> Counter[int]:
    """Count the uses of each leaf in the graph, by id."""
    parents = (parent for node in nodes_of(logits) for parent, _ in node.next_functions)
    leaves = (getattr(parent, "variable", None) for parent in parents)  # only leaves have one
    return Counter(id(leaf) for leaf in leaves if leaf is not None)


def nodes_of(value: Tensor) -> Iterator[Node]:
    """Yield the nodes of the graph, each once."""
    seen, stack = set(), [value.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            stack.extend(parent for parent, _ in node.next_functions)


# The blocks of a network, whose outputs are its features: the elements of its outermost lists of modules
# (`nn.ModuleList`, and `nn.Sequential` of modules with children), and the children next to such lists. For
# our networks these are the stem and the cells, for ResNets the layers of the stem and the residual blocks.


def blocks(network: nn.Module) -> list[nn.Module]:
    """Return the blocks in order of registration, without modules such as activations.

    >>> network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    >>> [type(block).__name__ for block in blocks(network)]
    ['Conv2d', 'Linear']
    """
    return [block for block in _parts(network) if _has(block.parameters()) or _has(block.children())]


def _parts(module: nn.Module, *, of_list: bool = False) -> Iterator[nn.Module]:
    for child in module.children():
        if _is_list(child):
            yield from _parts(child, of_list=True)
        elif not of_list and any(map(_is_list, child.children())):
            yield from _parts(child)
        else:
            yield child


def _is_list(module: nn.Module) -> bool:
    if isinstance(module, nn.Sequential):
        return all(_has(part.children()) for part in module)
    return isinstance(module, nn.ModuleList)


def _has(items: Iterator[object]) -> bool:
    return any(True for _ in items)


class Features:
    """Records the outputs of the blocks in one forward pass.

    Args:
        network: the network.
        samples: batch size.
    """

    def __init__(self, network: nn.Module, samples: int) -> None:
        self.network, self.samples = network, samples
        self.all: list[Tensor] = []

    def __enter__(self) -> Features:
        self._handles = [block.register_forward_hook(self._note) for block in blocks(self.network)]
        return self

    def __exit__(self, *exception: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _note(self, block: nn.Module, args: object, output: object) -> None:
        if isinstance(output, Tensor) and output.dim() > 1 and len(output) == self.samples:
            self.all.append(output)

    def before(self, logits: Tensor) -> list[Tensor]:
        """Return the outputs except the logits."""
        return [output for output in self.all if output is not logits]


def spectral_entropy(features: Tensor) -> Tensor:
    """Return the entropy of the normalized spectrum of the channels' covariance, of (m, c, …).

    >>> spectral_entropy(torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])).exp()
    tensor(2., dtype=torch.float64)
    """
    rows = features.detach().movedim(1, -1).flatten(0, -2)  # (m · positions, c)
    rows = rows - rows.mean(dim=0)
    values = torch.linalg.eigvalsh(double(rows.T @ rows)).clamp(min=0)
    shares = values / values.sum()
    return torch.special.entr(shares).sum()


# A check that samples are independent, which the layerwise kernel assumes.

_PROBE = 2


def check_independence(network: nn.Module, x: Tensor, logits: Tensor, calls: Calls) -> None:
    """Raise unless samples are independent of each other, apart from batch statistics.

    Two samples alone must call the same layers, and their logits must not depend on others. Batch norms have
    fixed statistics here. The networks of our spaces pass without a check.
    """
    if isinstance(network, Network):
        return
    norms = [module for module in network.modules() if _uses_batch(module)]
    few = x[: min(_PROBE, len(x) - 1)].detach()
    alone = Calls(network, few)
    with _fixed_statistics(norms), torch.enable_grad():
        try:
            alone.record(lambda: logits_of(network(few)))
        except Exception as error:  # custom networks raise all kinds
            raise IncompleteError(f"it does not take {len(few)} of {len(x)} samples") from error
        if norms:
            calls = Calls(network, x)
            logits = calls.record(lambda: logits_of(network(x)))
        mixed = _see_others(calls, logits, len(few))  # in this context: checkpoints recompute the pass
    if [call.layer for call in alone.parametric_calls] != [call.layer for call in calls.parametric_calls]:
        raise IncompleteError("other layers are called for other batches")
    for call in alone.parametric_calls:
        if len(call.input) != len(few):
            where = f"{type(call.layer).__name__} {call.name!r}"
            raise IncompleteError(f"samples are not the first axis in {where}")
    if mixed:
        raise IncompleteError("samples are mixed")


def _see_others(calls: Calls, logits: Tensor, few: int) -> bool:
    """Return whether the first samples' logits depend on a layer's output for other samples."""
    cotangent = torch.zeros_like(logits)
    own = cotangent[:few]  # cotangents that no softmax sums to a constant
    own.copy_(torch.arange(own.numel()).cos().view_as(own))
    others: list[bool] = []

    def listener(call: Call, gradient: Tensor) -> None:
        others.append(bool(call.trained) and bool(gradient[few:].any()))

    calls.backward(logits, cotangent, listener)
    return any(others)


def _uses_batch(module: nn.Module) -> bool:
    return isinstance(module, BATCH_NORMS) and (module.training or module.running_mean is None)


@contextmanager
def _fixed_statistics(norms: Sequence[Any]) -> Iterator[None]:
    """Set batch norms to evaluation mode, with mean 0 and variance 1 if they have no statistics."""
    kept = [(norm, norm.training, norm.running_mean, norm.running_var) for norm in norms]
    try:
        for norm in norms:
            norm.training = False
            if norm.running_mean is None:
                like = next(norm.parameters(), torch.zeros(()))
                norm.running_mean, norm.running_var = (
                    like.new_zeros(norm.num_features),
                    like.new_ones(norm.num_features),
                )
        yield
    finally:
        for norm, training, mean, variance in kept:
            norm.training, norm.running_mean, norm.running_var = training, mean, variance


# Codes of rectified units.

Breaks = Callable[..., tuple[float, ...]]


def _at_zero(*options: Any, **named: Any) -> tuple[float, ...]:
    return (0.0,)


def _range(low: float = -1.0, high: float = 1.0) -> tuple[float, ...]:
    return (low, high)


def _clamp(min: Any = None, max: Any = None) -> tuple[float, ...]:
    if min != 0:  # a lower bound, not a rectifier
        return ()
    return (0.0,) if max is None else (0.0, max)


BREAKS: Mapping[str, Breaks] = {
    **dict.fromkeys(("relu", "leaky_relu", "_prelu_kernel", "rrelu_with_noise", "elu", "celu"), _at_zero),
    **dict.fromkeys(("gelu", "silu", "mish"), _at_zero),  # smooth gates that open at 0
    **dict.fromkeys(("hardswish", "hardsigmoid"), lambda: (-3.0, 3.0)),
    **dict.fromkeys(("softshrink", "hardshrink"), lambda size=0.5: (-size, size)),
    "hardtanh": _range,  # ReLU6, too
    "threshold": lambda threshold, value: (threshold,),
    "clamp": _clamp,
    "clamp_min": _clamp,
}
"""The points between the pieces of an activation, by its name in PyTorch, as functions of its options."""


class RectifierCodes(TorchDispatchMode):
    """Records every rectification, by modules or functions: its patterns, and the sum of their kernels.

    Two samples agree on a unit if they lie in the same piece of its activation, see `BREAKS`.

    Args:
        samples: batch size.
        needs: whether to record patterns, the kernel, or both.
    """

    def __init__(self, samples: int, needs: Needs) -> None:
        super().__init__()
        self.samples, self.needs = samples, needs
        self.units = 0
        self.kernel = torch.zeros(samples, samples, dtype=torch.float64)
        self.patterns: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        find_breaks = BREAKS.get(name) or BREAKS.get(name.removesuffix("_"))  # in place
        if find_breaks is not None and args[0].dim() > 1 and len(args[0]) == self.samples:
            breaks = find_breaks(*args[1:], **(kwargs or {}))
            above = [(args[0].detach() > point).flatten(1) for point in breaks]  # (m, units) each
            if above:
                self._note(above)
        return func(*args, **(kwargs or {}))

    def _note(self, above: list[Tensor]) -> None:
        self.units += above[0].shape[1]
        if Needs.RELU_PATTERNS in self.needs:
            self.patterns += above
        if Needs.RELU_CODES in self.needs:
            # K = Σ_p c_p c_pᵀ, c_p the units in piece p: above its begin and not above its end
            everything, nothing = torch.ones_like(above[0]), torch.zeros_like(above[0])
            for begun, ended in pairwise([everything, *above, nothing]):
                inside = (begun & ~ended).float()
                self.kernel += double(inside @ inside.T).cpu()


# Initializations that training-free metrics are defined for.

Scheme = Literal["lecun", "kaiming", "xavier", "default"]

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def initialize(
    network: nn.Module, scheme: Scheme = "lecun", generator: torch.Generator | None = None
) -> None:
    """Initialize linear layers and convolutions; batch norms get scale 1 and shift 0.

    - `lecun`: N(0, 1/fan_in), biases 0 (NASI, arXiv:2109.00817, section 3.1; thesis, section 7.6.5)
    - `kaiming`: N(0, 2/fan_in), biases 0 (He et al. 2015, arXiv:1502.01852)
    - `xavier`: N(0, 2/(fan_in + fan_out)), biases 0 (Glorot & Bengio 2010)
    - `default`: PyTorch's, U(±1/√fan_in), also for biases

    Parameters of other layers are unchanged.
    """
    if scheme not in get_args(Scheme):
        raise InputError(f"Unknown scheme ({near_match(scheme, get_args(Scheme))})", got=scheme)
    draw = _SCHEMES[scheme]
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, LAYERS):
                fan_in = module.weight[0].numel()
                fan_out = module.weight.numel() // fan_in * math.prod(module.weight.shape[2:])
                module.weight.copy_(draw(module.weight, fan_in, fan_out, generator))
                if module.bias is not None:
                    module.bias.zero_()
                    if scheme == "default":
                        module.bias.copy_(draw(module.bias, fan_in, fan_out, generator))
            elif isinstance(module, BATCH_NORMS):
                module.reset_parameters()


WeightRule = Callable[[Tensor, int, int, torch.Generator | None], Tensor]


def _normal(variance: Callable[[int, int], float]) -> WeightRule:
    def draw(like: Tensor, fan_in: int, fan_out: int, generator: torch.Generator | None) -> Tensor:
        return torch.randn(like.shape, generator=generator, dtype=like.dtype) * math.sqrt(
            variance(fan_in, fan_out)
        )

    return draw


def _uniform(like: Tensor, fan_in: int, fan_out: int, generator: torch.Generator | None) -> Tensor:
    return (2 * torch.rand(like.shape, generator=generator, dtype=like.dtype) - 1) / math.sqrt(fan_in)


_SCHEMES: dict[str, WeightRule] = {
    "lecun": _normal(lambda fan_in, fan_out: 1 / fan_in),
    "kaiming": _normal(lambda fan_in, fan_out: 2 / fan_in),
    "xavier": _normal(lambda fan_in, fan_out: 2 / (fan_in + fan_out)),
    "default": _uniform,
}
