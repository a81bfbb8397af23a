"""What a network's outputs mean: loss, targets, head and metrics of a task."""

from typing import TYPE_CHECKING

from nas_lightning.rooms import names_of
from nas_lightning.tasks.base import Task
from nas_lightning.tasks.binary import Binary
from nas_lightning.tasks.multi_class import MULTI_CLASS, MultiClass, task_of
from nas_lightning.tasks.multi_label import MultiLabel
from nas_lightning.tasks.own import OwnTask
from nas_lightning.tasks.regression import Regression
from nas_lightning.tasks.segmentation import Segmentation

__all__ = [
    "MULTI_CLASS",
    "Binary",
    "MultiClass",
    "MultiLabel",
    "OwnTask",
    "Regression",
    "Segmentation",
    "Task",
    "task_of",
]

if not TYPE_CHECKING:  # which is to know a misspelt name
    __getattr__ = names_of(__name__)
