"""The operations of `torch.nn.SyncBatchNorm`, which torch has for CUDA only, in plain tensors.

x is (b, c, …); means and inverse deviations are (c,), or (processes, c) of all processes.
"""

import torch
from torch import Tensor


def _others(x: Tensor) -> list[int]:
    return [axis for axis in range(x.dim()) if axis != 1]


def _along(values: Tensor, x: Tensor) -> Tensor:
    return values.view(1, -1, *[1] * (x.dim() - 2))


def stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return mean and 1/√(variance + ε) of the own batch."""
    return x.mean(_others(x)), (x.var(_others(x), correction=0) + eps).rsqrt()


def gather(
    x: Tensor,
    means: Tensor,
    invstds: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return mean and 1/√(variance + ε) of all batches, and update the running statistics."""
    share, total = counts[:, None] / counts.sum(), counts.sum()
    mean = (share * means).sum(dim=0)
    variance = (share * (invstds**-2 - eps + (means - mean) ** 2)).sum(dim=0)
    if running_mean is not None and running_var is not None:
        running_mean.lerp_(mean, momentum)
        running_var.lerp_(variance * total / (total - 1), momentum)
    return mean, (variance + eps).rsqrt()


def normalize(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    """Return the normalized input."""
    out = (x - _along(mean, x)) * _along(invstd, x)
    out = out if weight is None else out * _along(weight, x)
    return out if bias is None else out + _along(bias, x)


def backward_sums(
    dy: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, *wanted: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return Σ dy, Σ dy (x − mean), and the gradients of weight and bias, of the own batch."""
    total = dy.sum(_others(x))
    along = (dy * (x - _along(mean, x))).sum(_others(x))
    return total, along, along * invstd, total.clone()


def backward(
    dy: Tensor,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    total: Tensor,
    along: Tensor,
    counts: Tensor,
) -> Tensor:
    """Return the gradient of the input, from the sums of all processes."""
    n = counts.sum()
    slope = _along(invstd if weight is None else invstd * weight, x)
    centered = (x - _along(mean, x)) * _along(invstd**2 * along / n, x)
    return (dy - _along(total / n, x) - centered) * slope


aten = torch.ops.aten
OPERATIONS = {
    aten.batch_norm_stats.default: stats,
    aten.batch_norm_gather_stats_with_counts.default: gather,
    aten.batch_norm_elemt.default: normalize,
    aten.batch_norm_backward_reduce.default: backward_sums,
    aten.batch_norm_backward_elemt.default: backward,
}
