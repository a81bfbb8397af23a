"""Spaces of two cells with two inputs, as in DARTS."""
