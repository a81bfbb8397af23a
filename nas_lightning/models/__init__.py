"""A trained network as a thing: its file, its description, its exports."""

from nas_lightning.rooms import names_of

__getattr__ = names_of(__name__)
