"""Data sets of images as Lightning data modules, whole or split for a search."""

from nas_lightning.data.base import ImageData
from nas_lightning.data.datasets import (
    Cifar10,
    Cifar100,
    Digits,
    Fake,
    FashionMnist,
    ImageFolder,
    ImageNet,
    ImageNet16,
    TinyImageNet,
)
from nas_lightning.data.external import ExternalData
from nas_lightning.data.search import SearchData

__all__ = [
    "Cifar10",
    "Cifar100",
    "Digits",
    "ExternalData",
    "Fake",
    "FashionMnist",
    "ImageData",
    "ImageFolder",
    "ImageNet",
    "ImageNet16",
    "SearchData",
    "TinyImageNet",
]
