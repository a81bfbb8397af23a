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
    spectral_entropy,
    trained_parameters,
    warn_row_by_row,
    warn_zero_last_layer,
)
from nas_lightning.tasks import MultiClass, task_of

# The state of the network is restored after scoring.


@contextmanager
def preserve_state(network: nn.Module, *, batch_statistics: bool = True) -> Iterator[None]:
    """Set evaluation mode, with batch statistics in batch norms; restore modes, buffers, and random state.

    Dropout and drop path are off, so that a score depends only on weights and batch. Gradients are enabled;
    metrics use `torch.autograd.grad` and write no `.grad`. Calling `train` first drops caches that some
    attention layers keep in evaluation mode.
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
                if isinstance(module, nn.SyncBatchNorm) and batch_statistics:
                    # without running statistics it uses those of its own batch; in training mode it would
                    # wait for other processes
                    module.running_mean = module.running_var = None
                elif isinstance(module, BATCH_NORMS):
                    module.train(batch_statistics)
            yield
        finally:
            network.train()
            network.train(modes[0][1])
            for module, mode in modes:
                module.training = mode
            with torch.no_grad():
                for module, name, buffer, value in buffers:
                    # unchanged buffers are not written: a graph may hold them, and would count a change
                    same = buffer.is_meta or torch.equal(buffer, value)
                    setattr(module, name, buffer if same else buffer.copy_(value))


# The passes that metrics share.

Batch = tuple[Tensor, Tensor]
"""Inputs (m, …) and class labels (m,), or the targets of the network's task."""


class Passes:
    """A context with one forward pass and the values derived from it, each computed on first use.

    Dropout is off. The network is unchanged when the context ends. The batch is never split, since with batch
    statistics that changes every value.

    Args:
        network: a network with trainable parameters; its `task`, if any, defines loss and targets.
        batch: inputs (m, …) and labels (m,), or the targets of the task.
        needs: what the forward pass must keep.
        batch_statistics: whether batch norms use the statistics of the batch.
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
        if self._twice is not None:  # the only attention with a second derivative
            self._stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.__exit__(*exception)
        if (reason := explain(exception[1])) is not None:
            raise reason from exception[1]

    @cached_property
    def logits(self) -> Tensor:
        """The outputs, (m, classes), or (m, classes, …) for dense tasks."""
        with self._twice or nullcontext(), self._codes or nullcontext(), self._features or nullcontext():
            logits = self.calls.record(lambda: logits_of(self.network(self.x)))
        check_logits(logits, self.task, len(self.x))
        return logits

    @cached_property
    def labels(self) -> Tensor:
        """The targets in the form that the loss takes."""
        return labels_for(self.task, self._labels, self.logits)

    @cached_property
    def is_degenerate(self) -> bool:
        """Whether the logits of all samples are equal, or not finite.

        A last layer whose weights are all zero also has equal logits; it causes a warning instead.
        """
        logits = self.logits.detach()
        if not is_constant(logits):
            return not bool(torch.isfinite(logits).all())
        last = self.calls.all[-1] if self.calls.all else None
        if last is None or not last.is_silent() or is_constant(last.input):
            return True
        warn_zero_last_layer(type(self.network).__name__, last.name)
        return False

    @cached_property
    def loss(self) -> Tensor:
        """(1/m) Σ ℓ_i: the cross entropy, or the loss of the task."""
        return self.loss_of(self.logits, self.labels)

    def loss_of(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of other outputs."""
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
        """∇_θ of the loss, one tensor per trainable parameter."""
        return [gradient.detach() for gradient in self._loss_pass[0]]

    @property
    def saliency(self) -> list[tuple[Call, Tensor]]:
        """The gradients of the loss in the outputs of all calls; needs `SALIENCY`."""
        assert Needs.SALIENCY in self.needs, "The metric must declare Needs.SALIENCY"
        return self._loss_pass[1]

    @cached_property
    def curvature(self) -> Tensor:
        """θᵀ H ∇_θ of the loss, H its Hessian in the weights θ, () in float64; needs `HESSIAN`."""
        assert self._twice is not None, "The metric must declare Needs.HESSIAN"
        return along_weights(self.parameters, self._loss_pass[0])

    @cached_property
    def input_gradient(self) -> Tensor:
        """∂(sum of all logits)/∂x, (m, …)."""
        total = self.logits.sum()
        return torch.autograd.grad(total, self.x, retain_graph=True, materialize_grads=True)[0]

    @property
    def outputs(self) -> list[tuple[nn.Module, Tensor]]:
        """The layer and the detached output of every call; needs `OUTPUTS`."""
        assert Needs.OUTPUTS in self.needs, "The metric must declare Needs.OUTPUTS"
        _ = self.logits
        return [(call.layer, call.saved_output()) for call in self.calls.all if call.output is not None]

    @property
    def features(self) -> list[Tensor]:
        """The outputs of the blocks in order, with their graph; needs `FEATURES`."""
        assert self._features is not None, "The metric must declare Needs.FEATURES"
        return self._features.before(self.logits)

    @cached_property
    def entropies(self) -> Tensor:
        """The spectral entropies of the blocks' outputs, (blocks,); needs `FEATURES`."""
        return torch.stack([spectral_entropy(output) for output in self.features] or [torch.zeros(())])

    @property
    def relu_patterns(self) -> list[Tensor]:
        """Whether units are active, (m, units) for each rectification; needs `RELU_PATTERNS`."""
        assert Needs.RELU_PATTERNS in self.needs, "The metric must declare Needs.RELU_PATTERNS"
        return self._seen_codes.patterns

    @property
    def relu_kernel(self) -> Tensor:
        """The number of units that agree on two samples, (m, m); needs `RELU_CODES`."""
        assert Needs.RELU_CODES in self.needs, "The metric must declare Needs.RELU_CODES"
        return self._seen_codes.kernel

    @property
    def _seen_codes(self) -> RectifierCodes:
        """The codes; networks of our spaces may have none, and then have the worst value."""
        _ = self.logits
        assert self._codes is not None
        if not self._codes.units and not is_of_space(self.network):
            expected = "The network must have piecewise linear activations, such as ReLU"
            raise InputError(expected, got=f"none in {type(self.network).__name__}")
        return self._codes

    def kernel(self, output: Output = "true_class", coupled: bool = False) -> Kernel:
        """Return the empirical neural tangent kernel; see `nas_lightning.metrics.kernel`."""
        key = (output, coupled)
        if key not in self._kernels:
            rows = self.cotangents(output)
            matrix = None if coupled else self._layerwise(rows)
            if matrix is None:
                matrix = rowwise_kernel(self.parameters, self.logits, rows)
            self._kernels[key] = Kernel((matrix + matrix.T) / 2, torch.finfo(self.logits.dtype).eps)
        return self._kernels[key]

    def cotangents(self, output: Output) -> list[Tensor]:
        """Return ∂f/∂logits; tasks without a true class use the sum of the outputs instead."""
        if output == "true_class" and isinstance(self.task, MultiClass):
            return cotangents(self.logits, self.labels, output)
        return cotangents(self.logits, self._labels, "sum" if output == "true_class" else output)

    def _layerwise(self, rows: Sequence[Tensor]) -> Tensor | None:
        """Return the sum over layers, None if layers do not cover all parameters or samples are mixed."""
        try:
            self.calls.check_complete(self.logits)
            check_independence(self.network, self.x, self.logits, self.calls)
            return layerwise_kernel(self.calls, self.logits, rows)
        except IncompleteError as reason:
            warn_row_by_row(type(self.network).__name__, str(reason))
            return None


# The kernel's diagonal; its cost grows with m, not with m².


def kernel_diagonal(passes: Passes, output: Output = "true_class", coupled: bool = False) -> Tensor:
    """Return Θ_ii, (m·r,) in float64, from the whole kernel if that is needed anyway.

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
    """Return ‖Σ_t ∂f_i/∂θ‖² of each row of `layerwise_kernel`, None if layers do not cover all parameters."""
    try:
        passes.calls.check_complete(passes.logits)
        check_independence(passes.network, passes.x, passes.logits, passes.calls)
        return layerwise_diagonal(passes.calls, passes.logits, cotangents)
    except IncompleteError:
        return None
