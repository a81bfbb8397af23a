"""Search spaces: their decisions, supernets, and networks."""

from nas_lightning.spaces.activations import Mlp, TwoLayer
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.darts import DartsSpace
from nas_lightning.spaces.darts_nasi import DartsNasi
from nas_lightning.spaces.fixed import CustomNetwork, TimmNetwork, TorchvisionNetwork
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.nasbench1shot1 import NasBench1Shot1
from nas_lightning.spaces.nasbench101 import NasBench101
from nas_lightning.spaces.nasbench201 import NasBench201
from nas_lightning.spaces.network import DerivedNetwork, Network
from nas_lightning.spaces.operations import depthwise, operation
from nas_lightning.spaces.registry import make_space
from nas_lightning.spaces.resnet import ResNet
from nas_lightning.spaces.supernet import Supernet

__all__ = [
    "CustomNetwork",
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
    "TimmNetwork",
    "TorchvisionNetwork",
    "TwoLayer",
    "depthwise",
    "make_space",
    "operation",
]
