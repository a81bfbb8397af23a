"""Modules of NAS-Bench-101, and the three spaces of NAS-Bench-1Shot1 among them."""
