"""Search spaces: each one file, one final subclass of `SearchSpace`."""

from nas_lightning.spaces.base import Group, SearchSpace
from nas_lightning.spaces.darts import DartsSpace
from nas_lightning.spaces.darts_nasi import DartsNasi
from nas_lightning.spaces.mlp import Mlp
from nas_lightning.spaces.nasbench1shot1 import NasBench1Shot1
from nas_lightning.spaces.nasbench101 import NasBench101
from nas_lightning.spaces.nasbench201 import NasBench201
from nas_lightning.spaces.network import Network
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.spaces.two_layer import TwoLayer

__all__ = [
    "DartsNasi",
    "DartsSpace",
    "Group",
    "Mlp",
    "NasBench1Shot1",
    "NasBench101",
    "NasBench201",
    "Network",
    "SearchSpace",
    "Supernet",
    "TwoLayer",
]
