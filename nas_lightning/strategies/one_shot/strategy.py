"""One-shot search: a supernet and the parts that say how it is searched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nas_lightning.data import SearchData
from nas_lightning.data.search import check_search_data
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.inherited import Judgment
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.operations import SKIP
from nas_lightning.spaces.supernet import Supernet, Weights
from nas_lightning.strategies.one_shot.arch_steps import Adam, ExponentiatedGradient, FirstOrder
from nas_lightning.strategies.one_shot.freezing import cosine
from nas_lightning.strategies.one_shot.parts import (
    Arch,
    ArchOptimizer,
    ArchStep,
    Connection,
    Epoch,
    FreezeState,
    Freezing,
    Noise,
    Part,
    Regularizer,
    RelaxedWeights,
    Sampler,
    SearchBatch,
    Selection,
    Stopping,
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
from nas_lightning.validation import NonNegativeInt, PositiveFloat, Seed, checked

# What a one-shot search is called, and what its log counts.


def paper_names(one_shot: type[Any]) -> dict[str, str]:
    """The names of compositions: those of the classes in the folder of papers, and of a user's own."""
    import_module("nas_lightning.strategies.one_shot.papers")
    papers = {paper.__name__: vars(paper).get("made_of", ()) for paper in _subclasses(one_shot)}
    return {made_of: name for name, compositions in papers.items() for made_of in compositions}


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for paper in kind.__subclasses__():
        yield paper
        yield from _subclasses(paper)


def skip_counts(space: SearchSpace, scores: Mapping[str, Tensor]) -> dict[str, float]:
    """How many edges of each cell the scores (edges, ops) would make skips, by the name that is logged."""
    genotype = space.discretize(scores)
    names = [name for name, group in space.groups.items() if group.on_edges and SKIP in group.ops]
    return {f"skips/{name}": float(sum(e.op == SKIP for e in genotype[name].edges)) for name in names}


# The parts of one search together: their name, and whether they fit.

USUAL = (FirstOrder, Adam, ExponentiatedGradient)
"""Parts that go unsaid in a composition's name."""
SOFTMAX = Softmax()
_KINDS: dict[str, type[Part]] = {
    "sampler": Sampler,
    "arch_step": ArchStep,
    "arch_optimizer": ArchOptimizer,
    "partial": Connection,
    "auxiliary": Connection,
    "perturbation": WeightPerturbation,
    "regularizer": Term,
    "freezing": Freezing,
    "stopping": Stopping,
    "selection": Selection,
}


@dataclass(frozen=True)
class Composition:
    """The parts of a search.

    Args:
        sampler: how architecture parameters become weights.
        arch_step: which gradient they descend; None where there are none.
        arch_optimizer: what descends it; None where there are none.
        partial: weights of edges.
        auxiliary: a connection that is there while searching only.
        perturbation: other weights that the supernet is trained at.
        regularizers: terms of the losses.
        freezing: a rule by which the weights of single operations stop to learn.
        stopping: a rule that ends the search early.
        selection: how the trained supernet is searched.

    >>> str(Composition(Softmax(), FirstOrder(), Adam()))
    'Softmax'
    """

    sampler: Sampler
    arch_step: ArchStep | None
    arch_optimizer: ArchOptimizer | None
    partial: Connection | None = None
    auxiliary: Connection | None = None
    perturbation: WeightPerturbation | None = None
    regularizers: tuple[Term, ...] = ()
    freezing: Freezing | None = None
    stopping: Stopping | None = None
    selection: Selection | None = None

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            for part in self.regularizers if name == "regularizer" else (getattr(self, name),):
                if not isinstance(part, (kind, type(None))):
                    article = "an" if kind.__name__[0] in "AEIOU" else "a"
                    where = f"strategy.{name}"
                    raise InputError(f"expected {article} {kind.__name__}", got=part, where=where)

    def __iter__(self) -> Iterator[Part]:
        single = (
            *(self.sampler, self.arch_step, self.arch_optimizer, self.partial, self.auxiliary),
            *(self.perturbation, *self.regularizers, self.freezing, self.stopping, self.selection),
        )
        return (part for part in single if part is not None)

    def __str__(self) -> str:
        return " + ".join(type(part).__name__ for part in self if not isinstance(part, USUAL))

    @property
    def connections(self) -> list[Connection]:
        """What changes the sampled weights, in this order."""
        return [part for part in (self.partial, self.auxiliary) if part is not None]

    @property
    def arch_terms(self) -> list[Regularizer]:
        """Those of the architecture's loss."""
        return [part for part in self.regularizers if isinstance(part, Regularizer)]

    @property
    def weight_terms(self) -> list[WeightRegularizer]:
        """Those of the supernet's."""
        return [part for part in self.regularizers if isinstance(part, WeightRegularizer)]

    def check(self, space: SearchSpace) -> None:
        """Raise an `InputError` for parts that do not fit together or do not fit the space."""
        if not self.sampler.learns:
            self._check_paths()
        elif self.arch_optimizer is not None and self.arch_optimizer.on_simplex != self.sampler.on_simplex:
            lie = "lie" if self.sampler.on_simplex else "do not lie"
            reason = f"because the parameters of {type(self.sampler).__name__} {lie} on the simplex"
            wanted, got = usual_optimizer(self.sampler), type(self.arch_optimizer).__name__
            raise InputError(f"expected {type(wanted).__name__}, {reason}", got=got, where="arch_optimizer")
        if self.arch_step is not None and not self.arch_step.validates:
            self._check_own_step(type(self.arch_step).__name__)
        for part in self:
            part.check(self, space)

    def check_settings(self, data: SearchData | None, **of_parameters: float | None) -> None:
        """Raise for settings of parameters that there are not, or for data that a selection lacks."""
        if not self.sampler.learns:
            reason = f"because the sampler {type(self.sampler).__name__} has no parameters"
            for name, value in of_parameters.items():
                if value:
                    raise InputError(f"expected no {name}, {reason}", got=value, where=f"strategy.{name}")
        if self.selection is not None and data is None:
            expected = "expected data with validation images, which the selection judges on"
            raise InputError(expected, where="data")
        if data is not None:
            check_search_data(data, "data")

    def _check_own_step(self, got: str) -> None:
        """One loss for weights and parameters leaves the weights no step on validation images beside."""
        beside = "expected an arch_step beside it, because"
        if self.perturbation is not None:
            expected = f"{beside} a perturbation is for the weights' own step"
            raise InputError(expected, got=got, where="arch_step")
        if self.weight_terms:
            expected = f"{beside} a term of the weights' loss is for their own step"
            raise InputError(expected, got=got, where="arch_step")
        if self.freezing is not None:
            reason = "because the gradients of training images are compared with those of validation images"
            raise InputError(f"expected an arch_step on both, {reason}", got=got, where="arch_step")

    def _check_paths(self) -> None:
        """Without parameters there is nothing to learn, and a search of the supernet instead."""
        name = type(self.sampler).__name__
        learning = {"partial": self.partial, "regularizer": next(iter(self.regularizers), None)}
        steps = {"arch_step": self.arch_step, "arch_optimizer": self.arch_optimizer}
        for kind, part in {**steps, **learning, "freezing": self.freezing, "stop": self.stopping}.items():
            if part is not None:
                reason = f"because the sampler {name} has no parameters"
                raise InputError(f"expected no {kind}, {reason}", got=type(part).__name__, where=kind)
        if self.selection is None:
            reason = f"because the sampler {name} has no parameters to derive a genotype from"
            raise InputError(f"expected a selection, {reason}", got="none", where="selection")


def composition(
    sampler: Sampler,
    arch_step: ArchStep | None,
    arch_optimizer: ArchOptimizer | None,
    **others: Any,
) -> Composition:
    """The parts, with those that a sampler needs where none are given."""
    if sampler.learns:
        arch_step = arch_step or FirstOrder()
        arch_optimizer = arch_optimizer or usual_optimizer(sampler)
    return Composition(sampler, arch_step, arch_optimizer, **others)


def listed_terms(regularizer: Mapping[str, Term | None] | Iterable[Term] | Term | None) -> tuple[Term, ...]:
    """The terms of a list, of a mapping those that are not left out by null, or the one that is given.

    >>> listed_terms(None), listed_terms({"path": None})
    ((), ())
    """
    if regularizer is None:
        return ()
    if isinstance(regularizer, Mapping):
        return tuple(term for term in regularizer.values() if term is not None)
    return tuple(regularizer) if isinstance(regularizer, Iterable) else (regularizer,)


def usual_optimizer(sampler: Sampler) -> ArchOptimizer:
    """Adam, unless the parameters live elsewhere than in ℝ."""
    return ExponentiatedGradient() if sampler.on_simplex else Adam()


# The architecture parameters of a search, and the weights that its parts make of them.


class ArchParameters(SupernetStrategy):
    """A supernet's training whose architecture weights follow from parts.

    Args:
        space: the search space.
        supernet: its supernet.
        **weight_sharing: the settings of the weights, see `SupernetStrategy`.
    """

    parts: Composition
    """Those of the search, set before the rest."""

    def __init__(self, space: SearchSpace, supernet: Supernet, **weight_sharing: Any) -> None:
        self.compilable = not self.parts.sampler.varies
        super().__init__(space, supernet, **weight_sharing)
        self.arch = nn.ParameterDict(self._initial_parameters())
        self.arch_list = list(self.arch.parameters())
        self.pressure = LimitPressure(space)
        self.epoch = Epoch(0, 2)  # until a fit says how long it is

    def _initial_parameters(self) -> dict[str, Tensor]:
        groups, sampler = self.space.groups, self.parts.sampler
        if not sampler.learns:
            return {}
        start = {name: sampler.initial(group, self.generator) for name, group in groups.items()}
        for connection in self.parts.connections:
            start.update(connection.initial(groups, self.generator))
        return start

    @property
    def by_name(self) -> Arch:
        """The parameters, as parts take them."""
        return dict(self.arch.items())

    def enter_epoch(self) -> None:
        super().enter_epoch()
        self.epoch = Epoch(self.current_epoch, self.epochs)

    def draw(self) -> Noise:
        """The random numbers of a step."""
        noise = self.parts.sampler.draw(self.by_name, self.space, self.generator)
        return {name: [matrix.to(self.device) for matrix in drawn] for name, drawn in noise.items()}

    def relax(self, noise: Noise | None = None) -> RelaxedWeights:
        """The architecture weights of one step, for these random numbers or for new ones."""
        noise = self.draw() if noise is None else noise
        arch, groups = self.by_name, self.space.groups
        relaxed = self.parts.sampler.relax(arch, noise, self.epoch, groups)
        for connection in self.parts.connections:
            relaxed = connection.apply(relaxed, arch, self.epoch, groups)
        return relaxed

    def paths(self) -> list[RelaxedWeights]:
        return [self.relax(noise) for noise in self.parts.sampler.paths(self.draw())]

    def perturb(self, relaxed: RelaxedWeights, batch: SearchBatch) -> RelaxedWeights:
        perturbation = self.parts.perturbation
        if perturbation is None:
            return relaxed

        def slope(weights: Weights) -> Weights:
            return self._slope(RelaxedWeights(weights, relaxed.active), batch)

        noise = {name: uniform_noise(matrix, self.generator) for name, matrix in relaxed.weights.items()}
        weights = perturbation.apply(relaxed.weights, noise, self.epoch, self.parts.sampler, slope)
        return RelaxedWeights(weights, relaxed.active)

    def _slope(self, relaxed: RelaxedWeights, batch: SearchBatch) -> Weights:
        """∂L_train/∂w of the architecture's weights, zero for those that it does not reach."""
        moving = {name: nn.Parameter(matrix.clone()) for name, matrix in relaxed.weights.items()}
        with torch.enable_grad(), constant(self.weight_list):
            loss = self.cross_entropy(batch["train"], RelaxedWeights(moving, relaxed.active))[0]
            slopes = gradients(loss, list(moving.values()))
        return {
            name: torch.zeros_like(matrix) if slope is None else slope
            for (name, matrix), slope in zip(moving.items(), slopes, strict=True)
        }

    def add_penalties(self, loss: Tensor) -> Tensor:
        """The loss with the terms of all regularizers, which share what they are computed from."""
        extra = self.regularization()
        return loss if extra is None else loss + extra

    def regularization(self) -> Tensor | None:
        """The sum of all regularizers' terms, and of what limits add."""
        if not self.parts.arch_terms and not self.space.limited:
            return None
        probabilities, groups = self.probabilities(), self.space.groups
        terms = [part.term(self.by_name, probabilities, self.epoch, groups) for part in self.parts.arch_terms]
        return sum(terms, self.pressure.term(probabilities))

    def probabilities(self) -> dict[str, Tensor]:
        """What each operation is expected to have now: (edges, ops) per group."""
        sampler, groups = self.parts.sampler, self.space.groups
        return {
            name: sampler.probabilities(beta, self.epoch, groups[name])
            for name, beta in self.arch.items()
            if name in groups
        }

    def scores(self) -> Mapping[str, Tensor]:
        if not self.parts.sampler.learns:
            return {}
        arch = {name: beta.detach() for name, beta in self.arch.items()}
        groups, sampler = self.space.groups, self.parts.sampler
        scores: Mapping[str, Tensor] = {
            name: sampler.scores(arch[name], self.epoch, group) for name, group in groups.items()
        }
        for connection in self.parts.connections:
            scores = connection.scores(scores, arch, groups)
        return scores


# Steps of the weights with what parts add to them: terms of the loss, and operations that learn no more.

_PARTIAL = "partial"  # in a checkpoint


class WeightTerms(ArchParameters):
    """What a step of the weights descends, and which of them it leaves alone.

    Args:
        space: the search space.
        supernet: its supernet.
        **weight_sharing: the settings of the weights, see `SupernetStrategy`.
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
        self.resize_to_checkpoint(checkpoint)

    def resize_to_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
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
    def learning(self) -> FreezeState:
        """What is known of each operation."""
        return FreezeState(self.sums, self.counts, self.frozen)

    @learning.setter
    def learning(self, learning: FreezeState) -> None:
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


# One-shot search: a supernet whose weights all architectures share, and parts that say how it is searched.
#
#     min_β L_val(w*(β), β)   subject to   w*(β) = arg min_w L_train(w, β)
#
# is followed by alternating steps of β and w (Liu et al. 2019, arXiv:1806.09055). What differs between papers
# are parts: how β becomes weights, which gradient β descends, what is added to the loss, at which weights w
# is trained, when the search ends. A paper is a composition with a name.

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
        regularizer: terms of the losses, one, listed or by name; a name with None leaves its term out.
        freezing: a rule by which the weights of single operations stop to learn.
        stopping: a rule that ends the search early.
        selection: how the trained supernet is searched; without one the sampler's scores decide.
        arch_lr: learning rate of the architecture parameters; None: that of the optimizer's paper.
        warmup_epochs: epochs that train the weights alone.
        seed: of everything that is drawn.
        **weight_sharing: the settings of the weights, see `SupernetStrategy`.

    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.strategies.one_shot.regularizers import PathDepth
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    >>> OneShot(space, supernet, regularizer=[PathDepth()]).label
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
        regularizer: Mapping[str, Term | None] | Sequence[Term] | Term | None = None,
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
            regularizers=listed_terms(regularizer),
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
        """One step of the architecture's optimizer on the gradients that came together."""
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
            return [self.space.discretize(self.scores())]
        return [self.best()[0]]

    def best(self) -> tuple[Genotype, Judgment]:
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
            for regularizer in self.parts.regularizers:
                metrics.update(regularizer.metrics(probabilities, self.epoch, groups))
            metrics.update(skip_counts(self.space, self.scores()))
            metrics.update(self.pressure.metrics(self.scores()))
        if self.selected is not None:
            judgment = self.best()[1]
            side = "selected" if self._validates() else "valid"
            metrics.update(
                {f"{side}_loss": judgment.loss, f"{side}_{task_of(self.supernet).score}": judgment.accuracy}
            )
        return metrics

    def _validates(self) -> bool:
        return self.parts.arch_step is not None and self.parts.arch_step.validates
