"""What a person reads of runs: a page of one, a table of many."""

from nas_lightning.rooms import names_of

__getattr__ = names_of(__name__)
