"""Data sets of images as Lightning data modules, whole and split for a search."""

from typing import TYPE_CHECKING

from nas_lightning.data.base import ImageData
from nas_lightning.data.own import OwnData
from nas_lightning.data.search import SearchData
from nas_lightning.data.sets.cifar import Cifar10, Cifar100
from nas_lightning.data.sets.digits import Digits
from nas_lightning.data.sets.fake import Fake
from nas_lightning.data.sets.fashion_mnist import FashionMnist
from nas_lightning.data.sets.image_folder import ImageFolder
from nas_lightning.data.sets.imagenet import ImageNet
from nas_lightning.data.sets.imagenet16 import ImageNet16
from nas_lightning.data.sets.tiny_imagenet import TinyImageNet
from nas_lightning.rooms import names_of

__all__ = [
    "Cifar10",
    "Cifar100",
    "Digits",
    "Fake",
    "FashionMnist",
    "ImageData",
    "ImageFolder",
    "ImageNet",
    "ImageNet16",
    "OwnData",
    "SearchData",
    "TinyImageNet",
]

if not TYPE_CHECKING:  # which is to know a misspelt name
    __getattr__ = names_of(__name__)
