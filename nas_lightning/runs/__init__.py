"""What a run leaves in its folder: files, facts, numbers."""

from nas_lightning.rooms import names_of

__getattr__ = names_of(__name__)
