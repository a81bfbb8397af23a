"""Steps of the weights with what parts add to them: terms of the loss, and operations that learn no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.arch_parameters import ArchParameters
from nas_lightning.strategies.oneshot.arch_steps.unrolled import VirtualStep
from nas_lightning.strategies.oneshot.freezing.matching import cosine
from nas_lightning.strategies.oneshot.values import Learning, RelaxedWeights, SearchBatch
from nas_lightning.training.gradients import Gradients, gradients

_PARTIAL = "partial"  # in a checkpoint


class WeightTerms(ArchParameters):
    """What a step of the weights descends, and which of them it leaves alone.

    Args:
        space: the search space.
        supernet: its supernet.
        **weight_sharing: the settings of the weights, see `WeightSharing`.
    """

    def __init__(self, space: SearchSpace, supernet: Supernet, **weight_sharing: Any) -> None:
        for part in self.parts:
            part.check_supernet(supernet)
        super().__init__(space, supernet, **weight_sharing)
        self.operations = None if self.parts.freezing is None else OperationWeights(supernet)
        self.validated: Gradients = []  # gradients of validation images, of the batches of a step

    def enter_epoch(self) -> None:
        super().enter_epoch()
        for connection in self.parts.connections:
            self._widen(connection.partial(self.epoch))

    def _widen(self, partial: int | None) -> None:
        """Let 1/partial of the channels pass the operations; the momenta of what grows start anew."""
        backbone = self.supernet.backbone
        if partial is None or partial == backbone.partial:
            return
        backbone.widen(partial, self.generator)
        state = self.stepper(0).optimizer.state
        for weight in self.weight_list:
            momentum = state.get(weight, {}).get("momentum_buffer")
            if momentum is not None and momentum.shape != weight.shape:
                del state[weight]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        if any(connection.partial(self.epoch) for connection in self.parts.connections):
            checkpoint[_PARTIAL] = self.supernet.backbone.partial

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self.take_form(checkpoint)

    def take_form(self, checkpoint: Mapping[str, Any]) -> None:
        partial, backbone = checkpoint.get(_PARTIAL), self.supernet.backbone
        stages = {stage for connection in self.parts.connections for stage in connection.stages}
        if partial in stages and partial != backbone.partial:
            backbone.widen(partial, torch.Generator())

    def weight_gradients(self, batch: SearchBatch, relaxed: RelaxedWeights) -> Gradients:
        found = super().weight_gradients(batch, relaxed)
        for part in self.parts.weight_terms:
            found = add_gradients(found, part.gradients(self, batch["train"], relaxed, self.epoch))
        if self.operations is not None and not bool(self.operations.frozen.all()):
            loss = self.cross_entropy(batch["valid"], relaxed)[0]
            self.validated = add_gradients(self.validated, gradients(loss, self.weight_list))
        return found

    def descend(self) -> None:
        if self.operations is not None:
            self._freeze(self.operations)
        super().descend()

    def _freeze(self, operations: OperationWeights) -> None:
        """Judge what operations learn; those that are to learn no more lose their gradient."""
        validated, self.validated = self.validated, []
        if validated and self.parts.freezing is not None:
            trained = [weight.grad for weight in self.weight_list]
            cosines = operations.cosines(self.weight_list, trained, validated)
            operations.learning = self.parts.freezing.update(operations.learning, cosines)
        for weight in operations.frozen_weights():
            weight.grad = None

    def virtual_step(self) -> VirtualStep:
        """What the weights' next step depends on besides its gradient."""
        optimizer = self.stepper(0).optimizer
        buffers = [optimizer.state[w].get("momentum_buffer") for w in self.weight_list]
        lr = optimizer.param_groups[0]["lr"]
        return VirtualStep(lr, self.momentum, self.weight_decay, self.clip, buffers)

    def epoch_metrics(self) -> Mapping[str, float | Tensor]:
        if self.operations is None:
            return {}
        return {"frozen_operations": self.operations.frozen.double().mean()}


class OperationWeights(nn.Module):
    """The weights of a supernet's operations, and how far those learn.

    Args:
        supernet: theirs.
    """

    sums: Tensor
    counts: Tensor
    frozen: Tensor

    def __init__(self, supernet: Supernet) -> None:
        super().__init__()
        self.of_each = [list(op.parameters()) for op in supernet.backbone.operations()]
        for name, dtype in {"sums": torch.float32, "counts": torch.long, "frozen": torch.bool}.items():
            self.register_buffer(name, torch.zeros(len(self.of_each), dtype=dtype))

    @property
    def learning(self) -> Learning:
        """What is known of each operation."""
        return Learning(self.sums, self.counts, self.frozen)

    @learning.setter
    def learning(self, learning: Learning) -> None:
        self.sums, self.counts, self.frozen = learning

    def cosines(self, weights: Sequence[nn.Parameter], trained: Gradients, validated: Gradients) -> Tensor:
        """Between two gradients for the weights of each operation: (ops,)."""
        place = {id(weight): index for index, weight in enumerate(weights)}
        places = [[place[id(weight)] for weight in op] for op in self.of_each]
        found = [cosine([trained[i] for i in op], [validated[i] for i in op]) for op in places]
        return torch.stack(found).to(self.sums)

    def frozen_weights(self) -> list[nn.Parameter]:
        """Those that learn no more."""
        pairs = zip(self.of_each, self.frozen.tolist(), strict=True)
        return [weight for op, frozen in pairs if frozen for weight in op]


def add_gradients(one: Gradients, two: Gradients | None) -> Gradients:
    """The sum of two gradients for the same weights, of which either may have nothing."""
    if not one or two is None:
        return two or one
    return [b if a is None else a if b is None else a + b for a, b in zip(one, two, strict=True)]
