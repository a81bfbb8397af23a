"""Weights near those of the architecture, at which the supernet is trained."""
