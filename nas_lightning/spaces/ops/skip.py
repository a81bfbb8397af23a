"""Skip connections (DARTS, arXiv:1806.09055, section 3.1.1)."""

from __future__ import annotations

from torch import nn

from nas_lightning.spaces.ops.layers import FactorizedReduce
from nas_lightning.spaces.ops.norm import Norm
from nas_lightning.spaces.ops.registry import SKIP, operation


@operation(SKIP, kind="skip")
def skip_connect(channels: int, stride: int, norm: Norm) -> nn.Module:
    """The identity; where the resolution is halved, two 1×1 convolutions."""
    return nn.Identity() if stride == 1 else FactorizedReduce(channels, channels, norm)
