"""What a network costs: parameters, multiply-adds, memory."""

from nas_lightning.rooms import names_of

__getattr__ = names_of(__name__)
