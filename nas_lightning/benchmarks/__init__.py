"""Tabular benchmarks: what architectures reach when they are trained, looked up instead of trained."""

from nas_lightning.rooms import names_of

__getattr__ = names_of(__name__)
