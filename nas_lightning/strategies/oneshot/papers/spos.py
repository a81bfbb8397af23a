"""Single Path One-Shot (Guo et al. 2020, arXiv:1904.00420)."""

from __future__ import annotations

from typing import ClassVar

from nas_lightning.strategies.oneshot.papers.single_path import SinglePath
from nas_lightning.strategies.oneshot.samplers.uniform import Paths, Uniform


class Spos(SinglePath):
    """Uniform paths, then evolution over the shared weights; its arguments are those of `SinglePath`.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    >>> Spos(space, supernet, SearchData(Digits())).label
    'Spos'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Uniform + InheritedEvolution",)
    path_sampler: ClassVar[Paths] = Uniform()
