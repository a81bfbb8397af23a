"""Data sets of images as Lightning data modules, whole and split for a search."""

from nas_lightning.data.base import ImageData
from nas_lightning.data.cifar import Cifar10, Cifar100
from nas_lightning.data.digits import Digits
from nas_lightning.data.fake import Fake
from nas_lightning.data.fashion_mnist import FashionMnist
from nas_lightning.data.image_folder import ImageFolder
from nas_lightning.data.imagenet import ImageNet
from nas_lightning.data.imagenet16 import ImageNet16
from nas_lightning.data.search import SearchData
from nas_lightning.data.tiny_imagenet import TinyImageNet

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
    "SearchData",
    "TinyImageNet",
]
