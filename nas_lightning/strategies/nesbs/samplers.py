"""Samplers of sets of architectures: from the posterior (NESBS), or without it (the baselines).

NESBS, algorithm 5.1 (Shu 2022, thesis): T rounds, each with a set of n architectures, of which the best is
taken. All samplers judge at most T × n architectures. The members of a set are distinct, because one
architecture trained twice
is a deep ensemble: Monte Carlo redraws duplicates; a particle of SVGD-RD whose architecture is taken moves to
    the nearest free one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Literal

import torch
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.inherited import InheritedWeights, Round, forward_selection
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.strategies.nesbs.posterior import Architectures, Matrices
from nas_lightning.strategies.nesbs.svgd import RelaxedArchitectures, Variance, svgd_rd
from nas_lightning.strategies.one_shot.relaxations import uniform_noise
from nas_lightning.validation import Finite, PositiveFloat, PositiveInt, Share, checked

LOWEST, HIGHEST = -2.0, 1.0  # δ (section 5.3.4)
Sampler = Literal["svgd_rd", "monte_carlo", "uniform", "nes_rs"]
DeltaSearch = Literal["grid", "optuna"]
_REDRAWS = 100  # of a duplicate, at most
_TIMED = 20  # steps of SVGD-RD whose time is measured

GenotypeSource = Callable[[], Genotype]
SetOf = Callable[[float], list[Genotype]]
"""A set of n architectures, for a δ."""


@checked
@dataclass(frozen=True)
class Sampling:
    """The settings of a sampler of sets.

    Args:
        sampler: `svgd_rd`, `monte_carlo`, or, without the posterior, `uniform` (URS) and `nes_rs`.
        size: n, the number of members of a set.
        rounds: T, the number of sets; `nes_rs` has one, from a pool of T × n.
        delta: δ of SVGD-RD, a number, or how each round chooses it from [−2, 1]: `grid` or `optuna`.
        svgd_steps: L.
        svgd_lr: ε.
        svgd_momentum: momentum of the steps.
        svgd_bandwidth: h of the kernel; None: from the median distance of the particles.
        svgd_variance: variance of the Gaussians around the candidates: the number of `operations` (thesis,
            section 5.3.4) or of `candidates`.
    """

    sampler: Sampler = "svgd_rd"
    size: PositiveInt = 3
    rounds: PositiveInt = 5
    delta: Finite | DeltaSearch = "grid"
    svgd_steps: PositiveInt = 1000
    svgd_lr: PositiveFloat = 0.1
    svgd_momentum: Share = 0.9
    svgd_bandwidth: PositiveFloat | None = None
    svgd_variance: Variance = "operations"

    def judge_sets(
        self,
        judge: InheritedWeights,
        distribution: Architectures,
        logits: Matrices,
        generator: torch.Generator,
        seed: int,
    ) -> Iterator[Round]:
        """Yield the judged sets; `logits` are α/τ, on the CPU."""
        space, p = judge.space, distribution.probabilities(logits)
        uniform = partial(space.sample, generator)
        if self.sampler == "svgd_rd":
            relaxed = RelaxedArchitectures(distribution.decisions, p, self.svgd_variance)

            def set_of(delta: float) -> list[Genotype]:
                start = relaxed.start(self.size, generator)
                return set_of_particles(space, relaxed, self.move_particles(start, relaxed, delta))

            yield from rounds_by_delta(judge, set_of, self.rounds, self.delta, seed)
        elif self.sampler == "nes_rs":
            yield nes_rs(judge, uniform, self.size, self.rounds * self.size)
        else:
            mc = self.sampler == "monte_carlo"
            draw = monte_carlo(space, distribution, logits, generator) if mc else uniform
            for _ in range(self.rounds):
                yield judge.judge(set_of_draws(space, draw, self.size, p))

    def expected_seconds(
        self, judge: InheritedWeights, distribution: Architectures, logits: Matrices
    ) -> float:
        """Return T (n t + L s), given the measured times t of a prediction and s of a step."""
        generator = torch.Generator().manual_seed(0)
        relaxed = RelaxedArchitectures(
            distribution.decisions, distribution.probabilities(logits), self.svgd_variance
        )
        for _ in range(2):  # the second counts
            start = monotonic()
            judge.predict(judge.space.sample(generator))
            judged = monotonic()
            few = replace(self, svgd_steps=_TIMED)
            few.move_particles(relaxed.start(self.size, generator), relaxed, 0.0)
            moved = monotonic()
        steps = self.svgd_steps if self.sampler == "svgd_rd" else 0
        return self.rounds * (self.size * (judged - start) + steps * (moved - judged) / _TIMED)

    def move_particles(self, particles: Tensor, relaxed: RelaxedArchitectures, delta: float) -> Tensor:
        """Return the particles after SVGD-RD."""
        return svgd_rd(
            particles,
            relaxed.score,
            delta=delta,
            steps=self.svgd_steps,
            lr=self.svgd_lr,
            momentum=self.svgd_momentum,
            bandwidth=self.svgd_bandwidth,
        )


def set_of_draws(space: SearchSpace, draw: GenotypeSource, size: int, scores: Matrices) -> list[Genotype]:
    """Draw `size` distinct architectures; after 100 duplicates take the best-scored neighbor."""
    members: list[Genotype] = []
    for _ in range(size):
        genotype = draw()
        for _ in range(_REDRAWS):
            if genotype not in members:
                break
            genotype = draw()
        members.append(nearest(space, genotype, scores, members))
    return members


def monte_carlo(
    space: SearchSpace, distribution: Architectures, logits: Matrices, generator: torch.Generator
) -> GenotypeSource:
    """Return a function that samples from the posterior (algorithm 5.2)."""

    def draw() -> Genotype:
        noise = {name: uniform_noise(matrix, generator) for name, matrix in logits.items()}
        return space.discretize(distribution.sample(logits, noise, tau=1.0))

    return draw


def set_of_particles(space: SearchSpace, relaxed: RelaxedArchitectures, particles: Tensor) -> list[Genotype]:
    """Return the architectures that particles represent (5.9): (n, d) → n."""
    found: list[Genotype] = []
    for particle in particles:
        scores = relaxed.scores(particle)
        found.append(nearest(space, space.discretize(scores), scores, found))
    return found


def nearest(
    space: SearchSpace, genotype: Genotype, scores: Matrices, taken: Collection[Genotype]
) -> Genotype:
    """Return the genotype, or if it is taken its free neighbor that is nearest to the scores.

    All one-hot vectors have the same norm, so the nearest has the largest inner product.
    """
    if genotype not in taken:
        return genotype
    free = [other for other in space.neighbors(genotype) if other not in taken]
    if not free:
        raise InputError(
            "The space has too few architectures for so many members",
            got=len(taken) + 1,
            where="strategy.size",
        )

    def product(other: Genotype) -> float:
        chosen = space.one_hot(other)
        return sum(float((chosen[name].to(matrix) * matrix).sum()) for name, matrix in scores.items())

    return max(free, key=product)


def rounds_by_delta(
    judge: InheritedWeights, set_of: SetOf, rounds: int, delta: float | DeltaSearch, seed: int
) -> Iterator[Round]:
    """Yield a round for every δ: a fixed one, equal steps over [−2, 1], or Optuna's proposals."""
    if delta == "optuna":
        yield from _by_optuna(judge, set_of, rounds, seed)
        return
    if delta == "grid":  # a single round is SVGD's
        deltas = torch.linspace(LOWEST, HIGHEST, rounds).tolist() if rounds > 1 else [0.0]
    else:
        deltas = [float(delta)] * rounds
    for value in deltas:
        yield judge.judge(set_of(value), value)


def _by_optuna(judge: InheritedWeights, set_of: SetOf, rounds: int, seed: int) -> Iterator[Round]:
    """Yield rounds whose δ a Gaussian process proposes to minimize the loss of its set."""
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=min(2, rounds))
        study = optuna.create_study(sampler=sampler)
        for _ in range(rounds):
            trial = study.ask()
            delta = trial.suggest_float("delta", LOWEST, HIGHEST)
            result = judge.judge(set_of(delta), delta)
            study.tell(trial, result.loss)
            yield result
    finally:
        optuna.logging.set_verbosity(verbosity)


def nes_rs(judge: InheritedWeights, draw: GenotypeSource, size: int, pool: int) -> Round:
    """Select `size` members of a random pool (NES-RS, Zaidi et al. 2021, arXiv:2006.08573)."""
    none = {name: torch.zeros(group.shape) for name, group in judge.space.groups.items()}
    candidates = set_of_draws(judge.space, draw, pool, none)
    return judge.judge(forward_selection(candidates, size, judge.loss))
