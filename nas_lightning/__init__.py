"""Neural architecture search made of PyTorch Lightning parts."""

from nas_lightning.version import __version__

__all__ = ["__version__"]
