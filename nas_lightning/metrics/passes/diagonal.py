"""The kernel's diagonal alone, where nothing else of it is wanted: its cost grows with m, not with m²."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from nas_lightning.metrics.passes.independence import check_independence
from nas_lightning.metrics.passes.kernel import Output, layerwise_diagonal
from nas_lightning.metrics.passes.layers import IncompleteError
from nas_lightning.metrics.passes.needs import Needs
from nas_lightning.metrics.passes.shared import Passes


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
