"""Search spaces: each one file, one final subclass of `SearchSpace`."""

from typing import TYPE_CHECKING

from nas_lightning.rooms import names_of
from nas_lightning.spaces.activations.mlp import Mlp
from nas_lightning.spaces.activations.two_layer import TwoLayer
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.darts.nasi import DartsNasi
from nas_lightning.spaces.darts.space import DartsSpace
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.nasbench101.oneshot import NasBench1Shot1
from nas_lightning.spaces.nasbench101.space import NasBench101
from nas_lightning.spaces.nasbench201 import NasBench201
from nas_lightning.spaces.network import DerivedNetwork, Network
from nas_lightning.spaces.ops import operation
from nas_lightning.spaces.registry import make_space
from nas_lightning.spaces.resnet import ResNet
from nas_lightning.spaces.supernet import Supernet

__all__ = [
    "DartsNasi",
    "DartsSpace",
    "DerivedNetwork",
    "Group",
    "Mlp",
    "NasBench1Shot1",
    "NasBench101",
    "NasBench201",
    "Network",
    "ResNet",
    "SearchSpace",
    "Supernet",
    "TwoLayer",
    "make_space",
    "operation",
]

if not TYPE_CHECKING:  # which is to know a misspelt name
    __getattr__ = names_of(__name__)
