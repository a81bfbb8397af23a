"""One-shot search: a supernet and the parts that say how it is searched.

    min_β L_val(w*(β), β)   subject to   w*(β) = arg min_w L_train(w, β)

is approximated by alternating steps of the architecture parameters β and the shared weights w (Liu et al.
2019, arXiv:1806.09055). Papers differ in their parts: how β becomes weights of operations, which gradient β
descends, what is added to the losses, at which architecture weights w is trained, when the search ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nas_lightning.data import SearchData
from nas_lightning.data.search import check_search_data
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.inherited import Judgment
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet, Weights
from nas_lightning.strategies.one_shot.arch_steps import Adam, ExponentiatedGradient, FirstOrder
from nas_lightning.strategies.one_shot.freezing import OperationWeights
from nas_lightning.strategies.one_shot.parts import (
    Arch,
    ArchOptimizer,
    ArchStep,
    Connection,
    EarlyStop,
    Epoch,
    Freezing,
    Noise,
    Part,
    Regularizer,
    RelaxedWeights,
    Sampler,
    SearchBatch,
    Selection,
    Term,
    WeightPerturbation,
    WeightRegularizer,
)
from nas_lightning.strategies.one_shot.relaxations import uniform_noise
from nas_lightning.strategies.one_shot.samplers import Softmax
from nas_lightning.strategies.one_shot.selection import SelectionStage
from nas_lightning.strategies.one_shot.unrolled import VirtualStep
from nas_lightning.strategies.supernet import LimitPressure, SupernetStrategy
from nas_lightning.tasks import task_of
from nas_lightning.training.gradients import Gradients, constant, gradients
from nas_lightning.utils.devices import widest_float
from nas_lightning.validation import NonNegativeInt, PositiveFloat, Seed, checked


class _ClassDefault:
    def __repr__(self) -> str:
        return "<the class's>"


CLASS_DEFAULT: Any = _ClassDefault()
"""The default of an argument whose value is otherwise an attribute of the class."""

UNNAMED = (FirstOrder, Adam, ExponentiatedGradient)
"""Parts that a label leaves out."""

_EARLY_STOP, _PARTIAL = "early_stop", "partial"  # in a checkpoint


class OneShot(SupernetStrategy):
    """A search made of parts; without any it is first-order DARTS.

    A paper is a subclass that sets parts as class attributes, see `nas_lightning.strategies.one_shot.papers`.
    Each part is also an argument, which takes precedence; None leaves the part out.

    Args:
        space: the search space.
        supernet: its supernet.
        data: the images, which a `selection` needs.
        sampler: how architecture parameters become weights of operations.
        arch_step: which gradient the parameters descend; None: first-order, if the sampler has parameters.
        arch_optimizer: what descends it; None: `Adam`, or `ExponentiatedGradient` on the simplex.
        edge_weights: `EdgeWeights` or `Widening`, for a supernet with `partial` > 1.
        auxiliary_skip: a skip connection that exists only during the search.
        perturbation: changes the architecture weights at which the supernet is trained.
        regularizer: terms of the losses: one, a list, or a mapping by name, in which None leaves a term out.
        freezing: stops the training of single operations.
        early_stop: ends the search before its last epoch.
        selection: searches the trained supernet; without it the sampler's scores decide.
        arch_lr: learning rate of the architecture parameters; None: that of the optimizer's paper.
        warmup_epochs: epochs that train only the weights.
        seed: seed of all random numbers.
        **options: the settings of the weights, see `SupernetStrategy`.

    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.strategies import Gumbel, PathDepth, PRDarts
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    >>> OneShot(space, supernet, regularizer=[PathDepth()]).label
    'Softmax + PathDepth'
    >>> PRDarts(space, supernet).label, PRDarts(space, supernet, sampler=Gumbel()).label
    ('PRDarts', 'PRDarts + Gumbel')
    """

    sampler: Sampler = Softmax()
    arch_step: ArchStep | None = None
    arch_optimizer: ArchOptimizer | None = None
    edge_weights: Connection | None = None
    auxiliary_skip: Connection | None = None
    perturbation: WeightPerturbation | None = None
    regularizers: tuple[Term, ...] = ()
    freezing: Freezing | None = None
    early_stop: EarlyStop | None = None
    selection: Selection | None = None
    arch_lr: float | None = None

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        data: SearchData | None = None,
        *,
        sampler: Sampler = CLASS_DEFAULT,
        arch_step: ArchStep | None = CLASS_DEFAULT,
        arch_optimizer: ArchOptimizer | None = CLASS_DEFAULT,
        edge_weights: Connection | None = CLASS_DEFAULT,
        auxiliary_skip: Connection | None = CLASS_DEFAULT,
        perturbation: WeightPerturbation | None = CLASS_DEFAULT,
        regularizer: Mapping[str, Term | None] | Sequence[Term] | Term | None = CLASS_DEFAULT,
        freezing: Freezing | None = CLASS_DEFAULT,
        early_stop: EarlyStop | None = CLASS_DEFAULT,
        selection: Selection | None = CLASS_DEFAULT,
        arch_lr: PositiveFloat | None = CLASS_DEFAULT,
        warmup_epochs: NonNegativeInt = 0,
        seed: Seed = 0,
        **options: Any,
    ) -> None:
        terms = CLASS_DEFAULT if regularizer is CLASS_DEFAULT else list_terms(regularizer)
        given = {
            "sampler": sampler,
            "arch_step": arch_step,
            "arch_optimizer": arch_optimizer,
            "edge_weights": edge_weights,
            "auxiliary_skip": auxiliary_skip,
            "perturbation": perturbation,
            "regularizers": terms,
            "freezing": freezing,
            "early_stop": early_stop,
            "selection": selection,
            "arch_lr": arch_lr,
        }
        for name, value in given.items():
            if value is not CLASS_DEFAULT:
                check_kind(name, value)
                setattr(self, name, value)
        if self.sampler.learns:
            self.arch_step = self.arch_step or FirstOrder()
            self.arch_optimizer = self.arch_optimizer or default_optimizer(self.sampler)
        self.warmup_epochs = warmup_epochs
        self._check_parts(space, supernet)
        self._check_data(data)
        self.compilable = not self.sampler.varies
        super().__init__(space, supernet, seed=seed, **options)
        self.data, self.seed = data, seed
        self.arch = nn.ParameterDict(self._initial_parameters())
        self.arch_list = list(self.arch.parameters())
        self.pressure = LimitPressure(space)
        self.epoch = Epoch(0, 2)  # until a fit sets it
        self.operations = None if self.freezing is None else OperationWeights(supernet)
        self.validated: Gradients = []  # gradients of validation images, summed over the batches of a step
        self.early_stop_state: dict[str, Any] = {}
        self.selection_stage: SelectionStage | None = None
        if self.selection is not None and data is not None:
            self.selection_stage = SelectionStage(self.selection, space, supernet, data, seed)

    # Parts

    @property
    def parts(self) -> list[Part]:
        """All parts of the search."""
        single = (
            *(self.sampler, self.arch_step, self.arch_optimizer, self.edge_weights, self.auxiliary_skip),
            *(self.perturbation, *self.regularizers, self.freezing, self.early_stop, self.selection),
        )
        return [part for part in single if part is not None]

    @property
    def connections(self) -> list[Connection]:
        """The parts that change the sampled weights, in the order in which they do."""
        return [part for part in (self.edge_weights, self.auxiliary_skip) if part is not None]

    @property
    def label(self) -> str:
        """The name of the paper's class and of the parts that differ from the class's."""
        paper = type(self)
        if paper is OneShot:
            return " + ".join(type(part).__name__ for part in self.parts if not isinstance(part, UNNAMED))
        usual = {type(part) for name in _KINDS for part in list_terms(getattr(paper, name))}
        other = [part for part in self.parts if type(part) not in {*usual, *UNNAMED}]
        return " + ".join([paper.__name__, *(type(part).__name__ for part in other)])

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "parts": [type(part).__name__ for part in self.parts]}

    def _check_parts(self, space: SearchSpace, supernet: Supernet) -> None:
        """Raise an `InputError` for parts that are incompatible with each other or with the space."""
        if not self.sampler.learns:
            self._check_without_parameters()
        elif self.arch_optimizer is not None and self.arch_optimizer.on_simplex != self.sampler.on_simplex:
            lie = "lie" if self.sampler.on_simplex else "do not lie"
            reason = f"because the parameters of {type(self.sampler).__name__} {lie} on the simplex"
            wanted, got = default_optimizer(self.sampler), type(self.arch_optimizer).__name__
            raise InputError(
                f"`arch_optimizer` must be {type(wanted).__name__}, {reason}", got=got, where="arch_optimizer"
            )
        if self.arch_step is not None and not self.arch_step.validates:
            self._check_single_level(type(self.arch_step).__name__)
        for part in self.parts:
            part.check(self, space)
        for part in self.parts:
            part.check_supernet(supernet)

    def _check_without_parameters(self) -> None:
        """A sampler without parameters has nothing to learn, and needs a selection."""
        reason = f"because the sampler {type(self.sampler).__name__} has no parameters"
        learning = {
            **{name: getattr(self, name) for name in ("arch_step", "arch_optimizer", "edge_weights")},
            "regularizer": next(iter(self.regularizers), None),
            **{name: getattr(self, name) for name in ("freezing", "early_stop")},
        }
        for name, part in learning.items():
            if part is not None:
                raise InputError(f"There can be no {name}, {reason}", got=type(part).__name__, where=name)
        if self.selection is None:
            expected = f"The strategy needs a selection, {reason} to derive a genotype from"
            raise InputError(expected, got="none", where="selection")
        for name in ("arch_lr", "warmup_epochs"):
            if getattr(self, name):
                got, where = getattr(self, name), f"strategy.{name}"
                raise InputError(f"There can be no {name}, {reason}", got=got, where=where)

    def _check_single_level(self, got: str) -> None:
        """A single-level step has no step of the weights of its own, and no validation images."""
        own_step = "`arch_step` must be first_order or second_order, because"
        if self.perturbation is not None:
            expected = f"{own_step} a perturbation needs a separate step of the weights"
            raise InputError(expected, got=got, where="arch_step")
        if any(isinstance(term, WeightRegularizer) for term in self.regularizers):
            expected = f"{own_step} a term of the weights' loss needs a separate step of the weights"
            raise InputError(expected, got=got, where="arch_step")
        if self.freezing is not None:
            expected = f"{own_step} freezing compares the gradients of training and validation images"
            raise InputError(expected, got=got, where="arch_step")

    def _check_data(self, data: SearchData | None) -> None:
        if self.selection is not None and data is None:
            raise InputError("The selection needs data with validation images", where="data")
        if data is not None:
            check_search_data(data, "data")

    # Architecture parameters and their weights

    def _initial_parameters(self) -> dict[str, Tensor]:
        if not self.sampler.learns:
            return {}
        groups = self.space.groups
        start = {name: self.sampler.initial(group, self.generator) for name, group in groups.items()}
        for connection in self.connections:
            start.update(connection.initial(groups, self.generator))
        return start

    @property
    def by_name(self) -> Arch:
        """The architecture parameters, as parts take them."""
        return dict(self.arch.items())

    def draw(self) -> Noise:
        """Draw the random numbers of a step."""
        noise = self.sampler.draw(self.by_name, self.space, self.generator)
        return {name: [matrix.to(self.device) for matrix in drawn] for name, drawn in noise.items()}

    def relax(self, noise: Noise | None = None) -> RelaxedWeights:
        """Return the architecture weights of one step, for this noise or for new noise."""
        noise = self.draw() if noise is None else noise
        arch, groups = self.by_name, self.space.groups
        relaxed = self.sampler.relax(arch, noise, self.epoch, groups)
        for connection in self.connections:
            relaxed = connection.apply(relaxed, arch, self.epoch, groups)
        return relaxed

    def paths(self) -> list[RelaxedWeights]:
        return [self.relax(noise) for noise in self.sampler.paths(self.draw())]

    def probabilities(self) -> dict[str, Tensor]:
        """Return the expected weight of each operation: (edges, ops) per group."""
        groups = self.space.groups
        return {
            name: self.sampler.probabilities(beta, self.epoch, groups[name])
            for name, beta in self.arch.items()
            if name in groups
        }

    def scores(self) -> Mapping[str, Tensor]:
        if not self.sampler.learns:
            return {}
        arch = {name: beta.detach() for name, beta in self.arch.items()}
        groups = self.space.groups
        scores: Mapping[str, Tensor] = {
            name: self.sampler.scores(arch[name], self.epoch, group) for name, group in groups.items()
        }
        for connection in self.connections:
            scores = connection.scores(scores, arch, groups)
        return scores

    # The genotype

    def derive(self) -> list[Genotype]:
        if self.selection_stage is None:
            return [self.space.discretize(self.scores())]
        return [self.best()[0]]

    def best(self) -> tuple[Genotype, Judgment]:
        """Return the architecture that the selection finds with the shared weights, and its judgment."""
        assert self.selection_stage is not None
        return self.selection_stage.best(self.trainer)

    # Architecture steps

    def step(self, batches: Sequence[SearchBatch]) -> None:
        if self.arch_step is None or self.current_epoch < self.warmup_epochs:
            self.weight_step(batches)
        else:
            self.arch_step.step(self, batches)

    def arch_gradients(self, batch: SearchBatch) -> Gradients:
        """Return ∇_β of the loss that an architecture step descends."""
        assert self.arch_step is not None
        return self.arch_step.gradients(self, batch)

    def arch_descend(self) -> None:
        """Take one step of the architecture's optimizer on the accumulated gradients."""
        optimizer = self.stepper(1).optimizer  # unwrapped, so that Lightning counts only the weights' steps
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for name, group in self.space.groups.items():
                self.arch[name].copy_(self.sampler.project(self.arch[name], group))
        self.pressure.ascend(self.scores())

    def add_penalties(self, loss: Tensor, relaxed: RelaxedWeights) -> Tensor:
        """Return the loss plus the terms of all regularizers, for a step at these weights."""
        extra = self.regularization(relaxed)
        return loss if extra is None else loss + extra

    def regularization(self, relaxed: RelaxedWeights) -> Tensor | None:
        """Return the sum of the regularizers' terms and of the limits' terms."""
        terms = [term for term in self.regularizers if isinstance(term, Regularizer)]
        if not terms and not self.space.limited:
            return None
        probabilities, groups = self.probabilities(), self.space.groups
        active = relaxed.active or {}
        computed = {name: p * active[name] if name in active else p for name, p in probabilities.items()}
        values = [
            term.term(self.by_name, computed if term.computed_only else probabilities, self.epoch, groups)
            for term in terms
        ]
        return sum(values, self.pressure.term(probabilities))

    # Weight steps

    def perturb(self, relaxed: RelaxedWeights, batch: SearchBatch) -> RelaxedWeights:
        if self.perturbation is None:
            return relaxed

        def slope(weights: Weights) -> Weights:
            return self._slope(RelaxedWeights(weights, relaxed.active), batch)

        noise = {name: uniform_noise(matrix, self.generator) for name, matrix in relaxed.weights.items()}
        weights = self.perturbation.apply(relaxed.weights, noise, self.epoch, self.sampler, slope)
        return RelaxedWeights(weights, relaxed.active)

    def _slope(self, relaxed: RelaxedWeights, batch: SearchBatch) -> Weights:
        """Return ∂L_train/∂(architecture weights), zero for weights that the loss does not reach."""
        moving = {name: nn.Parameter(matrix.clone()) for name, matrix in relaxed.weights.items()}
        with torch.enable_grad(), constant(self.weight_list):
            loss = self.loss_and_logits(batch["train"], RelaxedWeights(moving, relaxed.active))[0]
            slopes = gradients(loss, list(moving.values()))
        return {
            name: torch.zeros_like(matrix) if slope is None else slope
            for (name, matrix), slope in zip(moving.items(), slopes, strict=True)
        }

    def weight_gradients(self, batch: SearchBatch, relaxed: RelaxedWeights) -> Gradients:
        found = super().weight_gradients(batch, relaxed)
        for term in self.regularizers:
            if isinstance(term, WeightRegularizer):
                found = add_gradients(found, term.gradients(self, batch["train"], relaxed, self.epoch))
        if self.operations is not None and not bool(self.operations.frozen.all()):
            loss = self.loss_and_logits(batch["valid"], relaxed)[0]
            self.validated = add_gradients(self.validated, gradients(loss, self.weight_list))
        return found

    def descend(self) -> None:
        if self.operations is not None:
            self._freeze(self.operations)
        super().descend()

    def _freeze(self, operations: OperationWeights) -> None:
        """Update which operations are frozen, and drop their gradients."""
        validated, self.validated = self.validated, []
        if validated and self.freezing is not None:
            trained = [weight.grad for weight in self.weight_list]
            cosines = operations.cosines(self.weight_list, trained, validated)
            operations.state = self.freezing.update(operations.state, cosines)
        for weight in operations.frozen_weights():
            weight.grad = None

    def virtual_step(self) -> VirtualStep:
        """Return the settings of the weights' next step."""
        optimizer = self.stepper(0).optimizer
        buffers = [optimizer.state[w].get("momentum_buffer") for w in self.weight_list]
        lr = optimizer.param_groups[0]["lr"]
        return VirtualStep(lr, self.momentum, self.weight_decay, self.clip, buffers, self.nesterov)

    # Lightning

    def check_length(self, epochs: int | None) -> None:
        super().check_length(epochs)
        if self.arch_step is not None and 0 < (epochs or 0) <= self.warmup_epochs:
            expected = f"`warmup_epochs` must be less than the {epochs} epochs of the run"
            raise InputError(expected, got=self.warmup_epochs, where="strategy.warmup_epochs")

    def configure_optimizers(self) -> list[Optimizer]:
        optimizers = super().configure_optimizers()
        optimizer = self.arch_optimizer
        if optimizer is None:
            return optimizers
        groups = self.space.groups
        free = {id(self.arch[name]) for name, group in groups.items() if not self.sampler.decays(group)}
        decaying = [parameter for parameter in self.arch_list if id(parameter) not in free]
        others = [parameter for parameter in self.arch_list if id(parameter) in free]
        lr = optimizer.default_lr if self.arch_lr is None else self.arch_lr
        return [*optimizers, optimizer.build(decaying, others, lr)]

    def on_train_start(self) -> None:
        self._stop_early()  # a resumed search that had ended enters no further epoch
        if not self.trainer.should_stop:
            super().on_train_start()
        if self.selection_stage is not None:
            self.selection_stage.begin(self.trainer)

    def enter_epoch(self) -> None:
        super().enter_epoch()
        self.epoch = Epoch(self.current_epoch, self.epochs)
        for connection in self.connections:
            self._widen(connection.partial(self.epoch))

    def _widen(self, partial: int | None) -> None:
        """Send 1/partial of the channels through the operations; weights that grow lose their momentum."""
        backbone = self.supernet.backbone
        if partial is None or partial == backbone.partial:
            return
        backbone.widen(partial, self.generator)
        state = self.stepper(0).optimizer.state
        for weight in self.weight_list:
            momentum = state.get(weight, {}).get("momentum_buffer")
            if momentum is not None and momentum.shape != weight.shape:
                del state[weight]

    def on_train_epoch_end(self) -> None:
        super().on_train_epoch_end()
        self.early_stop_state = self._updated_early_stop_state()
        self._stop_early()

    def _updated_early_stop_state(self) -> dict[str, Any]:
        """Return the state after this epoch; calling it twice counts the epoch once."""
        rule, epoch = self.early_stop, self.current_epoch
        if rule is None or self.early_stop_state.get("epoch") == epoch:
            return self.early_stop_state
        state = rule.update(self.early_stop_state, self.derive()[0], self.scores(), self.space.groups)
        return {**state, "epoch": epoch}

    def _stop_early(self) -> None:
        if self.early_stop is not None and self.early_stop.stops(self.early_stop_state):
            self.trainer.should_stop = True

    def epoch_metrics(self) -> Mapping[str, float | Tensor]:
        metrics: dict[str, float | Tensor] = {}
        if self.operations is not None:
            metrics["frozen_operations"] = self.operations.frozen.to(widest_float(self.device)).mean()
        if self.sampler.learns:
            groups, probabilities = self.space.groups, self.probabilities()
            metrics.update(self.sampler.metrics(self.by_name, self.epoch, groups))
            for regularizer in self.regularizers:
                metrics.update(regularizer.metrics(probabilities, self.epoch, groups))
            metrics.update(self.pressure.metrics(self.scores()))
        if self.selection_stage is not None:
            judgment = self.best()[1]
            validates = self.arch_step is not None and self.arch_step.validates
            side, score = "selected" if validates else "valid", task_of(self.supernet).score
            metrics.update({f"{side}_loss": judgment.loss, f"{side}_{score}": judgment.accuracy})
        return metrics

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        if any(connection.partial(self.epoch) for connection in self.connections):
            checkpoint[_PARTIAL] = self.supernet.backbone.partial
        ends = self.trainer.is_last_batch  # a run resumed from here does not end the epoch again
        checkpoint[_EARLY_STOP] = self._updated_early_stop_state() if ends else self.early_stop_state

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self.resize_to_checkpoint(checkpoint)
        self.early_stop_state = dict(checkpoint.get(_EARLY_STOP, {}))

    def resize_to_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        partial, backbone = checkpoint.get(_PARTIAL), self.supernet.backbone
        stages = {stage for connection in self.connections for stage in connection.stages}
        if partial in stages and partial != backbone.partial:
            backbone.widen(partial, torch.Generator())


_KINDS: dict[str, type[Part]] = {
    "sampler": Sampler,
    "arch_step": ArchStep,
    "arch_optimizer": ArchOptimizer,
    "edge_weights": Connection,
    "auxiliary_skip": Connection,
    "perturbation": WeightPerturbation,
    "regularizers": Term,
    "freezing": Freezing,
    "early_stop": EarlyStop,
    "selection": Selection,
}


def check_kind(name: str, value: Any) -> None:
    """Raise an `InputError` for a part of another kind than its argument."""
    kind = _KINDS.get(name, object)
    for part in value if name == "regularizers" else (value,):
        if not isinstance(part, kind) and not (part is None and name != "sampler"):
            article = "an" if kind.__name__[0] in "AEIOU" else "a"
            where = "regularizer" if name == "regularizers" else name
            raise InputError(
                f"`{where}` must be {article} {kind.__name__}", got=part, where=f"strategy.{where}"
            )


def list_terms(
    regularizer: Mapping[str, Term | None] | Iterable[Term | None] | Term | None,
) -> tuple[Term, ...]:
    """Return the terms of a list, of a mapping those that are not None, or the single one that is given.

    >>> list_terms(None), list_terms({"path": None})
    ((), ())
    """
    if isinstance(regularizer, Mapping):
        regularizer = regularizer.values()
    terms = regularizer if isinstance(regularizer, Iterable) else (regularizer,)
    return tuple(term for term in terms if term is not None)


def default_optimizer(sampler: Sampler) -> ArchOptimizer:
    """Return `Adam`, or `ExponentiatedGradient` for parameters on the simplex."""
    return ExponentiatedGradient() if sampler.on_simplex else Adam()


def add_gradients(one: Gradients, two: Gradients | None) -> Gradients:
    """Return the sum of two gradients for the same weights, of which either may be empty."""
    if not one or two is None:
        return two or one
    return [b if a is None else a if b is None else a + b for a, b in zip(one, two, strict=True)]
