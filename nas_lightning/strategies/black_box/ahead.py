"""Short trainings ahead of their rounds: whoever has several processes trains what is likely to come next.

An accuracy follows from the seed and the architecture alone. So a search comes to the same, whatever was
expected; what no round asks for was trained for nothing, beside what one did ask for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from nas_lightning.backends import Backend, check_backend, is_alone, spread, width
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.evaluation_time import evaluate_timed
from nas_lightning.objectives.short_training import AccuracyObjective, ShortTraining
from nas_lightning.spaces.network import NetworkFactory

Timed = tuple[float, float] | None  # value and seconds; None where time was over


class Ahead:
    """Values that were trained before they were asked for.

    Args:
        training: what is done to an architecture; None: nothing that takes other processes.
        workers: processes of this machine.
        backend: whose processes.
    """

    def __init__(self, training: ShortTraining | None, workers: int, backend: Backend) -> None:
        check_backend(backend, "strategy.backend")
        training = None if is_alone(workers, backend) else training
        self.training, self.workers, self.backend = training, workers, backend
        self.values: dict[str, Timed] = {}

    def evaluate(
        self,
        objective: AccuracyObjective,
        genotype: Genotype,
        network: NetworkFactory,
        expected: Callable[[int], list[Genotype]],
    ) -> Timed:
        """Its value and seconds; a training that is not there is done with others that are expected."""
        if self.training is None:
            return evaluate_timed(objective, genotype)
        name = self.training.space.notation(genotype)
        if name not in self.values:
            others = expected(width(self.backend, self.workers) - 1)
            self._train(self.training.to_send(network), [genotype, *others])
        return self.values.pop(name)

    def _train(self, training: ShortTraining, genotypes: list[Genotype]) -> None:
        names = {training.space.notation(genotype): genotype for genotype in genotypes}
        todo = [(name, genotype) for name, genotype in names.items() if name not in self.values]
        work = partial(_evaluate, training)
        self.values |= dict(spread(work, todo, workers=self.workers, backend=self.backend))


def _evaluate(training: ShortTraining, name: str, genotype: Genotype) -> tuple[str, Timed]:
    return name, evaluate_timed(training, genotype)
