"""The parts of one search together: their name, and whether they fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nas_lightning.data import SearchData
from nas_lightning.data.search import check_search_data
from nas_lightning.errors import InputError
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.strategies.oneshot.arch_steps.adam import Adam
from nas_lightning.strategies.oneshot.arch_steps.exponentiated import ExponentiatedGradient
from nas_lightning.strategies.oneshot.arch_steps.first_order import FirstOrder
from nas_lightning.strategies.oneshot.parts import (
    ArchOptimizer,
    ArchStep,
    Connection,
    Part,
    Regulariser,
    Sampler,
    Selection,
    Term,
    WeightPerturbation,
    WeightRegulariser,
)
from nas_lightning.strategies.oneshot.rules import Freezing, Stopping
from nas_lightning.strategies.oneshot.samplers.softmax import Softmax

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
    "regulariser": Term,
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
        regularisers: terms of the losses.
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
    regularisers: tuple[Term, ...] = ()
    freezing: Freezing | None = None
    stopping: Stopping | None = None
    selection: Selection | None = None

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            for part in self.regularisers if name == "regulariser" else (getattr(self, name),):
                if not isinstance(part, (kind, type(None))):
                    article = "an" if kind.__name__[0] in "AEIOU" else "a"
                    where = f"strategy.{name}"
                    raise InputError(f"expected {article} {kind.__name__}", got=part, where=where)

    def __iter__(self) -> Iterator[Part]:
        single = (
            *(self.sampler, self.arch_step, self.arch_optimizer, self.partial, self.auxiliary),
            *(self.perturbation, *self.regularisers, self.freezing, self.stopping, self.selection),
        )
        return (part for part in single if part is not None)

    def __str__(self) -> str:
        return " + ".join(type(part).__name__ for part in self if not isinstance(part, USUAL))

    @property
    def connections(self) -> list[Connection]:
        """What changes the sampled weights, in this order."""
        return [part for part in (self.partial, self.auxiliary) if part is not None]

    @property
    def arch_terms(self) -> list[Regulariser]:
        """Those of the architecture's loss."""
        return [part for part in self.regularisers if isinstance(part, Regulariser)]

    @property
    def weight_terms(self) -> list[WeightRegulariser]:
        """Those of the supernet's."""
        return [part for part in self.regularisers if isinstance(part, WeightRegulariser)]

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
        learning = {"partial": self.partial, "regulariser": next(iter(self.regularisers), None)}
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


def listed_terms(regulariser: Mapping[str, Term | None] | Iterable[Term] | Term | None) -> tuple[Term, ...]:
    """The terms of a list, of a mapping those that are not left out by null, or the one that is given.

    >>> listed_terms(None), listed_terms({"path": None})
    ((), ())
    """
    if regulariser is None:
        return ()
    if isinstance(regulariser, Mapping):
        return tuple(term for term in regulariser.values() if term is not None)
    return tuple(regulariser) if isinstance(regulariser, Iterable) else (regulariser,)


def usual_optimizer(sampler: Sampler) -> ArchOptimizer:
    """Adam, unless the parameters live elsewhere than in ℝ."""
    return ExponentiatedGradient() if sampler.on_simplex else Adam()
