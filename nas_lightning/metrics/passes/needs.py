"""What a metric may ask to be prepared while the passes run."""

from __future__ import annotations

from enum import Flag, auto


class Needs(Flag):
    """What a metric needs prepared while the passes run.

    >>> both = Needs.HESSIAN | Needs.FEATURES
    >>> Needs.FEATURES in both, Needs.OUTPUTS in both
    (True, False)
    """

    NOTHING = 0
    HESSIAN = auto()  # the loss' gradient keeps its graph
    SALIENCY = auto()  # the loss' gradients at the layers' outputs
    RELU_CODES = auto()  # how often units agree on two samples
    RELU_PATTERNS = auto()  # which units are active
    OUTPUTS = auto()  # what the layers return
    FEATURES = auto()  # what the blocks return
    KERNEL = auto()  # the whole kernel, so that nothing of it is computed apart
