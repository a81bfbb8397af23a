"""Random search with weight sharing (Li & Talwalkar 2019, arXiv:1902.07638, section 3.2).

Every step trains the path of an architecture drawn uniformly; then architectures are drawn again, judged with
the shared weights on validation images, and the best is returned.
"""

from __future__ import annotations

from typing import Any

import torch

from nas_lightning.analysis.shared_weights import beside, judge_genotype
from nas_lightning.data import SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.weight_sharing import Relaxed, WeightSharing


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
        self._derived: tuple[int, list[Genotype]] | None = None  # at which step

    def relax(self) -> Relaxed:
        path = self.space.one_hot(self.space.sample(self.generator))
        return Relaxed({name: matrix.to(self.device) for name, matrix in path.items()})

    def derive(self) -> list[Genotype]:
        step = self.trainer.global_step
        if self._derived is None or self._derived[0] != step:
            self._derived = step, self._judged(torch.Generator().manual_seed(1_000_003 * self.seed + step))
        return self._derived[1]

    def _judged(self, generator: torch.Generator) -> list[Genotype]:
        """Distinct candidates, the smallest validation loss first; the same whenever the step is the same."""
        drawn = list(dict.fromkeys(self.space.sample(generator) for _ in range(self.candidates)))
        count = self.valid_batches * self.trainer.world_size  # the images that one process would judge on
        batches = beside(self.supernet, self.data.valid_batches(count))
        losses = {g: judge_genotype(self.space, self.supernet, g, batches).loss for g in drawn}
        return sorted(drawn, key=lambda genotype: losses[genotype])[:1]
