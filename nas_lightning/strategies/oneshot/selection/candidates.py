"""The best of architectures that are drawn uniformly (Li & Talwalkar 2019, arXiv:1902.07638, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from nas_lightning.checks import PositiveInt, checked
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.inherited import Batch, Judgement, judge_in_time
from nas_lightning.progress import never
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.parts import Selection


@checked
@dataclass(frozen=True)
class RandomCandidates(Selection):
    """arg min of the validation loss with the shared weights, over architectures drawn uniformly.

    Args:
        candidates: architectures that are judged.
        valid_batches: batches that each of them is judged on, of all processes together.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    >>> batch = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 0, 1])
    >>> genotype, judgement = RandomCandidates(3).best(space, supernet, [batch], torch.Generator())
    >>> genotype.space, 0 <= judgement.accuracy <= 1
    ('nasbench201', True)
    """

    candidates: PositiveInt = 100
    valid_batches: PositiveInt = 4

    @property
    def judgements(self) -> int:
        return self.candidates

    def best(
        self,
        space: SearchSpace,
        supernet: Supernet,
        batches: Sequence[Batch],
        generator: torch.Generator,
        out_of_time: Callable[[], bool] = never,
    ) -> tuple[Genotype, Judgement]:
        drawn = dict.fromkeys(space.sample(generator) for _ in range(self.candidates))
        judged = judge_in_time(space, supernet, drawn, batches, out_of_time)
        return min(judged.items(), key=lambda item: item[1].loss)
