"""Kernels of infinitely wide networks."""
