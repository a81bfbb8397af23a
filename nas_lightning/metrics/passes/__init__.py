"""What metrics share: forward and backward passes, the kernel, and a network that is left as it was."""

from nas_lightning.metrics.passes.shared import Batch, Needs, Passes

__all__ = ["Batch", "Needs", "Passes"]
