"""One-shot search: a supernet whose weights all architectures share, and parts that say how it is searched.

    min_β L_val(w*(β), β)   subject to   w*(β) = arg min_w L_train(w, β)

is followed by alternating steps of β and w (Liu et al. 2019, arXiv:1806.09055). What differs between papers
are parts: how β becomes weights, which gradient β descends, what is added to the loss, at which weights w is
trained, when the search ends. A paper is a composition with a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from nas_lightning.checks import NonNegativeInt, PositiveFloat, Seed, checked
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.inherited import Judgement
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.composition import SOFTMAX, composition, listed_terms
from nas_lightning.strategies.oneshot.labels import paper_names, skip_counts
from nas_lightning.strategies.oneshot.parts import (
    ArchOptimizer,
    ArchStep,
    Connection,
    Sampler,
    Selection,
    Term,
    WeightPerturbation,
)
from nas_lightning.strategies.oneshot.rules import Freezing, Stopping
from nas_lightning.strategies.oneshot.selection_stage import SelectionStage
from nas_lightning.strategies.oneshot.values import SearchBatch
from nas_lightning.strategies.oneshot.weight_terms import WeightTerms
from nas_lightning.tasks.multi_class import task_of
from nas_lightning.training.gradients import Gradients

_STOPPING = "stopping"  # in a checkpoint


class OneShot(WeightTerms):
    """A search made of parts; without any it is first-order DARTS.

    Args:
        space: the search space.
        supernet: its supernet.
        data: where a `selection` has its validation images from.
        sampler: how architecture parameters become weights.
        arch_step: which gradient the parameters descend; None: the first order's, where there are any.
        arch_optimizer: what descends it; None: Adam, on the simplex exponentiated gradients.
        partial: weights of edges, for a supernet with `partial` > 1.
        auxiliary: a connection that is there while searching only.
        perturbation: other weights that the supernet is trained at.
        regulariser: terms of the losses, one, listed or by name; a name with None leaves its term out.
        freezing: a rule by which the weights of single operations stop to learn.
        stopping: a rule that ends the search early.
        selection: how the trained supernet is searched; without one the sampler's scores decide.
        arch_lr: learning rate of the architecture parameters; None: that of the optimiser's paper.
        warmup_epochs: epochs that train the weights alone.
        seed: of everything that is drawn.
        **weight_sharing: the settings of the weights, see `WeightSharing`.

    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.strategies.oneshot.regularisers.path_depth import PathDepth
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    >>> OneShot(space, supernet, regulariser=[PathDepth()]).label
    'Softmax + PathDepth'
    """

    made_of: ClassVar[tuple[str, ...]] = ()
    """The compositions that have the name of this class."""

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        data: SearchData | None = None,
        *,
        sampler: Sampler = SOFTMAX,
        arch_step: ArchStep | None = None,
        arch_optimizer: ArchOptimizer | None = None,
        partial: Connection | None = None,
        auxiliary: Connection | None = None,
        perturbation: WeightPerturbation | None = None,
        regulariser: Mapping[str, Term | None] | Sequence[Term] | Term | None = None,
        freezing: Freezing | None = None,
        stopping: Stopping | None = None,
        selection: Selection | None = None,
        arch_lr: PositiveFloat | None = None,
        warmup_epochs: NonNegativeInt = 0,
        seed: Seed = 0,
        **weight_sharing: Any,
    ) -> None:
        parts = composition(
            sampler,
            arch_step,
            arch_optimizer,
            partial=partial,
            auxiliary=auxiliary,
            perturbation=perturbation,
            regularisers=listed_terms(regulariser),
            freezing=freezing,
            stopping=stopping,
            selection=selection,
        )
        parts.check(space)
        parts.check_settings(data, arch_lr=arch_lr, warmup_epochs=warmup_epochs)
        self.parts = parts
        super().__init__(space, supernet, seed=seed, **weight_sharing)
        self.data, self.seed = data, seed
        self.arch_lr, self.warmup_epochs = arch_lr, warmup_epochs
        self.stop_memory: dict[str, Any] = {}
        self.selected: SelectionStage | None = None
        if selection is not None and data is not None:
            self.selected = SelectionStage(selection, space, supernet, data, seed)

    @property
    def label(self) -> str:
        """The paper that has these parts; else the parts themselves."""
        return paper_names(OneShot).get(str(self.parts), str(self.parts))

    # Steps

    def check_length(self, epochs: int | None) -> None:
        super().check_length(epochs)
        if self.parts.arch_step is not None and 0 < (epochs or 0) <= self.warmup_epochs:
            expected = f"expected fewer epochs of warm-up than the run has, which are {epochs}"
            raise InputError(expected, got=self.warmup_epochs, where="strategy.warmup_epochs")

    def step(self, batches: Sequence[SearchBatch]) -> None:
        if self.parts.arch_step is None or self.current_epoch < self.warmup_epochs:
            self.weight_step(batches)
        else:
            self.parts.arch_step.step(self, batches)

    def arch_gradients(self, batch: SearchBatch) -> Gradients:
        """∇_β of what an architecture step descends."""
        assert self.parts.arch_step is not None, "a step of what there is not"
        return self.parts.arch_step.gradients(self, batch)

    def arch_descend(self) -> None:
        """One step of the architecture's optimiser on the gradients that came together."""
        optimizer = self.stepper(1).optimizer  # unwrapped, so that Lightning counts the weights' steps only
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for name, group in self.space.groups.items():
                self.arch[name].copy_(self.parts.sampler.project(self.arch[name], group))
        self.pressure.ascend(self.scores())

    def configure_optimizers(self) -> list[Optimizer]:
        optimizers = super().configure_optimizers()
        optimizer = self.parts.arch_optimizer
        if optimizer is None:
            return optimizers
        groups, sampler = self.space.groups, self.parts.sampler
        free = {id(self.arch[name]) for name, group in groups.items() if not sampler.decays(group)}
        decaying = [parameter for parameter in self.arch_list if id(parameter) not in free]
        others = [parameter for parameter in self.arch_list if id(parameter) in free]
        lr = optimizer.default_lr if self.arch_lr is None else self.arch_lr
        return [*optimizers, optimizer.build(decaying, others, lr)]

    # What the search has come to

    def derive(self) -> list[Genotype]:
        if self.selected is None:
            return [self.space.discretise(self.scores())]
        return [self.best()[0]]

    def best(self) -> tuple[Genotype, Judgement]:
        """What the selection finds with the shared weights."""
        assert self.selected is not None, "a selection is there"
        return self.selected.best(self.trainer)

    # Epochs

    def on_train_start(self) -> None:
        self._stop()  # a search that had ended does not go on, and enters no further epoch
        if not self.trainer.should_stop:
            super().on_train_start()
        if self.selected is not None:
            self.selected.begin(self.trainer)

    def on_train_epoch_end(self) -> None:
        super().on_train_epoch_end()
        self.stop_memory = self._memory_of_epoch()
        self._stop()

    def _memory_of_epoch(self) -> dict[str, Any]:
        """What the rule that stops keeps once this epoch has ended; asked twice, it is counted once."""
        rule, epoch = self.parts.stopping, self.current_epoch
        if rule is None or self.stop_memory.get("epoch") == epoch:
            return self.stop_memory
        scores, groups = self.scores(), self.space.groups
        return {**rule.remember(self.stop_memory, self.derive()[0], scores, groups), "epoch": epoch}

    def _stop(self) -> None:
        if self.parts.stopping is not None and self.parts.stopping.stops(self.stop_memory):
            self.trainer.should_stop = True

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        over = self.trainer.is_last_batch  # a run that goes on from here does not end the epoch again
        checkpoint[_STOPPING] = self._memory_of_epoch() if over else self.stop_memory

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self.stop_memory = dict(checkpoint.get(_STOPPING, {}))

    def epoch_metrics(self) -> Mapping[str, float | Tensor]:
        metrics = dict(super().epoch_metrics())
        if self.parts.sampler.learns:
            groups, probabilities = self.space.groups, self.probabilities()
            metrics.update(self.parts.sampler.metrics(self.by_name, self.epoch, groups))
            for regulariser in self.parts.regularisers:
                metrics.update(regulariser.metrics(probabilities, self.epoch, groups))
            metrics.update(skip_counts(self.space, self.scores()))
            metrics.update(self.pressure.metrics(self.scores()))
        if self.selected is not None:
            judgement = self.best()[1]
            side = "selected" if self._validates() else "valid"
            metrics.update(
                {f"{side}_loss": judgement.loss, f"{side}_{task_of(self.supernet).score}": judgement.accuracy}
            )
        return metrics

    def _validates(self) -> bool:
        return self.parts.arch_step is not None and self.parts.arch_step.validates
