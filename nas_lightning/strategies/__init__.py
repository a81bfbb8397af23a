"""Search strategies: each one file, one final subclass of `Strategy`."""

from nas_lightning.strategies.base import Strategy
from nas_lightning.strategies.bilevel import Bilevel
from nas_lightning.strategies.darts import Darts
from nas_lightning.strategies.eigen_nas import EigenNas, Knas
from nas_lightning.strategies.evolution import Evolution
from nas_lightning.strategies.fair_darts import FairDarts
from nas_lightning.strategies.gaea import Gaea
from nas_lightning.strategies.gdas import Gdas
from nas_lightning.strategies.hnas import Hnas
from nas_lightning.strategies.metric_search import MetricSearch
from nas_lightning.strategies.nasi import Nasi
from nas_lightning.strategies.pc_darts import PCDarts
from nas_lightning.strategies.pr_darts import PRDarts
from nas_lightning.strategies.random_search import RandomSearch
from nas_lightning.strategies.random_ws import RandomWS

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
