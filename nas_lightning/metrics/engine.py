"""The passes that metrics share, each run once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from nas_lightning.errors import InputError
from nas_lightning.metrics.curvature import TwiceDifferentiable, along_weights
from nas_lightning.metrics.kernel import (
    Kernel,
    Output,
    cotangents,
    layerwise_diagonal,
    layerwise_kernel,
    rowwise_kernel,
)
from nas_lightning.metrics.layers import BATCH_NORMS, IncompleteError
from nas_lightning.metrics.recording import (
    Call,
    Calls,
    Features,
    Needs,
    RectifierCodes,
    check_batch,
    check_independence,
    check_logits,
    explain,
    is_constant,
    is_of_space,
    labels_for,
    logits_of,
    say_row_by_row,
    say_silent,
    spectral_entropy,
    trained_parameters,
)
from nas_lightning.tasks import MultiClass, task_of

# Measuring without a trace: whatever a metric does to a network in here is undone afterwards.


@contextmanager
def preserve_state(network: nn.Module, *, batch_statistics: bool = True) -> Iterator[None]:
    """Evaluation mode, batch norms with the batch's statistics; modes, buffers and random state come back.

    Dropout and drop path are off, so that a score depends on weights and batch alone. Gradients are enabled
    within, and none is written to `.grad` by the metrics, which ask `torch.autograd.grad` for them. What
    layers keep while they are evaluated, as some attentions keep biases, is computed anew: `train` drops it.
    """
    modes = [(module, module.training) for module in network.modules()]
    buffers = [
        (module, name, buffer, buffer.detach().clone())
        for module in network.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    devices = {p.device.index for p in network.parameters() if p.is_cuda}
    with torch.random.fork_rng(devices=sorted(devices)), torch.enable_grad():
        try:
            network.train()
            network.eval()
            for module in network.modules():
                if isinstance(module, BATCH_NORMS):
                    module.train(batch_statistics)
            yield
        finally:
            network.train()
            network.train(modes[0][1])
            for module, mode in modes:
                module.training = mode
            with torch.no_grad():
                for module, name, buffer, value in buffers:
                    # what is as it was is not written: a graph may hold it, and would count a change
                    same = buffer.is_meta or torch.equal(buffer, value)
                    setattr(module, name, buffer if same else buffer.copy_(value))


# The passes through a network that metrics are made of, each run once however many metrics ask for it.

Batch = tuple[Tensor, Tensor]
"""Inputs (m, …) and class labels (m,), or the targets of the network's task."""


class Passes:
    """One forward pass and what follows from it, in a context; each computed when it is first asked for.

    Batch norms use the batch's statistics unless told otherwise; dropout is off. The network is as it was
    once the context is left. There is no splitting of the batch: with batch statistics that changes every
    number.

    Args:
        network: with parameters to train; its `task` says what outputs are for, where they are of no classes.
        batch: inputs (m, …) and labels (m,), or the targets of the task.
        needs: what else the forward pass has to keep.
        batch_statistics: whether batch norms use the batch's.
        plain: leave second derivatives to PyTorch, as checkpointed layers need.

    >>> network = nn.Linear(3, 2)
    >>> batch = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])
    >>> with Passes(network, batch) as passes:
    ...     [tuple(gradient.shape) for gradient in passes.gradients], passes.kernel().matrix.shape
    ([(2, 3), (2,)], torch.Size([4, 4]))
    """

    def __init__(
        self,
        network: nn.Module,
        batch: Batch,
        needs: Needs = Needs.NOTHING,
        *,
        batch_statistics: bool = True,
        plain: bool = False,
    ) -> None:
        x, self._labels = batch
        self.task = task_of(network)
        check_batch(x, self._labels)
        self.network, self.needs, self.batch_statistics = network, needs, batch_statistics
        self.x = x.detach().clone().requires_grad_(x.is_floating_point())
        self.parameters = trained_parameters(network)
        self._twice = TwiceDifferentiable(plain=plain) if Needs.HESSIAN in needs else None
        keep_outputs = bool(needs & (Needs.SALIENCY | Needs.OUTPUTS))
        self.calls = Calls(network, self.x, keep_outputs=keep_outputs)
        self._features = Features(network, len(x)) if Needs.FEATURES in needs else None
        wants_codes = needs & (Needs.RELU_CODES | Needs.RELU_PATTERNS)
        self._codes = RectifierCodes(len(x), needs) if wants_codes else None
        self._kernels: dict[tuple[Output, bool], Kernel] = {}

    def __enter__(self) -> Passes:
        self._stack = ExitStack()
        # hooks see nothing of what is compiled
        self._stack.enter_context(torch.compiler.set_stance("force_eager"))
        self._stack.enter_context(preserve_state(self.network, batch_statistics=self.batch_statistics))
        if self._twice is not None:  # of attentions, the only one with a second derivative
            self._stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.__exit__(*exception)
        if (reason := explain(exception[1])) is not None:
            raise reason from exception[1]

    @cached_property
    def logits(self) -> Tensor:
        """The forward pass: (m, classes), (m, classes, …) of tasks with an output for each pixel."""
        with self._twice or nullcontext(), self._codes or nullcontext(), self._features or nullcontext():
            logits = self.calls.record(lambda: logits_of(self.network(self.x)))
        check_logits(logits, self.task, len(self.x))
        return logits

    @cached_property
    def labels(self) -> Tensor:
        """What the logits are to be, as the loss takes it."""
        return labels_for(self.task, self._labels, self.logits)

    @cached_property
    def is_degenerate(self) -> bool:
        """Whether no input reaches the output: the logits of all samples agree, or are not finite.

        The logits of a last layer that is all zeros agree, too, whatever reaches it: that is said, once.
        """
        logits = self.logits.detach()
        if not is_constant(logits):
            return not bool(torch.isfinite(logits).all())
        last = self.calls.all[-1] if self.calls.all else None
        if last is None or not last.is_silent() or is_constant(last.input):
            return True
        say_silent(type(self.network).__name__, last.name)
        return False

    @cached_property
    def loss(self) -> Tensor:
        """(1/m) Σ ℓ_i: cross entropy, or what the task has."""
        return self.loss_of(self.logits, self.labels)

    def loss_of(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The same of other outputs."""
        return self.task.evaluation_loss(logits, labels)

    @cached_property
    def _loss_pass(self) -> tuple[list[Tensor], list[tuple[Call, Tensor]]]:
        saliency: list[tuple[Call, Tensor]] = []

        def listener(call: Call, gradient: Tensor) -> None:
            if call.output is not None:
                saliency.append((call, gradient))

        with self.calls.listen(listener):
            gradients = torch.autograd.grad(
                self.loss,
                self.parameters,
                retain_graph=True,
                create_graph=self._twice is not None,
                materialize_grads=True,
            )
        return list(gradients), saliency

    @property
    def gradients(self) -> list[Tensor]:
        """∇_θ of the loss, one tensor per trained parameter."""
        return [gradient.detach() for gradient in self._loss_pass[0]]

    @property
    def saliency(self) -> list[tuple[Call, Tensor]]:
        """The loss' gradient at the output of every call; needs `SALIENCY`."""
        assert Needs.SALIENCY in self.needs, "expected a metric that declares Needs.SALIENCY"
        return self._loss_pass[1]

    @cached_property
    def curvature(self) -> Tensor:
        """θᵀ H ∇_θ of the loss, θ the weights and H the Hessian in them, () in float64; needs `HESSIAN`."""
        assert self._twice is not None, "expected a metric that declares Needs.HESSIAN"
        return along_weights(self.parameters, self._loss_pass[0])

    @cached_property
    def input_gradient(self) -> Tensor:
        """∂(Σ of all logits)/∂x, (m, …)."""
        total = self.logits.sum()
        return torch.autograd.grad(total, self.x, retain_graph=True, materialize_grads=True)[0]

    @property
    def outputs(self) -> list[tuple[nn.Module, Tensor]]:
        """Every call of a layer with its output, detached; needs `OUTPUTS`."""
        assert Needs.OUTPUTS in self.needs, "expected a metric that declares Needs.OUTPUTS"
        _ = self.logits
        return [(call.layer, call.saved_output()) for call in self.calls.all if call.output is not None]

    @property
    def features(self) -> list[Tensor]:
        """The outputs of the blocks in turn, with their graph; needs `FEATURES`."""
        assert self._features is not None, "expected a metric that declares Needs.FEATURES"
        return self._features.before(self.logits)

    @cached_property
    def entropies(self) -> Tensor:
        """The spectral entropy of every block's output, (blocks,); needs `FEATURES`."""
        return torch.stack([spectral_entropy(output) for output in self.features] or [torch.zeros(())])

    @property
    def relu_patterns(self) -> list[Tensor]:
        """(m, units) of each rectification: whether a unit is active; needs `RELU_PATTERNS`."""
        assert Needs.RELU_PATTERNS in self.needs, "expected a metric that declares Needs.RELU_PATTERNS"
        return self._seen_codes.patterns

    @property
    def relu_kernel(self) -> Tensor:
        """(m, m): for two samples, the number of units that are active, or inactive, in both."""
        assert Needs.RELU_CODES in self.needs, "expected a metric that declares Needs.RELU_CODES"
        return self._seen_codes.kernel

    @property
    def _seen_codes(self) -> RectifierCodes:
        """Those of the forward pass; an architecture of a space may have none, and is the worst then."""
        _ = self.logits
        assert self._codes is not None
        if not self._codes.units and not is_of_space(self.network):
            expected = "expected a network with activations made of pieces, such as ReLU, which are counted"
            raise InputError(expected, got=f"none in {type(self.network).__name__}")
        return self._codes

    def kernel(self, output: Output = "true_class", coupled: bool = False) -> Kernel:
        """The empirical neural tangent kernel; see `nas_lightning.metrics.kernel`."""
        key = (output, coupled)
        if key not in self._kernels:
            rows = self.cotangents(output)
            matrix = None if coupled else self._layerwise(rows)
            if matrix is None:
                matrix = rowwise_kernel(self.parameters, self.logits, rows)
            self._kernels[key] = Kernel((matrix + matrix.T) / 2, torch.finfo(self.logits.dtype).eps)
        return self._kernels[key]

    def cotangents(self, output: Output) -> list[Tensor]:
        """∂f/∂logits; tasks that know no true class have the sum of outputs in its place."""
        if output == "true_class" and isinstance(self.task, MultiClass):
            return cotangents(self.logits, self.labels, output)
        return cotangents(self.logits, self._labels, "sum" if output == "true_class" else output)

    def _layerwise(self, rows: Sequence[Tensor]) -> Tensor | None:
        """The sum over layers; None where layers do not account for all, or samples are not apart."""
        try:
            self.calls.check_complete(self.logits)
            check_independence(self.network, self.x, self.logits, self.calls)
            return layerwise_kernel(self.calls, self.logits, rows)
        except IncompleteError as reason:
            say_row_by_row(type(self.network).__name__, str(reason))
            return None


# The kernel's diagonal alone, where nothing else of it is wanted: its cost grows with m, not with m².


def kernel_diagonal(passes: Passes, output: Output = "true_class", coupled: bool = False) -> Tensor:
    """Θ_ii, (m·r,) in float64; of the kernel itself where that is computed anyway, or has to be.

    >>> import torch
    >>> with Passes(torch.nn.Linear(2, 3, bias=False), (torch.eye(2), torch.tensor([0, 1]))) as passes:
    ...     kernel_diagonal(passes)
    tensor([1., 1.], dtype=torch.float64)
    """
    if not coupled and Needs.KERNEL not in passes.needs:
        found = row_norms(passes, passes.cotangents(output))
        if found is not None:
            return found
    return passes.kernel(output, coupled).matrix.diagonal()


def row_norms(passes: Passes, cotangents: Sequence[Tensor]) -> Tensor | None:
    """‖Σ_t ∂f_i/∂θ‖² of each row of `layerwise_kernel`; None where layers do not account for all."""
    try:
        passes.calls.check_complete(passes.logits)
        check_independence(passes.network, passes.x, passes.logits, passes.calls)
        return layerwise_diagonal(passes.calls, passes.logits, cotangents)
    except IncompleteError:
        return None
