"""Random search with weight sharing (Li & Talwalkar 2019, arXiv:1902.07638, section 3.2).

Every step trains the path of an architecture drawn uniformly; then architectures are drawn again, judged with
the shared weights on validation images, and the best is returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from nas_lightning.data import SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.inherited import Judgement, beside, judge_genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.weight_sharing import Relaxed, WeightSharing


class RandomWS(WeightSharing):
    """The baseline that every strategy with shared weights must beat.

    Args:
        space: the search space.
        supernet: its supernet.
        data: where the validation images come from.
        candidates: architectures judged when a genotype is derived.
        valid_batches: batches that each of them is judged on, of all processes together.
        seed: of all that is drawn.
        **weight_sharing: see `WeightSharing`.
    """

    compilable = False

    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        data: SearchData,
        *,
        candidates: int = 100,
        valid_batches: int = 4,
        seed: int = 0,
        **weight_sharing: Any,
    ) -> None:
        super().__init__(space, supernet, seed=seed, **weight_sharing)
        self.data, self.candidates, self.valid_batches, self.seed = data, candidates, valid_batches, seed
        self._judged: tuple[int, Genotype, Judgement] | None = None  # at which step

    def relax(self) -> Relaxed:
        path = self.space.one_hot(self.space.sample(self.generator))
        return Relaxed({name: matrix.to(self.device) for name, matrix in path.items()})

    def derive(self) -> list[Genotype]:
        return [self.best()[0]]

    def epoch_metrics(self) -> Mapping[str, float | Tensor]:
        judgement = self.best()[1]
        return {"valid_loss": judgement.loss, "valid_accuracy": judgement.accuracy}

    def best(self) -> tuple[Genotype, Judgement]:
        """The best of freshly drawn candidates by validation loss; the same whenever the step is the same."""
        step = self.trainer.global_step
        if self._judged is None or self._judged[0] != step:
            self._judged = step, *self._judge(torch.Generator().manual_seed(1_000_003 * self.seed + step))
        return self._judged[1:]

    def _judge(self, generator: torch.Generator) -> tuple[Genotype, Judgement]:
        drawn = dict.fromkeys(self.space.sample(generator) for _ in range(self.candidates))
        count = self.valid_batches * self.trainer.world_size  # the images that one process would judge on
        batches = beside(self.supernet, self.data.valid_batches(count))
        judged = {g: judge_genotype(self.space, self.supernet, g, batches) for g in drawn}
        return min(judged.items(), key=lambda item: item[1].loss)
