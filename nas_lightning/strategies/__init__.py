"""Search strategies: each one file, one final subclass of `Strategy`."""

from typing import TYPE_CHECKING

from nas_lightning.rooms import names_of
from nas_lightning.strategies.base import Strategy
from nas_lightning.strategies.black_box.eigen_nas import EigenNas, Knas
from nas_lightning.strategies.black_box.evolution import Evolution
from nas_lightning.strategies.black_box.hnas import Hnas
from nas_lightning.strategies.black_box.metric_search import MetricSearch
from nas_lightning.strategies.black_box.random_search import RandomSearch
from nas_lightning.strategies.nasi.strategy import Nasi
from nas_lightning.strategies.oneshot.bilevel import Bilevel
from nas_lightning.strategies.oneshot.darts import Darts
from nas_lightning.strategies.oneshot.fair_darts import FairDarts
from nas_lightning.strategies.oneshot.gaea import Gaea
from nas_lightning.strategies.oneshot.gdas import Gdas
from nas_lightning.strategies.oneshot.pc_darts import PCDarts
from nas_lightning.strategies.oneshot.pr_darts import PRDarts
from nas_lightning.strategies.oneshot.random_ws import RandomWS

__all__ = [
    "Bilevel",
    "Darts",
    "EigenNas",
    "Evolution",
    "FairDarts",
    "Gaea",
    "Gdas",
    "Hnas",
    "Knas",
    "MetricSearch",
    "Nasi",
    "PCDarts",
    "PRDarts",
    "RandomSearch",
    "RandomWS",
    "Strategy",
]

if not TYPE_CHECKING:  # which is to know a misspelt name
    __getattr__ = names_of(__name__)
