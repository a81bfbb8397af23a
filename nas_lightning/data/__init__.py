"""Data sets of images as Lightning data modules, whole and split for a search."""

from nas_lightning.data.base import ImageData
from nas_lightning.data.digits import Digits
from nas_lightning.data.fake import Fake
from nas_lightning.data.search import SearchData

__all__ = ["Digits", "Fake", "ImageData", "SearchData"]
