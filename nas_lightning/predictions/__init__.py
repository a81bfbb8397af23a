"""What a trained network says of images, and how right it is where their classes are known."""

from typing import TYPE_CHECKING

from nas_lightning.predictions.predictor import Predictions, Predictor
from nas_lightning.rooms import names_of

__all__ = ["Predictions", "Predictor"]

if not TYPE_CHECKING:  # which is to know a misspelt name
    __getattr__ = names_of(__name__)
