"""What an architecture is worth: by a table, a short training, inherited weights, or ranked metrics."""

from nas_lightning.rooms import names_of

__getattr__ = names_of(__name__)
