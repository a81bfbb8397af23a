"""Training: optimizers, gradients, and the training of one network."""

from nas_lightning.training.gradients import gradients
from nas_lightning.training.retrain import Retrain

__all__ = ["Retrain", "gradients"]
