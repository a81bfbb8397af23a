"""Studies: what a paper's tables and figures ask, asked of this suite's own runs."""

from nas_lightning.rooms import names_of

__getattr__ = names_of(__name__)
