"""FairNAS: strict fairness (Chu et al. 2021, arXiv:1907.01845)."""

from __future__ import annotations

from typing import ClassVar

from nas_lightning.strategies.oneshot.papers.single_path import SinglePath
from nas_lightning.strategies.oneshot.samplers.fair import Fair
from nas_lightning.strategies.oneshot.samplers.uniform import Paths


class FairNas(SinglePath):
    """Paths that train every operation equally often, then evolution over the shared weights.

    Its arguments are those of `SinglePath`.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    >>> FairNas(space, supernet, SearchData(Digits())).label
    'FairNas'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Fair + InheritedEvolution",)
    path_sampler: ClassVar[Paths] = Fair()
