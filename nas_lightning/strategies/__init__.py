"""Search strategies: each one file, one final subclass of `Strategy`."""

from typing import TYPE_CHECKING

from nas_lightning.rooms import names_of
from nas_lightning.strategies.base import Strategy
from nas_lightning.strategies.black_box.eigen_nas import EigenNas, Knas
from nas_lightning.strategies.black_box.evolution import Evolution
from nas_lightning.strategies.black_box.greedy import Greedy
from nas_lightning.strategies.black_box.hnas import Hnas
from nas_lightning.strategies.black_box.metric_search import MetricSearch
from nas_lightning.strategies.black_box.predictor import Predictor
from nas_lightning.strategies.black_box.random_search import RandomSearch
from nas_lightning.strategies.black_box.robot import Robot
from nas_lightning.strategies.nasi.strategy import Nasi
from nas_lightning.strategies.oneshot.papers.activation_search import ActivationSearch
from nas_lightning.strategies.oneshot.papers.darts import Darts
from nas_lightning.strategies.oneshot.papers.fair_darts import FairDarts
from nas_lightning.strategies.oneshot.papers.gaea import Gaea
from nas_lightning.strategies.oneshot.papers.gdas import Gdas
from nas_lightning.strategies.oneshot.papers.pc_darts import PCDarts
from nas_lightning.strategies.oneshot.papers.pr_darts import PRDarts
from nas_lightning.strategies.oneshot.papers.random_ws import RandomWS
from nas_lightning.strategies.oneshot.strategy import OneShot

__all__ = [
    "ActivationSearch",
    "Darts",
    "EigenNas",
    "Evolution",
    "FairDarts",
    "Gaea",
    "Gdas",
    "Greedy",
    "Hnas",
    "Knas",
    "MetricSearch",
    "Nasi",
    "OneShot",
    "PCDarts",
    "PRDarts",
    "Predictor",
    "RandomSearch",
    "RandomWS",
    "Robot",
    "Strategy",
]

if not TYPE_CHECKING:  # which is to know a misspelt name
    __getattr__ = names_of(__name__)
