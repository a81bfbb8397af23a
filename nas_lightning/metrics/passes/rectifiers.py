"""What a network's rectified units say of the samples of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nas_lightning.metrics.passes.needs import Needs

Breaks = Callable[..., tuple[float, ...]]


def _at_zero(*options: Any, **named: Any) -> tuple[float, ...]:
    return (0.0,)


def _range(low: float = -1.0, high: float = 1.0) -> tuple[float, ...]:
    return (low, high)


def _clamp(min: Any = None, max: Any = None) -> tuple[float, ...]:
    if min != 0:  # no rectifier, but what keeps a number from being too small
        return ()
    return (0.0,) if max is None else (0.0, max)


BREAKS: Mapping[str, Breaks] = {
    **dict.fromkeys(("relu", "leaky_relu", "_prelu_kernel", "rrelu_with_noise", "elu", "celu"), _at_zero),
    **dict.fromkeys(("gelu", "silu", "mish"), _at_zero),  # smooth, with a gate that opens at 0
    **dict.fromkeys(("hardswish", "hardsigmoid"), lambda: (-3.0, 3.0)),
    **dict.fromkeys(("softshrink", "hardshrink"), lambda size=0.5: (-size, size)),
    "hardtanh": _range,  # ReLU6, too
    "threshold": lambda threshold, value: (threshold,),
    "clamp": _clamp,
    "clamp_min": _clamp,
}
"""Where one piece of an activation ends and the next begins, by its name in PyTorch, from its options."""


class RectifierCodes(TorchDispatchMode):
    """Sees every rectification, as a module or as a function: its patterns, and the sum of their kernels.

    Two samples agree on a unit where they lie in the same piece of its activation, `BREAKS`.

    Args:
        samples: images of the batch.
        needs: which of patterns and kernel are computed.
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
            # K = Σ_p c_p c_pᵀ, c_p the units in piece p: above the point where it begins, not above its end
            everything, nothing = torch.ones_like(above[0]), torch.zeros_like(above[0])
            for begun, ended in pairwise([everything, *above, nothing]):
                inside = (begun & ~ended).float()
                self.kernel += (inside @ inside.T).to(self.kernel)
