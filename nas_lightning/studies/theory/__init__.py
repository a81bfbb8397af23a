"""Theorems and quantities that only studies look at."""
