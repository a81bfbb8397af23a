"""The architecture parameters of a search, and the weights that its parts make of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet, Weights
from nas_lightning.strategies.limit_pressure import LimitPressure
from nas_lightning.strategies.oneshot.composition import Composition
from nas_lightning.strategies.oneshot.relaxations import uniform_noise
from nas_lightning.strategies.oneshot.values import Arch, Epoch, Noise, RelaxedWeights, SearchBatch
from nas_lightning.strategies.oneshot.weight_sharing import WeightSharing
from nas_lightning.training.gradients import constant, gradients


class ArchParameters(WeightSharing):
    """A supernet's training whose architecture weights follow from parts.

    Args:
        space: the search space.
        supernet: its supernet.
        **weight_sharing: the settings of the weights, see `WeightSharing`.
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
        """The loss with the terms of all regularisers, which share what they are computed from."""
        extra = self.regularisation()
        return loss if extra is None else loss + extra

    def regularisation(self) -> Tensor | None:
        """The sum of all regularisers' terms, and of what limits add."""
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
