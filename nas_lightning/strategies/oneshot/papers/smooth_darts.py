"""SmoothDARTS: perturbation-based regularisation (Chen & Hsieh 2020, arXiv:2002.05283)."""

from __future__ import annotations

from typing import Any, ClassVar

from nas_lightning.checks import PositiveFloat, checked
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.papers.bilevel import Bilevel
from nas_lightning.strategies.oneshot.perturbations.adversarial import Adversarial
from nas_lightning.strategies.oneshot.perturbations.random import RandomNoise


class SmoothDarts(Bilevel):
    """DARTS whose supernet is trained at weights near the architecture's.

    Args:
        space: the search space.
        supernet: its supernet.
        adversarial: at the worst of them, at seven more passes a step, instead of random ones.
        epsilon: largest change of a weight in the last epoch.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    >>> SmoothDarts(space, supernet).label
    'SmoothDarts'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Softmax + RandomNoise", "Softmax + Adversarial")

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        adversarial: bool = False,
        epsilon: PositiveFloat = 0.3,
        **bilevel: Any,
    ) -> None:
        perturbation = Adversarial(epsilon) if adversarial else RandomNoise(epsilon)
        super().__init__(space, supernet, perturbation=perturbation, **bilevel)
