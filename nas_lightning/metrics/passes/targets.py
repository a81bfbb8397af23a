"""Whether networks, batches, logits and labels are what passes ask for."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nas_lightning.errors import InputError
from nas_lightning.spaces.given.callable import check_callable
from nas_lightning.spaces.network import Network
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.tasks.base import Task
from nas_lightning.tasks.multi_class import MultiClass


def trained_parameters(network: nn.Module) -> list[nn.Parameter]:
    """Those that have gradients; raise where there are none, or where the network cannot be called."""
    check_callable(network)
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    if not parameters:
        raise InputError("expected a network with parameters to train", got=type(network).__name__)
    return parameters


def is_of_space(network: nn.Module) -> bool:
    """Whether it is an architecture of one of our spaces, or has one within."""
    return any(isinstance(module, (Network, Supernet)) for module in network.modules())


def check_batch(x: Tensor, labels: Tensor) -> None:
    """Raise unless there are at least two samples, and as many labels."""
    if len(x) < 2 or len(labels) != len(x):
        got = f"{tuple(x.shape)} and {tuple(labels.shape)}"
        raise InputError("expected a batch of at least two samples, inputs (m, …) and labels (m,)", got=got)


def check_logits(logits: Tensor, task: Task, samples: int) -> None:
    """Raise unless there are outputs for each sample: (m, outputs), or (m, outputs, h, w) of dense tasks."""
    shape = "(m, classes, h, w)" if task.dense else "(m, classes)"
    if logits.dim() != (4 if task.dense else 2) or len(logits) != samples:
        raise InputError(f"expected logits {shape} from the network", got=tuple(logits.shape))


def labels_for(task: Task, labels: Tensor, logits: Tensor) -> Tensor:
    """The labels as the task's loss takes them; classes in whatever form.

    >>> labels_for(MultiClass(), torch.eye(3), torch.zeros(3, 3))
    tensor([0, 1, 2])
    """
    given = task.targets(labels) if isinstance(task, MultiClass) else labels
    task.check(given, logits.shape[1], "")
    return given


def is_constant(rows: Tensor) -> bool:
    """Whether all samples of (m, …) have the same numbers, but for rounding.

    >>> is_constant(torch.ones(2, 3)), is_constant(torch.eye(2))
    (True, False)
    """
    spread = (rows - rows[0]).abs().max()
    return bool(spread <= rows.abs().max() * 8 * torch.finfo(rows.dtype).eps)
