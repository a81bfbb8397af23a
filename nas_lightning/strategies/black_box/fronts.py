"""Base of searches without a supernet that can have several objectives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.fronts import ACCURACY, RANKING, Candidate, Front, Objectives
from nas_lightning.objectives.rankings import MetricsChoice, log_ranks, metrics_of
from nas_lightning.objectives.tables import TabularBenchmark
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.strategies.black_box.base import BlackBox
from nas_lightning.utils.processes import from_first
from nas_lightning.validation import checked


class FrontSearch(BlackBox):
    """Base class of strategies that return a Pareto front with objectives, else the best architecture.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: the images.
        benchmark: the table for `evaluation="table"`.
        objectives: the objectives of a search for a Pareto front.
        metrics: metrics of the ranking. None: the space's, or `default`: `COMBINED`; `top`: `AT_THE_TOP`.
        **black_box: see `BlackBox`.
    """

    ranks_candidates: ClassVar[bool] = False
    """Whether the ranking decides which architectures are evaluated."""

    @checked
    def __init__(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        data: SearchData,
        benchmark: TabularBenchmark | None = None,
        objectives: Objectives | None = None,
        *,
        metrics: MetricsChoice | None = None,
        **black_box: Any,
    ) -> None:
        super().__init__(space, network, data, benchmark, **black_box)
        self.objectives, self.costs = objectives, dict[str, Mapping[str, float]]()
        self.ranked = metrics_of(space, metrics, "default")
        self.metrics = self.ranked if self.objective is None or self.ranks_candidates else {}
        if objectives is None:
            return
        names = objectives.names
        is_ranked = RANKING in names or (ACCURACY in names and self.ranks_candidates)
        ranked = self.ranked if is_ranked else {}
        self.metrics = {**objectives.metrics, **ranked}
        if metrics is not None and not ranked:
            raise InputError(f"`strategy.metrics` needs the objective {RANKING}", where="objectives")
        if (ACCURACY in objectives.names) != (self.objective is not None):
            expected = f"The objective {ACCURACY} and an evaluation (strategy.evaluation) need each other"
            raise InputError(expected, got=", ".join(objectives.names), where="objectives")

    def look_at(self, genotype: Genotype) -> dict[str, float]:
        """Score, evaluate, and count an architecture as its objectives need, and return metrics to log."""
        values = {}
        if self.metrics:
            self.score([genotype])
        if self.objective is not None:
            values = {f"candidate/{self.objective.name}": self.evaluate(genotype) / 100}
        self.count(genotype)
        return values

    def count(self, genotype: Genotype) -> None:
        """Compute the costs of its network, if they are objectives."""
        objectives, notation = self.objectives, self.space.notation(genotype)
        if objectives is not None and objectives.of_costs and notation not in self.costs:
            self.costs[notation] = from_first(lambda: dict(objectives.costs(genotype)))

    def seen(self) -> list[str]:
        """Return the notations of all architectures whose objectives are known."""
        assert self.objectives is not None
        parts: list[Mapping[str, Any]] = [self.scored] if self.metrics else []
        parts += [self.evaluated] if self.objective is not None else []
        parts += [self.costs] if self.objectives.of_costs else []
        return [name for name in parts[0] if all(name in part for part in parts)]

    def candidates(self, notations: list[str]) -> list[Candidate]:
        """Return the known values of these architectures."""
        return [
            Candidate(self.costs.get(name, {}), self.scored.get(name, {}), self.evaluated.get(name))
            for name in notations
        ]

    def ranking(self) -> dict[str, float]:
        values = log_ranks(list(self.scored.values()), self.ranked)
        return dict(zip(self.scored, values, strict=True))

    def front(self) -> Front | None:
        seen = self.seen() if self.objectives is not None else []
        if self.objectives is None or not seen:
            return None
        genotypes = [self.space.parse(name) for name in seen]
        return self.objectives.summary(genotypes, self.candidates(seen), self.ranked)

    def derive(self) -> list[Genotype]:
        """Return the front if there are several objectives, else the best architecture."""
        front = self.front()
        return super().derive() if front is None else list(front.genotypes)

    def _progress(self) -> dict[str, float]:
        counted = {} if self.objectives is None or self.metrics else {"num_scored": len(self.costs)}
        return {**super()._progress(), **counted}

    def search_state(self) -> dict[str, Any]:
        return {**super().search_state(), "costs": {name: dict(costs) for name, costs in self.costs.items()}}

    def load_search_state(self, state: Mapping[str, Any]) -> None:
        super().load_search_state(state)
        self.costs = dict(state["costs"])
