"""Random search with weight sharing (Li & Talwalkar 2019, arXiv:1902.07638, section 3.2)."""

from __future__ import annotations

from typing import Any, ClassVar

from nas_lightning.checks import PositiveInt, checked
from nas_lightning.data import SearchData
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.samplers.uniform import Uniform
from nas_lightning.strategies.oneshot.selection.candidates import RandomCandidates
from nas_lightning.strategies.oneshot.strategy import OneShot


class RandomWS(OneShot):
    """The baseline that every strategy with shared weights must beat.

    Every step trains the path of an architecture drawn uniformly; then architectures are drawn again, judged
    with the shared weights on validation images, and the best is returned.

    Args:
        space: the search space.
        supernet: its supernet.
        data: where the validation images come from.
        candidates: architectures judged when a genotype is derived.
        valid_batches: batches that each of them is judged on, of all processes together.
        **one_shot: see `OneShot`.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=10, channels=2, cells=1)
    >>> search = RandomWS(space, supernet, SearchData(Digits()), candidates=10)
    >>> search.label, sorted(search.relax().weights["cell"].sum(dim=1).tolist())
    ('RandomWS', [1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    """

    made_of: ClassVar[tuple[str, ...]] = ("Uniform + RandomCandidates",)

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        data: SearchData,
        *,
        candidates: PositiveInt = 100,
        valid_batches: PositiveInt = 4,
        **one_shot: Any,
    ) -> None:
        selection = RandomCandidates(candidates, valid_batches)
        super().__init__(space, supernet, data, sampler=Uniform(), selection=selection, **one_shot)
