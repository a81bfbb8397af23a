"""Thousands of architectures scored, to a file that goes on."""

from nas_lightning.metrics.pool.scoring import score_pool

__all__ = ["score_pool"]
