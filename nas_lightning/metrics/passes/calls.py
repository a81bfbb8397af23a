"""What a forward pass did: every call of a layer with parameters, and a way to see its output's gradient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd.graph import Node

from nas_lightning.metrics.passes.layers import IncompleteError, covers, mark_of, rules_of

Listener = Callable[["Call", Tensor], None]


@dataclass(eq=False)
class Call:
    """One call of a layer.

    Args:
        layer: the module.
        name: of the module in its network.
        input: what it was given: (m, …).
        output: what it returned; None where outputs are not kept.
        version: of the memory of `output`, which counts changes in place.
        plain: one tensor in, one tensor out.
        trained: the layer's own parameters that are trained, as they are in this call.
        mark: of the output, where the layer has to compute it again.
    """

    layer: nn.Module
    name: str
    input: Tensor
    output: Tensor | None  # kept on request
    version: int  # of the output's memory: counts changes in place
    plain: bool  # one tensor in, one tensor out
    trained: Sequence[tuple[str, nn.Parameter]]
    mark: Tensor | None

    def saved_output(self) -> Tensor:
        """What the layer returned, computed again where that was changed in place since."""
        assert self.output is not None
        if self.output._version == self.version:
            return self.output
        with torch.no_grad():
            return self.layer(self.input)

    def is_silent(self) -> bool:
        """Whether all weights are zero, as those that some networks' last layers begin with."""
        weights = [p for p in self.layer.parameters(recurse=False) if p.dim() > 1]
        return self.plain and bool(weights) and not any(bool(weight.any()) for weight in weights)


class Calls:
    """The calls of one forward pass on the batch `x`, in its order.

    Args:
        network: whose layers are watched.
        x: the batch: (m, …).
        keep_outputs: whether the outputs are kept, too.
        for_inputs: a context for backward passes in which no parameter's gradient is wanted.
    """

    def __init__(
        self,
        network: nn.Module,
        x: Tensor,
        *,
        keep_outputs: bool = False,
        for_inputs: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.network, self.batch, self.keep_outputs = network, len(x), keep_outputs
        self._for_inputs = for_inputs
        self.all: list[Call] = []
        # Backward passes end in these: every call lies on a way to one of them.
        self._starts = [x] if x.requires_grad else []
        self._listener: Listener | None = None

    @property
    def parametric_calls(self) -> list[Call]:
        """Those of layers that have something to train."""
        return [call for call in self.all if call.trained]

    def record(self, forward: Callable[[], Tensor]) -> Tensor:
        """Run the forward pass and note the calls of the layers that have a rule."""
        handles = []
        for name, module in self.network.named_modules():
            if covers(module):
                handles.append(module.register_forward_pre_hook(self._start, with_kwargs=True))
                # the others' hooks may make something else of what the layer returned
                handles.append(module.register_forward_hook(self._hook(name), prepend=True, with_kwargs=True))
        try:
            return forward()
        finally:
            for handle in handles:
                handle.remove()

    def _start(self, layer: nn.Module, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        given = _tensors(args, kwargs)
        if not given or given[0].requires_grad or is_functorch_wrapped_tensor(given[0]):
            return args, kwargs
        if not given[0].is_floating_point():  # the numbers of words: the way ends in what they look up
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
            given, trained, rules = _tensors(args, kwargs), _trained(layer), rules_of(layer)
            if any(map(is_functorch_wrapped_tensor, given)):  # of no gradients that a hook would see
                return
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
            if output.requires_grad:  # the hook belongs to this value, also when it is changed in place later
                output.register_hook(lambda gradient: self._note_gradient(call, gradient))

        return note

    def _note_gradient(self, call: Call, gradient: Tensor) -> None:
        if self._listener is not None:
            self._listener(call, gradient.detach())

    @contextmanager
    def listen(self, listener: Listener) -> Iterator[None]:
        """Tell `listener` of the output gradients of the backward passes within."""
        self._listener = listener
        try:
            yield
        finally:
            self._listener = None

    def backward(self, logits: Tensor, cotangent: Tensor, listener: Listener) -> None:
        """A backward pass through the activations only: no parameter's gradient is computed."""
        with self.listen(listener), self._for_inputs():
            torch.autograd.grad(logits, self._starts, cotangent, retain_graph=True, allow_unused=True)

    def check_complete(self, logits: Tensor) -> None:
        """Raise unless every use of a trained parameter in the graph is a call that a rule accounts for."""
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
    """A layer's own parameters that are trained; what stands in for one during a call is none."""
    own = layer.named_parameters(recurse=False)
    return [(name, p) for name, p in own if isinstance(p, nn.Parameter) and p.requires_grad]


def uses_of(logits: Tensor) -> Counter[int]:
    """How often each leaf appears in the graph, by its id."""
    parents = (parent for node in nodes_of(logits) for parent, _ in node.next_functions)
    leaves = (getattr(parent, "variable", None) for parent in parents)  # only leaves have one
    return Counter(id(leaf) for leaf in leaves if leaf is not None)


def nodes_of(value: Tensor) -> Iterator[Node]:
    """The nodes of its graph, each once."""
    seen, stack = set(), [value.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            stack.extend(parent for parent, _ in node.next_functions)
