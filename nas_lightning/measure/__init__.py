"""Measurements of speed, memory and quality: each a command that prints its figure last."""
