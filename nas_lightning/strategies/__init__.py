"""Search strategies: each one file, one final subclass of `Strategy`."""

from nas_lightning.strategies.base import Strategy
from nas_lightning.strategies.bilevel import Bilevel
from nas_lightning.strategies.darts import Darts

__all__ = ["Bilevel", "Darts", "Strategy"]
