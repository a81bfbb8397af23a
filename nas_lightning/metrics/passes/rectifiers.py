"""What a network's rectified units say of the samples of a batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nas_lightning.metrics.passes.needs import Needs


class RectifierCodes(TorchDispatchMode):
    """Sees every rectification, as a module or as a function: its patterns, and the sum of their kernels.

    Args:
        samples: images of the batch.
        needs: which of patterns and kernel are computed.
    """

    def __init__(self, samples: int, needs: Needs) -> None:
        super().__init__()
        self.samples, self.needs = samples, needs
        self.kernel = torch.zeros(samples, samples, dtype=torch.float64)
        self.patterns: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if (
            func in (torch.ops.aten.relu.default, torch.ops.aten.relu_.default)
            and len(result) == self.samples
        ):
            self._note(result.detach().flatten(1))
        return result

    def _note(self, units: Tensor) -> None:  # (m, units)
        if Needs.RELU_PATTERNS in self.needs:
            self.patterns.append(units > 0)
        if Needs.RELU_CODES in self.needs:
            # K = c cᵀ + (1 − c)(1 − c)ᵀ = (s sᵀ + units)/2 with s = 2c − 1
            signs = torch.sign(units) * 2 - 1
            self.kernel += ((signs @ signs.T + signs.shape[1]) / 2).to(self.kernel)
