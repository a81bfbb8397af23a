"""What a forward pass did: every call of a layer with parameters, and a way to see its output's gradient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nas_lightning.errors import InputError
from nas_lightning.metrics.passes.layers import RULES

Listener = Callable[["Call", Tensor], None]


@dataclass(eq=False)
class Call:
    """One call of a layer."""

    layer: nn.Module
    name: str
    input: Tensor
    output: Tensor | None  # kept on request
    version: int  # of the output's memory: counts changes in place

    def saved_output(self) -> Tensor:
        """What the layer returned, computed again where that was changed in place since."""
        assert self.output is not None
        if self.output._version == self.version:
            return self.output
        with torch.no_grad():
            return self.layer(self.input)

    def parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The layer's own parameters that are trained."""
        for name, parameter in self.layer.named_parameters(recurse=False):
            if parameter.requires_grad:
                yield name, parameter


class Calls:
    """The calls of one forward pass on the batch `x`, in its order."""

    def __init__(self, network: nn.Module, x: Tensor, *, keep_outputs: bool = False) -> None:
        self.network, self.batch, self.keep_outputs = network, len(x), keep_outputs
        self.all: list[Call] = []
        # Backward passes end in these: every call lies on a way to one of them.
        self._starts = [x]
        self._listener: Listener | None = None

    @property
    def parametric_calls(self) -> list[Call]:
        """Those of layers that have something to train."""
        return [call for call in self.all if any(call.parameters())]

    def record(self, forward: Callable[[], Tensor]) -> Tensor:
        """Run the forward pass and note the calls of the layers whose rules are known."""
        handles = []
        for name, module in self.network.named_modules():
            if type(module) in RULES:
                handles.append(module.register_forward_pre_hook(self._start))
                handles.append(module.register_forward_hook(self._hook(name)))
        try:
            return forward()
        finally:
            for handle in handles:
                handle.remove()

    def _start(self, layer: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if args[0].requires_grad:
            return args
        self._starts.append(args[0].detach().requires_grad_())
        return (self._starts[-1],)

    def _hook(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def note(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            kept = output.detach() if self.keep_outputs else None
            call = Call(layer, name or "the network itself", args[0].detach(), kept, output._version)
            self.all.append(call)
            # the hook belongs to this value, also when it is changed in place later
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
        with self.listen(listener):
            torch.autograd.grad(logits, self._starts, cotangent, retain_graph=True, allow_unused=True)

    def check_complete(self, logits: Tensor) -> None:
        """Raise unless every use of a trained parameter in the graph is a recorded call of a known layer."""
        known = " and ".join(sorted(rule.__name__ for rule in RULES))
        recorded = Counter(
            id(parameter) for call in self.parametric_calls for _, parameter in call.parameters()
        )
        uses = _uses(logits)
        for name, module in self.network.named_modules():
            for key, parameter in module.named_parameters(recurse=False):
                where = f"{type(module).__name__} {name!r}"
                if uses[id(parameter)] > recorded[id(parameter)]:
                    raise InputError(
                        f"expected parameters only in calls of {known} (coupled=True takes any)",
                        got=f"{key} of {where}",
                    )
        for call in self.parametric_calls:
            if len(call.input) != self.batch:
                raise InputError(
                    f"expected layers that see the batch of {self.batch} samples (coupled=True takes any)",
                    got=f"{len(call.input)} in {type(call.layer).__name__} {call.name!r}",
                )


def _uses(logits: Tensor) -> Counter[int]:
    """How often each leaf appears in the graph, by its id."""
    uses: Counter[int] = Counter()
    seen, stack = set(), [logits.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for parent, _ in node.next_functions:
            variable = getattr(parent, "variable", None)  # only leaves have one
            if variable is None:
                stack.append(parent)
            else:
                uses[id(variable)] += 1
    return uses
